package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// EnvVar names the environment variable that points to the file.
const EnvVar = "SBXHOST_CONFIG"

// Loaded is a configuration and where it came from.
type Loaded struct {
	Config
	// Path is the file, absolute; "" when there was none.
	Path string
	// Why says how the file was chosen: "--config", "$SBXHOST_CONFIG", "current
	// directory", "user configuration", or "none".
	Why string
}

// Load finds and reads the configuration: flag, else $SBXHOST_CONFIG, else
// ./sbxhost.yaml, else $XDG_CONFIG_HOME/sbxhost/config.yaml, else the zero
// Config. A file named by flag or variable must exist. getenv is os.Getenv.
func Load(flag string, getenv func(string) string) (Loaded, error) {
	switch {
	case flag != "":
		return read(flag, "--config", true)
	case getenv(EnvVar) != "":
		return read(getenv(EnvVar), "$"+EnvVar, true)
	}
	if _, err := os.Lstat("sbxhost.yaml"); err == nil {
		// Nobody asked for this file, it was just lying there, and it grants.
		if err := checkOwner("sbxhost.yaml"); err != nil {
			return Loaded{}, err
		}
		return read("sbxhost.yaml", "current directory", true)
	}
	if dir := userDir(getenv); dir != "" {
		l, err := read(filepath.Join(dir, "sbxhost", "config.yaml"), "user configuration", false)
		if err != nil || l.Path != "" {
			return l, err
		}
	}
	return Loaded{Why: "none"}, nil
}

func userDir(getenv func(string) string) string {
	if d := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		return d
	}
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config")
	}
	return ""
}

func read(path, why string, must bool) (Loaded, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Loaded{}, fmt.Errorf("read configuration (%s): %w", why, err)
	}
	f, err := os.Open(abs)
	if err != nil {
		if !must && errors.Is(err, fs.ErrNotExist) {
			return Loaded{}, nil
		}
		return Loaded{}, fmt.Errorf("read configuration (%s): %w", why, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return Loaded{}, fmt.Errorf("read configuration (%s): %w", why, err)
	}
	c, err := Parse(data)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.File = path
		}
		return Loaded{}, err
	}
	c.resolve(filepath.Dir(abs))
	return Loaded{Config: c, Path: abs, Why: why}, nil
}
