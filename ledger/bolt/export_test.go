package bolt

import (
	"io"

	"github.com/sbxhost/sbxhost/ledger"
)

// For the tests that damage files and records.

func Encode(r ledger.Record) ([]byte, error) {
	b, _, err := encode(r)
	return b, err
}

func Decode(key string, value []byte) (ledger.Record, error) {
	r, _, err := decode(key, value)
	return r, err
}

func ReadFile(in io.ReaderAt, size int64) ([]ledger.Record, error) {
	c, err := readFile(in, size)
	return c.records, err
}
