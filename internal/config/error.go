package config

import (
	"fmt"
	"strings"
)

// Position is a place in a file; lines and columns count from 1; 0 is unknown, as the column of broken syntax.
type Position struct{ Line, Column int }

// Error is what is wrong with a configuration file. It names keys, never a
// setting's text: someone may have pasted a value where a name belongs.
type Error struct {
	File     string // "" when parsed from memory
	Position Position
	Path     string // JSON pointer of the key, "" for the document
	Message  string
	Err      error // cause; may be nil
}

// Error returns "file:line:column: path: message".
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ":")
	} else {
		b.WriteString("config:")
	}
	if e.Position.Line > 0 {
		fmt.Fprintf(&b, "%d:", e.Position.Line)
		if e.Position.Column > 0 {
			fmt.Fprintf(&b, "%d:", e.Position.Column)
		}
	}
	if e.Path != "" {
		b.WriteString(" " + e.Path + ":")
	}
	return b.String() + " " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
