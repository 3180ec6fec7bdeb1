package ledger

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/sbxhost/sbxhost/internal/jsonobject"
	"github.com/sbxhost/sbxhost/provider"
)

// RecordVersion is the version of the encoded form.
const RecordVersion = 1

// recordFields are the members of an encoded record.
var recordFields = []string{"session", "attempt", "owner", "epoch", "provider", "name", "digest", "key", "phase",
	"ref", "protected", "protectedNames", "manifest", "createdAt", "updatedAt", "expiresAt", "idle", "lastError"}

type envelope struct {
	Version int    `json:"version"`
	Record  Record `json:"record"`
}

// EncodeRecord returns the record as JSON with its version. Times are kept in
// UTC to the nanosecond. It refuses what Validate refuses.
func EncodeRecord(r Record) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r = normal(r)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(envelope{RecordVersion, r}); err != nil {
		return nil, corrupt("it cannot be encoded")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeRecord reads what EncodeRecord wrote. It is strict: another version,
// unknown, duplicate or differently spelled fields, wrong types, trailing data,
// or a record that Validate refuses is an error. The error repeats nothing of
// the input. A newer version is Unsupported, anything else Internal: a record
// that was written once and cannot be read is damaged.
func DecodeRecord(data []byte) (Record, error) {
	fields, err := jsonobject.Split(data, "version", "record")
	if err != nil {
		return Record{}, corrupt(err.Error())
	}
	var version int
	if json.Unmarshal(fields["version"], &version) != nil || version < 1 {
		return Record{}, corrupt("it has no version")
	}
	if version > RecordVersion {
		return Record{}, &provider.Error{Code: provider.Unsupported, Op: "ledger", Applied: provider.AppliedNo,
			Message: "the record was written by a newer version of sbxhost", Remedy: "use that version, or a newer one"}
	}
	members, err := jsonobject.Split(fields["record"], recordFields...)
	if err != nil {
		return Record{}, corrupt(err.Error())
	}
	for _, name := range recordFields {
		if bytes.Equal(bytes.TrimSpace(members[name]), []byte("null")) {
			return Record{}, corrupt("field " + name + " is null")
		}
	}
	rawRef, hasRef := members["ref"]
	var r Record
	if err := json.Unmarshal(fields["record"], &r); err != nil {
		return Record{}, corrupt("a field has a wrong type")
	}
	r.Ref = provider.Ref{}
	if hasRef {
		if r.Ref, err = provider.DecodeRef(rawRef); err != nil {
			return Record{}, corrupt("its ref is malformed")
		}
	}
	if err := r.Validate(); err != nil {
		return Record{}, corrupt("it is incomplete or holds what it must not")
	}
	return normal(r), nil
}

// normal returns the form that equal records share: compact JSON, UTC, nil for
// nothing.
func normal(r Record) Record {
	r = clone(r)
	for _, at := range []*time.Time{&r.CreatedAt, &r.UpdatedAt, &r.ExpiresAt} {
		if at.IsZero() {
			*at = time.Time{}
		}
		*at = at.UTC().Round(0)
	}
	if len(r.ProtectedNames) == 0 {
		r.ProtectedNames = nil
	}
	r.Manifest = compact(r.Manifest)
	r.Ref.Data = compact(r.Ref.Data)
	if bytes.Equal(r.Ref.Data, []byte("null")) {
		r.Ref.Data = nil
	}
	return r
}

func compact(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw // Validate has refused it already
	}
	return b.Bytes()
}

func corrupt(why string) error {
	return &provider.Error{Code: provider.Internal, Op: "ledger", Applied: provider.AppliedNo,
		Message: "a record cannot be read: " + why, Remedy: "restore the ledger from a copy, or remove the record and reconcile"}
}
