// Package jsonobject takes one JSON object apart strictly: encoding/json alone
// accepts duplicate keys, keys in another case and broken UTF-8, and a document
// that two readers understand differently is a way around a check.
package jsonobject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// Split returns the members of the one object in data, undecoded. Keys must be
// among known, in exactly that spelling, and appear once. Anything after the
// object but white space is an error. Error messages name known keys only.
func Split(data []byte, known ...string) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	tok, err := dec.Token()
	if err != nil {
		return nil, errors.New("not a JSON object")
	}
	if tok != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	out := map[string]json.RawMessage{}
	for dec.More() {
		tok, err = dec.Token()
		if err != nil {
			return nil, errors.New("malformed JSON")
		}
		key, ok := tok.(string)
		if !ok {
			return nil, errors.New("malformed JSON")
		}
		if !slices.Contains(known, key) {
			return nil, errors.New("unknown field")
		}
		if _, dup := out[key]; dup {
			return nil, fmt.Errorf("duplicate field %q", key)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fmt.Errorf("malformed value of %q", key)
		}
		out[key] = raw
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("malformed JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the object")
	}
	return out, nil
}
