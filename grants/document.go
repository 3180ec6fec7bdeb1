package grants

import (
	"errors"
	"fmt"

	"github.com/sbxhost/sbxhost/internal/strictjson"
)

// entryError is a fault told by its index, because the entry itself may be a
// pasted value.
type entryError struct {
	where  string
	reason string
}

func (e *entryError) Error() string { return e.where + ": " + e.reason }

func entry(list string, i int) string { return fmt.Sprintf("%s: entry %d", list, i) }

func atEntry(list string, i int, err error) error {
	return &entryError{where: entry(list, i), reason: messageOf(err)}
}

// messageOf returns the message of a decoder's error without its pointer, whose
// tokens are content.
func messageOf(err error) string {
	var de *strictjson.Error
	if errors.As(err, &de) {
		return de.Message
	}
	return err.Error()
}

// malformedDocument turns a decoding error into an *Error.
func malformedDocument(what string, err error) *Error {
	return &Error{Kind: KindMalformed, Reason: what + ": " + messageOf(err)}
}
