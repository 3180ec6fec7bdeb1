package manifest

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// ValidName reports whether name may name a variable at all: not empty, without
// "=" and NUL, valid UTF-8. Names are exact: nothing is trimmed, folded or
// expanded. The error does not contain the name.
func ValidName(name string) error {
	switch {
	case name == "":
		return errors.New("a variable name must not be empty")
	case strings.Contains(name, "="):
		return errors.New(`a variable name must not contain "="`)
	case strings.Contains(name, "\x00"):
		return errors.New("a variable name must not contain NUL")
	case !utf8.ValidString(name):
		return errors.New("a variable name must be valid UTF-8")
	}
	return nil
}

// ValidEnvKey reports whether key may be an environment key of a sandbox or of
// one command: an identifier, [A-Za-z_][A-Za-z0-9_]*. The error does not
// contain the key.
func ValidEnvKey(key string) error {
	if err := ValidName(key); err != nil {
		return err
	}
	for i := 0; i < len(key); i++ {
		c := key[i]
		letter := c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return errors.New("an environment key must be an identifier: letters, digits and _, not starting with a digit")
		}
	}
	return nil
}

// reserved lists names that shells manage themselves: what a reference put
// there would be overwritten, or change how commands run.
var reserved = map[string]bool{
	"_": true, "IFS": true, "PWD": true, "OLDPWD": true, "PPID": true,
	"UID": true, "EUID": true, "GID": true, "EGID": true, "GROUPS": true,
	"RANDOM": true, "SRANDOM": true, "SECONDS": true,
	"EPOCHSECONDS": true, "EPOCHREALTIME": true, "LINENO": true,
	"OPTIND": true, "PIPESTATUS": true, "FUNCNAME": true, "DIRSTACK": true,
	"SHLVL": true, "SHELLOPTS": true, "ENV": true,
}

var reservedPrefixes = []string{"BASH", "KSH", "ZSH", "LD_", "DYLD_"}

// ReservedDestination reports whether name is managed by shells or the dynamic
// loader and so cannot be the destination of a reference or the name of a
// request secret. PATH and HOME are not reserved. Names are case-sensitive.
func ReservedDestination(name string) bool {
	if reserved[name] {
		return true
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
