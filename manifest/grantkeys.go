package manifest

import (
	"encoding/json"
	"errors"

	"github.com/sbxhost/sbxhost/internal/strictjson"
)

// grantKeys are the normalised spellings of the settings that grant. They
// belong in the host's configuration only.
var grantKeys = map[string]bool{
	"allowedprocessenvironmentkeys": true,
	"allowedprocessenvironmentkey":  true,
	"allowedprocessenvkeys":         true,
	"processenvironmentbindings":    true,
	"processenvironmentbinding":     true,
	"processenvbindings":            true,
}

// grantShaped reports whether key is the name of a grant setting in any
// spelling: camel, snake, kebab, spaced, any case.
func grantShaped(key string) bool {
	if len(key) > 4*len("allowedprocessenvironmentkeys") {
		return false
	}
	norm := make([]byte, 0, len(key))
	for i := 0; i < len(key); i++ {
		switch c := key[i]; {
		case c >= 'A' && c <= 'Z':
			norm = append(norm, c+'a'-'A')
		case c >= 'a' && c <= 'z':
			norm = append(norm, c)
		}
	}
	return grantKeys[string(norm)]
}

var errGrantShaped = errors.New("grants never come from a manifest, a request or a state; put them in the host's configuration or pass --grant")

func refuseGrantShaped(key string) error {
	if grantShaped(key) {
		return errGrantShaped
	}
	return nil
}

// CheckGrantShapedKeys refuses a JSON document that has, at any depth, an
// object key that names a grant setting (allowedProcessEnvironmentKeys,
// processEnvironmentBindings) in any spelling. Grants come from the host's
// configuration and from nowhere else; a document that tries is refused rather
// than stripped, so that nobody believes it worked.
//
// The rule has no exception for maps with the user's own keys (environment,
// labels, files): such a key would be harmless there, but nobody needs one, and
// an exception would be a place to hide. Strings are not looked into: what a
// file or a variable contains is its owner's business.
//
// The document must otherwise be exact JSON (no duplicate keys, valid UTF-8,
// nesting of at most MaxDepth). Its size is the caller's to limit. The error is
// an *Error with the key's pointer.
func CheckGrantShapedKeys(raw json.RawMessage) error {
	d := strictjson.New(raw)
	d.OnKey = refuseGrantShaped
	if err := d.Skip(); err != nil {
		return fromDecoder(err)
	}
	return fromDecoder(d.End())
}
