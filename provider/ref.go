package provider

import (
	"bytes"
	"encoding/json"
	"unicode"
	"unicode/utf8"

	"github.com/sbxhost/sbxhost/internal/jsonobject"
)

// MaxRefIDBytes is the longest Ref.ID.
const MaxRefIDBytes = 1024

// ValidateRef checks that ref can be stored: an ID of 1 to MaxRefIDBytes bytes
// of printable UTF-8, Data that is JSON, MaxRefBytes in all. The error is an
// InvalidArgument that does not repeat the ref.
func ValidateRef(ref Ref) error {
	_, err := EncodeRef(ref)
	return err
}

// EncodeRef returns ref as compact JSON. Equal refs encode equally, up to white
// space in Data. It fails with InvalidArgument on a ref that ValidateRef
// refuses.
func EncodeRef(ref Ref) ([]byte, error) {
	if err := validRefID(ref.ID); err != nil {
		return nil, err
	}
	// An explicit null means the same as no data; one spelling is kept.
	if bytes.Equal(bytes.TrimSpace(ref.Data), []byte("null")) {
		ref.Data = nil
	}
	if len(ref.Data) > 0 && (!utf8.Valid(ref.Data) || !json.Valid(ref.Data)) {
		return nil, refError("ref data is not JSON")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(ref); err != nil {
		return nil, refError("ref cannot be encoded")
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(out) > MaxRefBytes {
		return nil, refError("ref is larger than 64 KiB")
	}
	return out, nil
}

// DecodeRef reads what EncodeRef wrote. It is strict: unknown, duplicate or
// differently spelled fields, wrong types, trailing data, broken UTF-8 and
// anything over MaxRefBytes are InvalidArgument. The error does not repeat the
// input.
func DecodeRef(data []byte) (Ref, error) {
	if len(data) > MaxRefBytes {
		return Ref{}, refError("ref is larger than 64 KiB")
	}
	fields, err := jsonobject.Split(data, "id", "data")
	if err != nil {
		return Ref{}, refError("ref is malformed: " + err.Error())
	}
	var id *string
	if err := json.Unmarshal(fields["id"], &id); err != nil || id == nil {
		return Ref{}, refError("ref has no id string")
	}
	ref := Ref{ID: *id}
	if raw := fields["data"]; len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return Ref{}, refError("ref data is not JSON")
		}
		ref.Data = compact.Bytes()
	}
	if err := validRefID(ref.ID); err != nil {
		return Ref{}, err
	}
	return ref, nil
}

func validRefID(id string) error {
	if id == "" {
		return refError("ref has no id")
	}
	if len(id) > MaxRefIDBytes {
		return refError("ref id is longer than 1024 bytes")
	}
	if !utf8.ValidString(id) {
		return refError("ref id is not valid UTF-8")
	}
	for _, r := range id {
		// U+FFFD is what a decoder makes of broken text: two ids would become one.
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return refError("ref id holds a character that cannot be printed")
		}
	}
	return nil
}

func refError(message string) error {
	return &Error{Code: InvalidArgument, Op: "ref", Message: message, Applied: AppliedNo,
		Remedy: "use the ref that the provider returned, unchanged"}
}
