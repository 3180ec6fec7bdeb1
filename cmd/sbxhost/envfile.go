package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sbxhost/sbxhost/manifest"
)

// readEnvFile adds a file's lines to env: NAME=VALUE is a literal, VALUE taken as
// it stands, quotes included; NAME is a reference to the host variable of the
// same name, NAME<-SOURCE to another one. Empty lines and lines that start with
// "#" are skipped. References are not granted by being here. Errors give the
// line's number and nothing of its content.
func readEnvFile(file string, env map[string]manifest.Entry) error {
	data, err := readSmall("--env-file", file, manifest.MaxEnvironment)
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if t := strings.TrimSpace(line); t == "" || strings.HasPrefix(t, "#") {
			continue
		}
		name, value, literal := strings.Cut(line, "=")
		source := ""
		// NAME<-SOURCE; a "<-" behind the first "=" belongs to the literal.
		if before, after, ok := strings.Cut(name, "<-"); ok {
			if literal {
				return fmt.Errorf("%s:%d: a source's name cannot hold \"=\"", file, n)
			}
			name, source = strings.TrimSpace(before), strings.TrimSpace(after)
			if err := manifest.ValidName(source); err != nil {
				return fmt.Errorf("%s:%d: the name after \"<-\": %w", file, n, err)
			}
		}
		name = strings.TrimSpace(name)
		if err := manifest.ValidEnvKey(name); err != nil {
			return fmt.Errorf("%s:%d: must be NAME=VALUE, NAME or NAME<-SOURCE, with an identifier as NAME", file, n)
		}
		if literal {
			env[name] = manifest.Entry{Literal: value}
		} else {
			env[name] = manifest.Entry{Reference: &manifest.Reference{Name: source}}
		}
	}
	return nil
}

// readSmall reads a file that a flag names, and no more of it than is allowed:
// what is named by mistake may never end.
func readSmall(flag, file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s %s: larger than %d bytes", flag, file, limit)
	}
	return data, nil
}

func lookupEnv(name string) (string, bool) { return os.LookupEnv(name) }
