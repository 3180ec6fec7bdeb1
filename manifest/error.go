package manifest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sbxhost/sbxhost/internal/strictjson"
)

// Error is a fault in a manifest. It names the place and the rule, never the
// content of an environment entry or of a file.
type Error struct {
	// Pointer is the JSON pointer (RFC 6901) of the faulty value; "" is the
	// whole manifest. A name that does not look like one, which may be a pasted
	// value, stands in it as <unusual name>.
	Pointer string
	// Message says what is wrong and how to put it right; lower case.
	Message string
}

// Error returns "manifest pointer: message".
func (e *Error) Error() string {
	if e.Pointer == "" {
		return "manifest: " + e.Message
	}
	return "manifest " + e.Pointer + ": " + e.Message
}

// unusual stands for a name that is not shown.
const unusual = "<unusual name>"

// maxShown is the longest pointer token that an error shows in full, in bytes.
const maxShown = 256

// safePointer builds the pointer an error shows. An environment key that is no
// identifier is not shown: "TOKEN=value" pasted as a key is a common slip.
// Other tokens are names of files, labels and fields.
func safePointer(tokens []string) string {
	shown := make([]string, len(tokens))
	for i, t := range tokens {
		inEnvironment := i > 0 && tokens[i-1] == "environment"
		switch {
		case inEnvironment && ValidEnvKey(t) != nil, strings.ContainsFunc(t, notPrintable):
			t = unusual
		case len(t) > maxShown:
			t = strings.ToValidUTF8(t[:maxShown], "") + "…"
		}
		shown[i] = t
	}
	return strictjson.Pointer(shown...)
}

func notPrintable(r rune) bool { return r < ' ' || r == 0x7f }

func errorAt(tokens []string, format string, args ...any) *Error {
	return &Error{Pointer: safePointer(tokens), Message: fmt.Sprintf(format, args...)}
}

// fromDecoder turns the decoder's error into an *Error.
func fromDecoder(err error) error {
	if err == nil {
		return nil
	}
	var de *strictjson.Error
	if errors.As(err, &de) {
		return &Error{Pointer: safePointer(strictjson.Tokens(de.Pointer)), Message: de.Message}
	}
	return err
}
