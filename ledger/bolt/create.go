package bolt

import (
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// create makes an empty ledger at path, whole or not at all: a file that is there
// is always one that was finished, so that an empty or short one is known to be
// damaged. It fails with fs.ErrExist when somebody else was first.
func create(path string, boot checksum) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-")
	if err != nil {
		return err
	}
	name := f.Name()
	defer func() { _ = os.Remove(name) }()
	_ = f.Close()
	db, err := bbolt.Open(name, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(bucketFormat)
		if err != nil {
			return err
		}
		if err := b.Put(keyVersion, []byte(fileVersion)); err != nil {
			return err
		}
		if err := b.Put(keySeal, seal{tx: uint64(tx.ID()), boot: boot}.encode()); err != nil {
			return err
		}
		_, err = tx.CreateBucket(bucketRecords)
		return err
	})
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	// A link, unlike a rename, never replaces what is there.
	if err := os.Link(name, path); err != nil {
		return err
	}
	return syncDir(dir)
}
