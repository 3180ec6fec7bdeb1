package local

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/sbxhost/sbxhost/provider"
	"golang.org/x/sys/unix"
)

// Names in a sandbox's directory.
const (
	workspaceDir = "workspace"
	tmpDir       = "tmp" // LevelLandlock only
	recordFile   = "sandbox.json"
	lockFile     = "lock"
)

// record is what is kept of a sandbox on disk. It holds no value: not even the
// manifest's literals.
type record struct {
	Version   int                  `json:"version"`
	ID        string               `json:"id"`
	Name      string               `json:"name"`
	Digest    string               `json:"digest"`
	Labels    map[string]string    `json:"labels,omitempty"`
	Root      string               `json:"root"`
	Network   string               `json:"network"`
	Level     Level                `json:"level"`
	UID       uint32               `json:"uid"`
	Resources provider.Resources   `json:"resources"`
	Mounts    []provider.PathGrant `json:"mounts,omitempty"`
	CreatedAt time.Time            `json:"createdAt"`
	TTL       time.Duration        `json:"-"`
}

func (r *record) pids(def int64) int64 {
	if r.Resources.PIDs > 0 {
		return r.Resources.PIDs
	}
	return def
}

// same reports whether r answers the request o: the same digest, and for a
// replacement the same attempt.
func (r *record) same(o *record, replaces bool) bool {
	return r.Digest == o.Digest && (!replaces || r.Labels[provider.LabelAttempt] == o.Labels[provider.LabelAttempt])
}

func (r *record) matches(q provider.Query) bool {
	return (q.Owner == "" || r.Labels[provider.LabelOwner] == q.Owner) &&
		(q.Session == "" || r.Labels[provider.LabelSession] == q.Session)
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,79}$`)

// validID reports whether id can be the name of a sandbox's directory.
func validID(id string) bool { return idPattern.MatchString(id) }

// writeRecord stores r, whole or not at all.
func writeRecord(dir string, r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, recordFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, recordFile))
}

func readRecord(stateDir, id string) (*record, error) {
	if !validID(id) {
		return &record{}, fs.ErrNotExist
	}
	b, err := os.ReadFile(filepath.Join(stateDir, id, recordFile))
	if err != nil {
		return &record{}, err
	}
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil {
		return &record{}, err
	}
	if r.ID != id {
		return &record{}, errors.New("the record belongs to another sandbox")
	}
	return r, nil
}

// readRecords returns the records of all sandboxes. A directory without a
// readable one is listed too, with what its name tells, so that it is not
// forgotten.
func readRecords(stateDir string) ([]*record, error) {
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		return nil, err
	}
	var out []*record
	for _, e := range entries {
		if !e.IsDir() || !validID(e.Name()) || strings.HasPrefix(e.Name(), probePrefix) {
			continue
		}
		r, err := readRecord(stateDir, e.Name())
		if err != nil {
			if _, serr := os.Lstat(filepath.Join(stateDir, e.Name())); os.IsNotExist(serr) {
				continue // destroyed meanwhile
			}
			r = &record{ID: e.Name(), Name: provider.NamePrefix + e.Name()}
			if st, serr := e.Info(); serr == nil {
				r.CreatedAt = st.ModTime()
			}
		}
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].CreatedAt.Before(out[j].CreatedAt) })
	return out, nil
}

// unfinishedPrefix starts the name of a sandbox's directory that has no record
// yet, or needs none any more.
const unfinishedPrefix = ".new-"

// makeDir makes a sandbox's directory, locked and with its record, whole or not
// at all: one without a record could not be told from somebody else's. It fails
// with fs.ErrExist when there is one.
func makeDir(stateDir string, r *record) (lock *os.File, err error) {
	dir, unfinished := filepath.Join(stateDir, r.ID), filepath.Join(stateDir, unfinishedPrefix+r.ID)
	if _, err := os.Lstat(dir); err == nil {
		return nil, fs.ErrExist
	}
	// What an earlier life of the same sandbox left goes first.
	if err := removeAll(unfinished); err != nil {
		return nil, err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return nil, err
	}
	if lock, err = lockDir(unfinished); err != nil {
		return nil, err
	}
	if err = writeRecord(unfinished, r); err == nil {
		err = os.Rename(unfinished, dir)
	}
	if err == nil {
		return lock, nil
	}
	_ = os.RemoveAll(unfinished)
	unlock(lock)
	if errors.Is(err, unix.ENOTEMPTY) {
		err = fs.ErrExist
	}
	return nil, err
}

// unfinishedAge is how old a directory without a lock must be to be nobody's.
const unfinishedAge = time.Minute

// removeUnfinished removes what processes left that died in makeDir, or at the
// end of a removal.
func removeUnfinished(stateDir string) {
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), unfinishedPrefix) {
			continue
		}
		dir := filepath.Join(stateDir, e.Name())
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < unfinishedAge || heldElsewhere(dir) {
			continue
		}
		_ = removeAll(dir) // the next one tries again
	}
}

var errHeld = errors.New("held by another process")

// lockDir takes a sandbox's lock. It is held as long as the process that runs the
// sandbox lives, and tells others that it does.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errHeld
		}
		return nil, err
	}
	return f, nil
}

// unlock gives a lock back. A child that is being made meanwhile has inherited it and
// would go on holding what was only closed.
func unlock(lock *os.File) {
	_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	_ = lock.Close()
}

// heldElsewhere reports whether a process runs the sandbox of dir, or whether that
// cannot be told, as when no descriptor is left. Only for sandboxes that this Provider
// does not run itself.
func heldElsewhere(dir string) bool {
	// A child that is being made meanwhile would inherit the lock and hold it until
	// it executes: whoever takes the lock next would be told that it is held.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR)
	}
	defer func() { _ = f.Close() }()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// checkPrivate refuses a directory that somebody else owns or can write to.
func checkPrivate(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return errors.New(dir + " is not a directory of this user")
	}
	if st.Mode&0o077 != 0 {
		return os.Chmod(dir, 0o700) //nolint:gosec // the operator names it
	}
	return nil
}
