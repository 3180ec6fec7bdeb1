package egress

import (
	"bufio"
	"io"

	"github.com/sbxhost/sbxhost/secret"
)

// Frames reads a framed body to its end and returns its documents, for fuzzing.
func Frames(kind string, r io.Reader) ([]any, error) {
	f := newFrameReader(kind, bufio.NewReaderSize(r, 16))
	var out []any
	for {
		doc, err := f.next()
		if err != nil {
			return out, err
		}
		out = append(out, doc)
	}
}

// Capture keeps a token as if a reply had held it.
func (b *Broker) Capture(s *Session, name, token string) {
	b.keepCapture(s, name, secret.FromString(token))
}
