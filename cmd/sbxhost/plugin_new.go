package main

import (
	"path/filepath"

	"github.com/sbxhost/sbxhost/plugin/scaffold"
)

// newPlugin makes a plugin's folder, named as the plugin, and returns the files
// in it.
func newPlugin(dir, lang, source string) ([]string, error) {
	return scaffold.Write(dir, filepath.Base(dir), lang, scaffold.Options{Source: source})
}
