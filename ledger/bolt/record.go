package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/sbxhost/sbxhost/ledger"
	"github.com/sbxhost/sbxhost/provider"
)

// A record's value is one byte of version, sumSize bytes of checksum over version,
// key and document, and the document of ledger.EncodeRecord. The checksum comes
// first: a version is believed only where nothing is damaged.
const (
	valueVersion = 1
	sumSize      = 16
)

// checksum of one record.
type checksum [sumSize]byte

// sum is over the key too: a record under another one's key is damaged.
func sum(version byte, key string, doc []byte) (s checksum) {
	h := sha256.New()
	h.Write([]byte{version})
	h.Write([]byte(key))
	h.Write([]byte{0})
	h.Write(doc)
	copy(s[:], h.Sum(nil))
	return s
}

// seal covers all records together: how many there are, and their checksums. A
// record that a damaged page lost is missed that way. It also says by which change
// the file became so, and under which boot of the machine that was made.
type seal struct {
	count uint64
	mix   checksum
	tx    uint64   // bbolt's transaction; 0 in a file of oldVersion
	boot  checksum // of the boot's id; zero: none is known
}

const (
	oldSealSize = 8 + sumSize + sumSize
	sealSize    = oldSealSize + 8 + sumSize
)

// with returns the seal after one record came (by 1) or went (by -1).
func (s seal) with(c checksum, by int) seal {
	s.count += uint64(by) //nolint:gosec // wraps around as it must
	for i := range c {
		s.mix[i] ^= c[i]
	}
	return s
}

// encode returns the seal as it is stored, with a checksum of its own.
func (s seal) encode() []byte {
	out := binary.BigEndian.AppendUint64(nil, s.count)
	out = append(out, s.mix[:]...)
	if s.tx != 0 {
		out = binary.BigEndian.AppendUint64(out, s.tx)
		out = append(out, s.boot[:]...)
	}
	own := sum(valueVersion, "", out)
	return append(out, own[:]...)
}

// changeOf returns what a stored seal says of the change that made it.
func changeOf(stored []byte) (tx uint64, boot checksum, ok bool) {
	if len(stored) != sealSize {
		return 0, checksum{}, false
	}
	stored = stored[8+sumSize:]
	return binary.BigEndian.Uint64(stored), checksum(stored[8 : 8+sumSize]), true
}

// bootSum returns the checksum of a boot's id: whose machine it was is nobody's
// business.
func bootSum(id string) checksum {
	if id == "" {
		return checksum{}
	}
	return sum(valueVersion, "boot", []byte(id))
}

func encode(r ledger.Record) ([]byte, checksum, error) {
	doc, err := ledger.EncodeRecord(r)
	if err != nil {
		return nil, checksum{}, err
	}
	c := sum(valueVersion, r.Attempt, doc)
	out := make([]byte, 0, 1+sumSize+len(doc))
	out = append(out, valueVersion)
	out = append(out, c[:]...)
	return append(out, doc...), c, nil
}

// decode reads what encode wrote under key. Its errors repeat nothing of the
// content. They are Unsupported for a newer version, and what a DamageError says
// otherwise.
func decode(key string, value []byte) (ledger.Record, checksum, error) {
	refuse := func(what string) (ledger.Record, checksum, error) {
		return ledger.Record{}, checksum{}, errors.New(what)
	}
	if len(value) < 1+sumSize {
		return refuse("it was cut short")
	}
	doc := value[1+sumSize:]
	c := sum(value[0], key, doc)
	switch {
	case !bytes.Equal(value[1:1+sumSize], c[:]):
		return refuse("its checksum is wrong")
	case value[0] > valueVersion:
		return ledger.Record{}, checksum{}, newer()
	case value[0] != valueVersion:
		return refuse("it has no version")
	}
	r, err := ledger.DecodeRecord(doc)
	switch {
	case provider.CodeOf(err) == provider.Unsupported:
		return ledger.Record{}, checksum{}, err
	case err != nil:
		return refuse("it is malformed: " + err.Error())
	case r.Attempt != key:
		return refuse("it is of another attempt")
	}
	return r, c, nil
}

func newer() error {
	return &provider.Error{Code: provider.Unsupported, Op: "ledger", Applied: provider.AppliedNo,
		Message: "the ledger was written by a newer version of sbxhost", Remedy: "use that version, or a newer one"}
}
