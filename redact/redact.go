// Package redact masks secret values in everything that flows back to a caller.
//
// A [Redactor] knows a set of secrets. It finds each of them in byte streams,
// texts, errors, JSON documents and log records, raw and in the encodings that
// tools commonly print (JSON, percent, base64, hex, shell, XML), and puts
// [redacted:NAME] in their place. All occurrences of all forms are found in the
// original bytes; overlapping ones become one marker, adjacent ones stay apart,
// and a marker is never searched again.
//
// Redaction is a safety net against accidents. Whoever holds a value can always
// transform it into something no redactor knows: reversed, hashed, compressed,
// UTF-16, spaced hex and the like are out of reach, and so is a value broken by
// colour codes or by a wrapped base64 dump.
package redact

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Options adjust a Redactor. The zero value is ready to use.
type Options struct {
	// MinLen is the length in bytes from which a value is masked wherever it
	// stands. Shorter ones, down to 6 bytes, are masked only between bytes that
	// are neither letter nor digit. Default 8; less than 4 is taken as 4.
	MinLen int
	// AllowShort masks values of 4 and 5 bytes too, between bytes that are
	// neither letter nor digit. Without it they are refused.
	AllowShort bool
	// Idle is how long a Writer waits for more data before it lets go of held
	// bytes that give too little away. Default 20 ms; negative means never.
	Idle time.Duration
	// Off turns masking off. It exists so that a leak test can prove that it
	// would see a leak; Add still says what it would refuse.
	Off bool
}

// Secret is one value to mask, and the name that its marker shows.
type Secret struct {
	Name  string
	Value []byte // copied; the caller keeps ownership
	// Multi says that every line of Value is a secret of its own: each gets all
	// forms, and one that is refused is reported.
	Multi bool
	// NoForms masks the value as it is and derives no encodings.
	NoForms bool
	// AllowShort is Options.AllowShort for this value.
	AllowShort bool
}

// Refused is a value, or a part of one, that is not masked, and why.
type Refused struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Hits counts markers by secret name.
type Hits map[string]int64

// Stats describes a Redactor at one moment.
type Stats struct {
	Secrets int   // values accepted
	Retired int   // names marked by Retire
	Needles int   // byte strings searched for
	Refused int   // values and lines refused
	Held    int64 // bytes that open Writers hold back; may be half an idle period old
	Hits    Hits  // markers written, by name
}

// ErrMarshal is returned by the marshallers of types that hold secrets.
var ErrMarshal = errors.New("redact: what holds secrets cannot be marshalled")

// String names the secret only.
func (s Secret) String() string { return "redact.Secret[" + s.Name + "]" }

// GoString names the secret only.
func (s Secret) GoString() string { return s.String() }

// Format names the secret only, for every verb and flag.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue names the secret only.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON returns ErrMarshal.
func (s Secret) MarshalJSON() ([]byte, error) { return nil, ErrMarshal }

// MarshalText returns ErrMarshal.
func (s Secret) MarshalText() ([]byte, error) { return nil, ErrMarshal }

// GobEncode returns ErrMarshal.
func (s Secret) GobEncode() ([]byte, error) { return nil, ErrMarshal }
