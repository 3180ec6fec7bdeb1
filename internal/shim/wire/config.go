package wire

import "encoding/binary"

// IDMode says which user the workload is.
type IDMode byte

// The ways to become the workload's user.
const (
	// IDKeep: nothing changes.
	IDKeep IDMode = iota
	// IDMapSelf: the supervisor is in a fresh user namespace and maps its own
	// user to UID and GID.
	IDMapSelf
	// IDSet: each command becomes UID and GID. Not in a jail.
	IDSet
	// IDUser: each command becomes User, looked up in the container. Not in a
	// jail.
	IDUser
)

// WorkloadCaps is the set (bit n is capability n) that a command of root keeps in a
// container: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID and
// NET_BIND_SERVICE.
const WorkloadCaps = 1<<0 | 1<<1 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<10

// Mount is one bind mount of a jail.
type Mount struct {
	Source   string // host path; not used with Passed
	Target   string // absolute path in the jail
	ReadOnly bool
	NoDev    bool
	Optional bool // a missing source is skipped
	// Passed: the mount came as a descriptor with the setup frame, in the order
	// of these entries, and has its attributes.
	Passed bool
}

// Link is a symbolic link in a jail.
type Link struct{ Path, Target string }

// File is a small file in a jail.
type File struct{ Path, Content string }

// Tmpfs is a writable file system in memory.
type Tmpfs struct{ Path, Options string }

// Rule is one Landlock rule: Access below Path.
type Rule struct {
	Path   string
	Access uint64
}

// Landlock describes the domain that every exec gets; without any handled right
// or scope there is none.
type Landlock struct {
	FS, Net, Scoped uint64
	Rules           []Rule
}

// Rlimit is one resource limit.
type Rlimit struct {
	Resource   uint32
	Soft, Hard uint64
}

// Config describes a jail and how each exec in it is confined. It holds no
// value and nothing of the host's environment.
type Config struct {
	// Jail: build a private root from the fields below, as PID 1 of fresh
	// namespaces. Without it the supervisor runs one exec where it is.
	Jail bool
	// Loopback: bring lo up in the fresh network namespace.
	Loopback bool
	Hostname string
	// TagExecs: give each exec a UTS namespace of its own, which is how the
	// supervisor knows what belongs to it.
	TagExecs bool
	IDs      IDMode
	UID, GID uint32
	// HostUID and HostGID are the supervisor's own, for IDMapSelf.
	HostUID, HostGID uint32
	Mounts           []Mount
	Links            []Link
	Files            []File
	Tmpfs            []Tmpfs
	// Masked files read as empty.
	Masked []string
	// Root is where the workspace is; its directory is handed to the host.
	Root     string
	Landlock Landlock
	Rlimits  []Rlimit
	// PIDs is the largest number of processes and threads of the workload: 0 is
	// no limit. The supervisor's own do not count.
	PIDs uint64
	// Seccomp is the program every exec runs under: struct sock_filter records.
	// Empty: none.
	Seccomp []byte
	// Unconfined leaves capabilities and no-new-privileges alone.
	Unconfined bool
	// User is "user" or "user:group", names or numbers, for IDUser; "" is root.
	User string
	// Keep are the capabilities (bit n is capability n) that a command of root
	// keeps; others have none.
	Keep uint64
}

// MarshalBinary encodes c.
func (c *Config) MarshalBinary() ([]byte, error) {
	var e enc
	e.bool(c.Jail)
	e.bool(c.Loopback)
	e.str(c.Hostname)
	e.bool(c.TagExecs)
	e.u32(uint32(c.IDs))
	e.u32(c.UID)
	e.u32(c.GID)
	e.u32(c.HostUID)
	e.u32(c.HostGID)
	e.u32(uint32(len(c.Mounts)))
	for _, m := range c.Mounts {
		e.str(m.Source)
		e.str(m.Target)
		e.bool(m.ReadOnly)
		e.bool(m.NoDev)
		e.bool(m.Optional)
		e.bool(m.Passed)
	}
	e.u32(uint32(len(c.Links)))
	for _, l := range c.Links {
		e.str(l.Path)
		e.str(l.Target)
	}
	e.u32(uint32(len(c.Files)))
	for _, f := range c.Files {
		e.str(f.Path)
		e.str(f.Content)
	}
	e.u32(uint32(len(c.Tmpfs)))
	for _, t := range c.Tmpfs {
		e.str(t.Path)
		e.str(t.Options)
	}
	e.u32(uint32(len(c.Masked)))
	for _, m := range c.Masked {
		e.str(m)
	}
	e.str(c.Root)
	e.u64(c.Landlock.FS)
	e.u64(c.Landlock.Net)
	e.u64(c.Landlock.Scoped)
	e.u32(uint32(len(c.Landlock.Rules)))
	for _, r := range c.Landlock.Rules {
		e.str(r.Path)
		e.u64(r.Access)
	}
	e.u32(uint32(len(c.Rlimits)))
	for _, r := range c.Rlimits {
		e.u32(r.Resource)
		e.u64(r.Soft)
		e.u64(r.Hard)
	}
	e.u64(c.PIDs)
	e.str(string(c.Seccomp))
	e.bool(c.Unconfined)
	e.str(c.User)
	e.u64(c.Keep)
	return e.b, nil
}

// UnmarshalBinary decodes what MarshalBinary wrote; anything else is
// ErrProtocol.
func (c *Config) UnmarshalBinary(p []byte) error {
	d := dec{b: p}
	*c = Config{
		Jail:     d.bool(),
		Loopback: d.bool(),
		Hostname: d.str(),
		TagExecs: d.bool(),
		IDs:      IDMode(d.u32()),
		UID:      d.u32(),
		GID:      d.u32(),
		HostUID:  d.u32(),
		HostGID:  d.u32(),
	}
	for range d.count(12) {
		c.Mounts = append(c.Mounts, Mount{d.str(), d.str(), d.bool(), d.bool(), d.bool(), d.bool()})
	}
	for range d.count(8) {
		c.Links = append(c.Links, Link{d.str(), d.str()})
	}
	for range d.count(8) {
		c.Files = append(c.Files, File{d.str(), d.str()})
	}
	for range d.count(8) {
		c.Tmpfs = append(c.Tmpfs, Tmpfs{d.str(), d.str()})
	}
	for range d.count(4) {
		c.Masked = append(c.Masked, d.str())
	}
	c.Root = d.str()
	c.Landlock.FS, c.Landlock.Net, c.Landlock.Scoped = d.u64(), d.u64(), d.u64()
	for range d.count(12) {
		c.Landlock.Rules = append(c.Landlock.Rules, Rule{d.str(), d.u64()})
	}
	for range d.count(20) {
		c.Rlimits = append(c.Rlimits, Rlimit{d.u32(), d.u64(), d.u64()})
	}
	c.PIDs = d.u64()
	c.Seccomp = []byte(d.str())
	c.Unconfined = d.bool()
	c.User = d.str()
	c.Keep = d.u64()
	if d.bad || len(d.b) != 0 || c.IDs > IDUser || len(c.User) > MaxUser || len(c.Seccomp)%8 != 0 {
		return ErrProtocol
	}
	return nil
}

type enc struct{ b []byte }

func (e *enc) u32(v uint32) { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *enc) u64(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *enc) str(s string) { e.u32(uint32(len(s))); e.b = append(e.b, s...) }
func (e *enc) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
		return
	}
	e.b = append(e.b, 0)
}

// dec reads a record; after the first fault everything is zero and bad is set.
type dec struct {
	b   []byte
	bad bool
}

func (d *dec) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.b) {
		d.bad = true
		return nil
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

func (d *dec) u32() uint32 {
	if p := d.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (d *dec) u64() uint64 {
	if p := d.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

func (d *dec) str() string { return string(d.take(int(d.u32()))) }

func (d *dec) bool() bool {
	p := d.take(1)
	if p == nil {
		return false
	}
	if p[0] > 1 {
		d.bad = true
	}
	return p[0] == 1
}

// count reads a number of records that each take at least size bytes, so that
// a lie cannot make the reader loop or allocate.
func (d *dec) count(size int) int {
	n := int(d.u32())
	if n < 0 || n > len(d.b)/size {
		d.bad = true
		return 0
	}
	return n
}
