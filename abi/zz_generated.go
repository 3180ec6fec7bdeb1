// Code generated from schema.json by abi/internal/gen. DO NOT EDIT.

package abi

import "strconv"

// Operations.
const (
	OpCreate  Op = 1
	OpStatus  Op = 2
	OpExec    Op = 3
	OpInput   Op = 4
	OpResize  Op = 5
	OpSignal  Op = 6
	OpRead    Op = 7
	OpWrite   Op = 8
	OpListDir Op = 9
	OpStat    Op = 10
	OpRemove  Op = 11
	OpMkdir   Op = 12
	OpPause   Op = 13
	OpResume  Op = 14
	OpDestroy Op = 15
	OpList    Op = 16
	OpPort    Op = 17
)

var opNames = map[Op]string{
	OpCreate:  "create",
	OpStatus:  "status",
	OpExec:    "exec",
	OpInput:   "input",
	OpResize:  "resize",
	OpSignal:  "signal",
	OpRead:    "read",
	OpWrite:   "write",
	OpListDir: "list_dir",
	OpStat:    "stat",
	OpRemove:  "remove",
	OpMkdir:   "mkdir",
	OpPause:   "pause",
	OpResume:  "resume",
	OpDestroy: "destroy",
	OpList:    "list",
	OpPort:    "port",
}

// Errnos.
const (
	// ErrnoBadf: Unknown, stale, replayed or foreign handle.
	ErrnoBadf Errno = -1
	// ErrnoAgain: Not now; try again later.
	ErrnoAgain Errno = -2
	// ErrnoCanceled: The caller gave up.
	ErrnoCanceled Errno = -3
	// ErrnoDeadline: The call's deadline passed.
	ErrnoDeadline Errno = -4
	// ErrnoTooLarge: Over a size limit, or the buffer is too small.
	ErrnoTooLarge Errno = -5
	// ErrnoNoCapture: A token this route needs was not captured or was refused; call a capturing route again.
	ErrnoNoCapture Errno = -6
	// ErrnoTruncated: The stream ended without its proper end.
	ErrnoTruncated Errno = -7
	// ErrnoDenied: The approved manifest does not allow it.
	ErrnoDenied Errno = -8
	// ErrnoNetwork: No answer: DNS, connect, TLS or transport failed.
	ErrnoNetwork Errno = -9
	// ErrnoInvalid: A malformed argument or document.
	ErrnoInvalid Errno = -10
	// ErrnoNotFound: No such header or item.
	ErrnoNotFound Errno = -11
	// ErrnoUnsupported: Not available in this phase or kind of plugin.
	ErrnoUnsupported Errno = -12
	// ErrnoLimit: A count limit was reached.
	ErrnoLimit Errno = -13
	// ErrnoState: Not in this state.
	ErrnoState Errno = -14
	// ErrnoIo: The caller's stream failed.
	ErrnoIo Errno = -15
	// ErrnoEnd: No more frames.
	ErrnoEnd Errno = -16
)

var errnoNames = map[Errno]string{
	ErrnoBadf:        "E_BADF",
	ErrnoAgain:       "E_AGAIN",
	ErrnoCanceled:    "E_CANCELED",
	ErrnoDeadline:    "E_DEADLINE",
	ErrnoTooLarge:    "E_TOO_LARGE",
	ErrnoNoCapture:   "E_NO_CAPTURE",
	ErrnoTruncated:   "E_TRUNCATED",
	ErrnoDenied:      "E_DENIED",
	ErrnoNetwork:     "E_NETWORK",
	ErrnoInvalid:     "E_INVALID",
	ErrnoNotFound:    "E_NOT_FOUND",
	ErrnoUnsupported: "E_UNSUPPORTED",
	ErrnoLimit:       "E_LIMIT",
	ErrnoState:       "E_STATE",
	ErrnoIo:          "E_IO",
	ErrnoEnd:         "E_END",
}

// Limits.
const (
	// MaxInput: Bytes of a request document.
	MaxInput = 1048576
	// MaxOutput: Bytes of a reply document.
	MaxOutput = 1048576
	// MaxErrorDocument: Bytes of an error document.
	MaxErrorDocument = 65536
	// MaxRef: Bytes of a checkpointed reference.
	MaxRef = 65536
	// MaxMeta: Bytes of an http_open meta document.
	MaxMeta = 1048576
	// MaxHTTPRequest: Bytes of a request body; file content streams and is not counted.
	MaxHTTPRequest = 1048576
	// MaxHTTPResponse: Bytes of a complete response body.
	MaxHTTPResponse = 8388608
	// MaxLogPerCall: Bytes of log per call.
	MaxLogPerCall = 65536
	// MaxHandles: Open response handles per call.
	MaxHandles = 64
	// DefaultMemory: Bytes of linear memory.
	DefaultMemory = 33554432
	// DefaultTable: Table elements.
	DefaultTable = 65536
	// DefaultWallMillis: Wall clock per call; exec has its own deadline.
	DefaultWallMillis = 30000
)

// Import is one function of the import module.
type Import struct {
	Name            string
	Params, Results []string // value types
}

// Imports lists every function a plugin may import from Module.
func Imports() []Import {
	return []Import{
		{"in_len", nil, []string{"i32"}},
		{"in_read", []string{"i32", "i32", "i32"}, []string{"i32"}},
		{"out_write", []string{"i32", "i32"}, []string{"i32"}},
		{"err_write", []string{"i32", "i32"}, []string{"i32"}},
		{"checkpoint", []string{"i32", "i32", "i32"}, []string{"i32"}},
		{"http_open", []string{"i32", "i32", "i32", "i32"}, []string{"i64"}},
		{"http_status", []string{"i64"}, []string{"i32"}},
		{"http_header", []string{"i64", "i32", "i32", "i32", "i32"}, []string{"i32"}},
		{"http_read", []string{"i64", "i32", "i32"}, []string{"i32"}},
		{"http_next", []string{"i64", "i32", "i32"}, []string{"i32"}},
		{"http_close", []string{"i64"}, []string{"i32"}},
		{"emit", []string{"i32", "i32", "i32"}, []string{"i32"}},
		{"log", []string{"i32", "i32", "i32"}, []string{"i32"}},
		{"sleep_ms", []string{"i32"}, []string{"i32"}},
		{"now_ms", nil, []string{"i64"}},
		{"random", []string{"i32", "i32"}, []string{"i32"}},
		{"canceled", nil, []string{"i32"}},
	}
}

// Empty: Document of the wire contract.
type Empty struct {
}

// AppendJSON appends the document to b.
func (v *Empty) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *Empty) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = Empty{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *Empty) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	return nil
}

// EnvHandle: The environment as a plugin sees it: an opaque handle and the destination names.
type EnvHandle struct {
	Handle string
	Names  []string
}

// AppendJSON appends the document to b.
func (v *EnvHandle) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"handle":`...)
	b = AppendString(b, v.Handle)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"names":`...)
	b = appendStrings(b, v.Names)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *EnvHandle) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = EnvHandle{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *EnvHandle) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "handle":
			bit = 1 << 0
			if v.Handle, err = d.string(); err != nil {
				return in(err, "handle")
			}
		case "names":
			bit = 1 << 1
			if v.Names, err = d.strings(); err != nil {
				return in(err, "names")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&3 != 3 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "handle")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "names")
		}
	}
	return nil
}

// Resources: Document of the wire contract.
type Resources struct {
	CPUs      float64
	MemoryMiB int64
	DiskMiB   int64
}

// AppendJSON appends the document to b.
func (v *Resources) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"cpus":`...)
	b = appendFloat(b, v.CPUs)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"memoryMiB":`...)
	b = strconv.AppendInt(b, v.MemoryMiB, 10)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"diskMiB":`...)
	b = strconv.AppendInt(b, v.DiskMiB, 10)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *Resources) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = Resources{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *Resources) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "cpus":
			bit = 1 << 0
			if v.CPUs, err = d.float(); err != nil {
				return in(err, "cpus")
			}
		case "memoryMiB":
			bit = 1 << 1
			if v.MemoryMiB, err = d.int(); err != nil {
				return in(err, "memoryMiB")
			}
		case "diskMiB":
			bit = 1 << 2
			if v.DiskMiB, err = d.int(); err != nil {
				return in(err, "diskMiB")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&7 != 7 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "cpus")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "memoryMiB")
		}
		if seen&(1<<2) == 0 {
			return in(d.fail("missing field"), "diskMiB")
		}
	}
	return nil
}

// CreateRequest: Document of the wire contract.
type CreateRequest struct {
	Session     string
	Config      Raw
	Ref         Raw    // optional.
	Sandbox     string // optional.
	Name        string
	Image       string // optional.
	Network     string
	Ports       []int64    // optional.
	TTLSeconds  int64      // optional.
	IdleSeconds int64      // optional.
	Resources   *Resources // optional.
	Env         EnvHandle
}

// AppendJSON appends the document to b.
func (v *CreateRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"name":`...)
	b = AppendString(b, v.Name)
	if v.Image != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"image":`...)
		b = AppendString(b, v.Image)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"network":`...)
	b = AppendString(b, v.Network)
	if len(v.Ports) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ports":`...)
		b = appendInts(b, v.Ports)
	}
	if v.TTLSeconds != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ttlSeconds":`...)
		b = strconv.AppendInt(b, v.TTLSeconds, 10)
	}
	if v.IdleSeconds != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"idleSeconds":`...)
		b = strconv.AppendInt(b, v.IdleSeconds, 10)
	}
	if v.Resources != nil {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"resources":`...)
		b = v.Resources.AppendJSON(b)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"env":`...)
	b = v.Env.AppendJSON(b)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *CreateRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = CreateRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *CreateRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "name":
			bit = 1 << 4
			if v.Name, err = d.string(); err != nil {
				return in(err, "name")
			}
		case "image":
			bit = 1 << 5
			if d.null() {
				break
			}
			if v.Image, err = d.string(); err != nil {
				return in(err, "image")
			}
		case "network":
			bit = 1 << 6
			if v.Network, err = d.string(); err != nil {
				return in(err, "network")
			}
		case "ports":
			bit = 1 << 7
			if d.null() {
				break
			}
			if v.Ports, err = d.ints(); err != nil {
				return in(err, "ports")
			}
		case "ttlSeconds":
			bit = 1 << 8
			if d.null() {
				break
			}
			if v.TTLSeconds, err = d.int(); err != nil {
				return in(err, "ttlSeconds")
			}
		case "idleSeconds":
			bit = 1 << 9
			if d.null() {
				break
			}
			if v.IdleSeconds, err = d.int(); err != nil {
				return in(err, "idleSeconds")
			}
		case "resources":
			bit = 1 << 10
			if d.null() {
				break
			}
			v.Resources = &Resources{}
			if err = v.Resources.decode(d); err != nil {
				return in(err, "resources")
			}
		case "env":
			bit = 1 << 11
			if err = v.Env.decode(d); err != nil {
				return in(err, "env")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&2131 != 2131 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "name")
		}
		if seen&(1<<6) == 0 {
			return in(d.fail("missing field"), "network")
		}
		if seen&(1<<11) == 0 {
			return in(d.fail("missing field"), "env")
		}
	}
	return nil
}

// CreateReply: Document of the wire contract.
type CreateReply struct {
	State  string // running or pending
	PollMs int64  // optional.
	Ref    Raw    // optional.
}

// AppendJSON appends the document to b.
func (v *CreateReply) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"state":`...)
	b = AppendString(b, v.State)
	if v.PollMs != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"pollMs":`...)
		b = strconv.AppendInt(b, v.PollMs, 10)
	}
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *CreateReply) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = CreateReply{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *CreateReply) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "state":
			bit = 1 << 0
			if v.State, err = d.string(); err != nil {
				return in(err, "state")
			}
		case "pollMs":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.PollMs, err = d.int(); err != nil {
				return in(err, "pollMs")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "state")
		}
	}
	return nil
}

// StatusRequest: Document of the wire contract.
type StatusRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
}

// AppendJSON appends the document to b.
func (v *StatusRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *StatusRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = StatusRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *StatusRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&3 != 3 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
	}
	return nil
}

// StatusReply: Document of the wire contract.
type StatusReply struct {
	State  string
	Reason string // optional.
	PollMs int64  // optional.
	Ref    Raw    // optional.
}

// AppendJSON appends the document to b.
func (v *StatusReply) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"state":`...)
	b = AppendString(b, v.State)
	if v.Reason != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"reason":`...)
		b = AppendString(b, v.Reason)
	}
	if v.PollMs != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"pollMs":`...)
		b = strconv.AppendInt(b, v.PollMs, 10)
	}
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *StatusReply) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = StatusReply{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *StatusReply) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "state":
			bit = 1 << 0
			if v.State, err = d.string(); err != nil {
				return in(err, "state")
			}
		case "reason":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.Reason, err = d.string(); err != nil {
				return in(err, "reason")
			}
		case "pollMs":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.PollMs, err = d.int(); err != nil {
				return in(err, "pollMs")
			}
		case "ref":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "state")
		}
	}
	return nil
}

// Exec: Document of the wire contract.
type Exec struct {
	ID        string
	Ref       Raw        // optional.
	TTY       bool       // optional.
	Cols      int64      // optional.
	Rows      int64      // optional.
	Stdin     string     // optional.
	TimeoutMs int64      // optional.
	Args      []string   // optional. plugin-driven only
	Shell     string     // optional. plugin-driven only
	Dir       string     // optional. plugin-driven only
	User      string     // optional. plugin-driven only
	Env       *EnvHandle // optional. plugin-driven only
}

// AppendJSON appends the document to b.
func (v *Exec) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"id":`...)
	b = AppendString(b, v.ID)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.TTY {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"tty":`...)
		b = strconv.AppendBool(b, v.TTY)
	}
	if v.Cols != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"cols":`...)
		b = strconv.AppendInt(b, v.Cols, 10)
	}
	if v.Rows != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"rows":`...)
		b = strconv.AppendInt(b, v.Rows, 10)
	}
	if v.Stdin != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"stdin":`...)
		b = AppendString(b, v.Stdin)
	}
	if v.TimeoutMs != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"timeoutMs":`...)
		b = strconv.AppendInt(b, v.TimeoutMs, 10)
	}
	if len(v.Args) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"args":`...)
		b = appendStrings(b, v.Args)
	}
	if v.Shell != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"shell":`...)
		b = AppendString(b, v.Shell)
	}
	if v.Dir != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"dir":`...)
		b = AppendString(b, v.Dir)
	}
	if v.User != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"user":`...)
		b = AppendString(b, v.User)
	}
	if v.Env != nil {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"env":`...)
		b = v.Env.AppendJSON(b)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *Exec) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = Exec{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *Exec) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "id":
			bit = 1 << 0
			if v.ID, err = d.string(); err != nil {
				return in(err, "id")
			}
		case "ref":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "tty":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.TTY, err = d.bool(); err != nil {
				return in(err, "tty")
			}
		case "cols":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Cols, err = d.int(); err != nil {
				return in(err, "cols")
			}
		case "rows":
			bit = 1 << 4
			if d.null() {
				break
			}
			if v.Rows, err = d.int(); err != nil {
				return in(err, "rows")
			}
		case "stdin":
			bit = 1 << 5
			if d.null() {
				break
			}
			if v.Stdin, err = d.string(); err != nil {
				return in(err, "stdin")
			}
		case "timeoutMs":
			bit = 1 << 6
			if d.null() {
				break
			}
			if v.TimeoutMs, err = d.int(); err != nil {
				return in(err, "timeoutMs")
			}
		case "args":
			bit = 1 << 7
			if d.null() {
				break
			}
			if v.Args, err = d.strings(); err != nil {
				return in(err, "args")
			}
		case "shell":
			bit = 1 << 8
			if d.null() {
				break
			}
			if v.Shell, err = d.string(); err != nil {
				return in(err, "shell")
			}
		case "dir":
			bit = 1 << 9
			if d.null() {
				break
			}
			if v.Dir, err = d.string(); err != nil {
				return in(err, "dir")
			}
		case "user":
			bit = 1 << 10
			if d.null() {
				break
			}
			if v.User, err = d.string(); err != nil {
				return in(err, "user")
			}
		case "env":
			bit = 1 << 11
			if d.null() {
				break
			}
			v.Env = &EnvHandle{}
			if err = v.Env.decode(d); err != nil {
				return in(err, "env")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "id")
		}
	}
	return nil
}

// ExecRequest: Document of the wire contract.
type ExecRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
	Exec    Exec
}

// AppendJSON appends the document to b.
func (v *ExecRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"exec":`...)
	b = v.Exec.AppendJSON(b)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *ExecRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = ExecRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *ExecRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "exec":
			bit = 1 << 4
			if err = v.Exec.decode(d); err != nil {
				return in(err, "exec")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&19 != 19 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "exec")
		}
	}
	return nil
}

// ExecReply: Document of the wire contract.
type ExecReply struct {
	Status   string // exited, signaled, timed_out, killed or lost
	ExitCode int64  // optional.
	Signal   string // optional.
}

// AppendJSON appends the document to b.
func (v *ExecReply) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"status":`...)
	b = AppendString(b, v.Status)
	if v.ExitCode != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"exitCode":`...)
		b = strconv.AppendInt(b, v.ExitCode, 10)
	}
	if v.Signal != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"signal":`...)
		b = AppendString(b, v.Signal)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *ExecReply) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = ExecReply{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *ExecReply) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "status":
			bit = 1 << 0
			if v.Status, err = d.string(); err != nil {
				return in(err, "status")
			}
		case "exitCode":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.ExitCode, err = d.int(); err != nil {
				return in(err, "exitCode")
			}
		case "signal":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Signal, err = d.string(); err != nil {
				return in(err, "signal")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "status")
		}
	}
	return nil
}

// InputRequest: Document of the wire contract.
type InputRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
	Exec    Exec
	EOF     bool // optional.
}

// AppendJSON appends the document to b.
func (v *InputRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"exec":`...)
	b = v.Exec.AppendJSON(b)
	if v.EOF {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"eof":`...)
		b = strconv.AppendBool(b, v.EOF)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *InputRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = InputRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *InputRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "exec":
			bit = 1 << 4
			if err = v.Exec.decode(d); err != nil {
				return in(err, "exec")
			}
		case "eof":
			bit = 1 << 5
			if d.null() {
				break
			}
			if v.EOF, err = d.bool(); err != nil {
				return in(err, "eof")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&19 != 19 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "exec")
		}
	}
	return nil
}

// ResizeRequest: Document of the wire contract.
type ResizeRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
	Exec    Exec
	Cols    int64
	Rows    int64
}

// AppendJSON appends the document to b.
func (v *ResizeRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"exec":`...)
	b = v.Exec.AppendJSON(b)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"cols":`...)
	b = strconv.AppendInt(b, v.Cols, 10)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"rows":`...)
	b = strconv.AppendInt(b, v.Rows, 10)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *ResizeRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = ResizeRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *ResizeRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "exec":
			bit = 1 << 4
			if err = v.Exec.decode(d); err != nil {
				return in(err, "exec")
			}
		case "cols":
			bit = 1 << 5
			if v.Cols, err = d.int(); err != nil {
				return in(err, "cols")
			}
		case "rows":
			bit = 1 << 6
			if v.Rows, err = d.int(); err != nil {
				return in(err, "rows")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&115 != 115 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "exec")
		}
		if seen&(1<<5) == 0 {
			return in(d.fail("missing field"), "cols")
		}
		if seen&(1<<6) == 0 {
			return in(d.fail("missing field"), "rows")
		}
	}
	return nil
}

// SignalRequest: Document of the wire contract.
type SignalRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
	Exec    Exec
	Signal  string // TERM, KILL, INT … without SIG
}

// AppendJSON appends the document to b.
func (v *SignalRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"exec":`...)
	b = v.Exec.AppendJSON(b)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"signal":`...)
	b = AppendString(b, v.Signal)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *SignalRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = SignalRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *SignalRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "exec":
			bit = 1 << 4
			if err = v.Exec.decode(d); err != nil {
				return in(err, "exec")
			}
		case "signal":
			bit = 1 << 5
			if v.Signal, err = d.string(); err != nil {
				return in(err, "signal")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&51 != 51 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "exec")
		}
		if seen&(1<<5) == 0 {
			return in(d.fail("missing field"), "signal")
		}
	}
	return nil
}

// PathRequest: Document of the wire contract.
type PathRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
	Path    string
}

// AppendJSON appends the document to b.
func (v *PathRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"path":`...)
	b = AppendString(b, v.Path)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *PathRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = PathRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *PathRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "path":
			bit = 1 << 4
			if v.Path, err = d.string(); err != nil {
				return in(err, "path")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&19 != 19 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "path")
		}
	}
	return nil
}

// WriteRequest: Document of the wire contract.
type WriteRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
	Path    string
	Mode    int64 // optional.
	Size    int64 // -1 unknown
}

// AppendJSON appends the document to b.
func (v *WriteRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"path":`...)
	b = AppendString(b, v.Path)
	if v.Mode != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"mode":`...)
		b = strconv.AppendInt(b, v.Mode, 10)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"size":`...)
	b = strconv.AppendInt(b, v.Size, 10)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *WriteRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = WriteRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *WriteRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "path":
			bit = 1 << 4
			if v.Path, err = d.string(); err != nil {
				return in(err, "path")
			}
		case "mode":
			bit = 1 << 5
			if d.null() {
				break
			}
			if v.Mode, err = d.int(); err != nil {
				return in(err, "mode")
			}
		case "size":
			bit = 1 << 6
			if v.Size, err = d.int(); err != nil {
				return in(err, "size")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&83 != 83 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "path")
		}
		if seen&(1<<6) == 0 {
			return in(d.fail("missing field"), "size")
		}
	}
	return nil
}

// RemoveRequest: Document of the wire contract.
type RemoveRequest struct {
	Session   string
	Config    Raw
	Ref       Raw    // optional.
	Sandbox   string // optional.
	Path      string
	Recursive bool // optional.
}

// AppendJSON appends the document to b.
func (v *RemoveRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"path":`...)
	b = AppendString(b, v.Path)
	if v.Recursive {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"recursive":`...)
		b = strconv.AppendBool(b, v.Recursive)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *RemoveRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = RemoveRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *RemoveRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "path":
			bit = 1 << 4
			if v.Path, err = d.string(); err != nil {
				return in(err, "path")
			}
		case "recursive":
			bit = 1 << 5
			if d.null() {
				break
			}
			if v.Recursive, err = d.bool(); err != nil {
				return in(err, "recursive")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&19 != 19 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "path")
		}
	}
	return nil
}

// MkdirRequest: Document of the wire contract.
type MkdirRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
	Path    string
	Mode    int64 // optional.
}

// AppendJSON appends the document to b.
func (v *MkdirRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"path":`...)
	b = AppendString(b, v.Path)
	if v.Mode != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"mode":`...)
		b = strconv.AppendInt(b, v.Mode, 10)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *MkdirRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = MkdirRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *MkdirRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "path":
			bit = 1 << 4
			if v.Path, err = d.string(); err != nil {
				return in(err, "path")
			}
		case "mode":
			bit = 1 << 5
			if d.null() {
				break
			}
			if v.Mode, err = d.int(); err != nil {
				return in(err, "mode")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&19 != 19 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "path")
		}
	}
	return nil
}

// Entry: Document of the wire contract.
type Entry struct {
	Name    string
	Type    string // file, dir, symlink or other
	Size    int64  // optional.
	Mode    int64  // optional.
	ModTime int64  // optional. Unix seconds
	Target  string // optional.
}

// AppendJSON appends the document to b.
func (v *Entry) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"name":`...)
	b = AppendString(b, v.Name)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"type":`...)
	b = AppendString(b, v.Type)
	if v.Size != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"size":`...)
		b = strconv.AppendInt(b, v.Size, 10)
	}
	if v.Mode != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"mode":`...)
		b = strconv.AppendInt(b, v.Mode, 10)
	}
	if v.ModTime != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"modTime":`...)
		b = strconv.AppendInt(b, v.ModTime, 10)
	}
	if v.Target != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"target":`...)
		b = AppendString(b, v.Target)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *Entry) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = Entry{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *Entry) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "name":
			bit = 1 << 0
			if v.Name, err = d.string(); err != nil {
				return in(err, "name")
			}
		case "type":
			bit = 1 << 1
			if v.Type, err = d.string(); err != nil {
				return in(err, "type")
			}
		case "size":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Size, err = d.int(); err != nil {
				return in(err, "size")
			}
		case "mode":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Mode, err = d.int(); err != nil {
				return in(err, "mode")
			}
		case "modTime":
			bit = 1 << 4
			if d.null() {
				break
			}
			if v.ModTime, err = d.int(); err != nil {
				return in(err, "modTime")
			}
		case "target":
			bit = 1 << 5
			if d.null() {
				break
			}
			if v.Target, err = d.string(); err != nil {
				return in(err, "target")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&3 != 3 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "name")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "type")
		}
	}
	return nil
}

// ReadReply: Document of the wire contract.
type ReadReply struct {
	Size int64 // optional.
	Mode int64 // optional.
}

// AppendJSON appends the document to b.
func (v *ReadReply) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if v.Size != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"size":`...)
		b = strconv.AppendInt(b, v.Size, 10)
	}
	if v.Mode != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"mode":`...)
		b = strconv.AppendInt(b, v.Mode, 10)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *ReadReply) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = ReadReply{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *ReadReply) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "size":
			bit = 1 << 0
			if d.null() {
				break
			}
			if v.Size, err = d.int(); err != nil {
				return in(err, "size")
			}
		case "mode":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.Mode, err = d.int(); err != nil {
				return in(err, "mode")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	return nil
}

// ListDirReply: Document of the wire contract.
type ListDirReply struct {
	Entries []Entry
}

// AppendJSON appends the document to b.
func (v *ListDirReply) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"entries":`...)
	b = append(b, '[')
	for i := range v.Entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.Entries[i].AppendJSON(b)
	}
	b = append(b, ']')
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *ListDirReply) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = ListDirReply{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *ListDirReply) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "entries":
			bit = 1 << 0
			v.Entries = []Entry{}
			moreItems, ierr := d.begin('[', ']')
			for ; moreItems && ierr == nil; moreItems, ierr = d.next(']') {
				var item Entry
				if ierr = item.decode(d); ierr != nil {
					return in(inIndex(ierr, len(v.Entries)), "entries")
				}
				v.Entries = append(v.Entries, item)
			}
			if err = ierr; err != nil {
				return in(err, "entries")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "entries")
		}
	}
	return nil
}

// StatReply: Document of the wire contract.
type StatReply struct {
	Entry Entry
}

// AppendJSON appends the document to b.
func (v *StatReply) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"entry":`...)
	b = v.Entry.AppendJSON(b)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *StatReply) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = StatReply{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *StatReply) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "entry":
			bit = 1 << 0
			if err = v.Entry.decode(d); err != nil {
				return in(err, "entry")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "entry")
		}
	}
	return nil
}

// ListRequest: Document of the wire contract.
type ListRequest struct {
	Config  Raw
	Owner   string // optional.
	Session string // optional.
}

// AppendJSON appends the document to b.
func (v *ListRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if v.Owner != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"owner":`...)
		b = AppendString(b, v.Owner)
	}
	if v.Session != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"session":`...)
		b = AppendString(b, v.Session)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *ListRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = ListRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *ListRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "config":
			bit = 1 << 0
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "owner":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.Owner, err = d.string(); err != nil {
				return in(err, "owner")
			}
		case "session":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "config")
		}
	}
	return nil
}

// Item: Document of the wire contract.
type Item struct {
	Sandbox   string
	Name      string            // optional.
	Labels    map[string]string // optional.
	State     string
	CreatedAt int64 // optional. Unix seconds
}

// AppendJSON appends the document to b.
func (v *Item) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"sandbox":`...)
	b = AppendString(b, v.Sandbox)
	if v.Name != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"name":`...)
		b = AppendString(b, v.Name)
	}
	if len(v.Labels) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"labels":`...)
		b = appendStringMap(b, v.Labels)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"state":`...)
	b = AppendString(b, v.State)
	if v.CreatedAt != 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"createdAt":`...)
		b = strconv.AppendInt(b, v.CreatedAt, 10)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *Item) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = Item{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *Item) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "sandbox":
			bit = 1 << 0
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "name":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.Name, err = d.string(); err != nil {
				return in(err, "name")
			}
		case "labels":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Labels, err = d.stringMap(); err != nil {
				return in(err, "labels")
			}
		case "state":
			bit = 1 << 3
			if v.State, err = d.string(); err != nil {
				return in(err, "state")
			}
		case "createdAt":
			bit = 1 << 4
			if d.null() {
				break
			}
			if v.CreatedAt, err = d.int(); err != nil {
				return in(err, "createdAt")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&9 != 9 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "sandbox")
		}
		if seen&(1<<3) == 0 {
			return in(d.fail("missing field"), "state")
		}
	}
	return nil
}

// ListReply: Document of the wire contract.
type ListReply struct {
	Items []Item
}

// AppendJSON appends the document to b.
func (v *ListReply) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"items":`...)
	b = append(b, '[')
	for i := range v.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.Items[i].AppendJSON(b)
	}
	b = append(b, ']')
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *ListReply) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = ListReply{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *ListReply) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "items":
			bit = 1 << 0
			v.Items = []Item{}
			moreItems, ierr := d.begin('[', ']')
			for ; moreItems && ierr == nil; moreItems, ierr = d.next(']') {
				var item Item
				if ierr = item.decode(d); ierr != nil {
					return in(inIndex(ierr, len(v.Items)), "items")
				}
				v.Items = append(v.Items, item)
			}
			if err = ierr; err != nil {
				return in(err, "items")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "items")
		}
	}
	return nil
}

// PortRequest: Document of the wire contract.
type PortRequest struct {
	Session string
	Config  Raw
	Ref     Raw    // optional.
	Sandbox string // optional.
	Port    int64
}

// AppendJSON appends the document to b.
func (v *PortRequest) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"session":`...)
	b = AppendString(b, v.Session)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"config":`...)
	b = appendRaw(b, v.Config)
	if len(v.Ref) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"ref":`...)
		b = appendRaw(b, v.Ref)
	}
	if v.Sandbox != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"sandbox":`...)
		b = AppendString(b, v.Sandbox)
	}
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"port":`...)
	b = strconv.AppendInt(b, v.Port, 10)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *PortRequest) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = PortRequest{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *PortRequest) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "session":
			bit = 1 << 0
			if v.Session, err = d.string(); err != nil {
				return in(err, "session")
			}
		case "config":
			bit = 1 << 1
			if v.Config, err = d.raw(); err != nil {
				return in(err, "config")
			}
		case "ref":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Ref, err = d.raw(); err != nil {
				return in(err, "ref")
			}
		case "sandbox":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Sandbox, err = d.string(); err != nil {
				return in(err, "sandbox")
			}
		case "port":
			bit = 1 << 4
			if v.Port, err = d.int(); err != nil {
				return in(err, "port")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&19 != 19 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "session")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "config")
		}
		if seen&(1<<4) == 0 {
			return in(d.fail("missing field"), "port")
		}
	}
	return nil
}

// PortReply: Document of the wire contract.
type PortReply struct {
	Address string
	Secret  bool // optional.
}

// AppendJSON appends the document to b.
func (v *PortReply) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"address":`...)
	b = AppendString(b, v.Address)
	if v.Secret {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"secret":`...)
		b = strconv.AppendBool(b, v.Secret)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *PortReply) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = PortReply{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *PortReply) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "address":
			bit = 1 << 0
			if v.Address, err = d.string(); err != nil {
				return in(err, "address")
			}
		case "secret":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.Secret, err = d.bool(); err != nil {
				return in(err, "secret")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "address")
		}
	}
	return nil
}

// HTTPMeta: Document of the wire contract.
type HTTPMeta struct {
	Route  string
	Params map[string]string // optional.
	Query  map[string]string // optional.
	Free   Raw               // optional. Object of JSON pointer to value, for the route's free fields.
	Env    string            // optional. plugin-driven only: the handle
}

// AppendJSON appends the document to b.
func (v *HTTPMeta) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"route":`...)
	b = AppendString(b, v.Route)
	if len(v.Params) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"params":`...)
		b = appendStringMap(b, v.Params)
	}
	if len(v.Query) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"query":`...)
		b = appendStringMap(b, v.Query)
	}
	if len(v.Free) > 0 {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"free":`...)
		b = appendRaw(b, v.Free)
	}
	if v.Env != "" {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, `"env":`...)
		b = AppendString(b, v.Env)
	}
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *HTTPMeta) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = HTTPMeta{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *HTTPMeta) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "route":
			bit = 1 << 0
			if v.Route, err = d.string(); err != nil {
				return in(err, "route")
			}
		case "params":
			bit = 1 << 1
			if d.null() {
				break
			}
			if v.Params, err = d.stringMap(); err != nil {
				return in(err, "params")
			}
		case "query":
			bit = 1 << 2
			if d.null() {
				break
			}
			if v.Query, err = d.stringMap(); err != nil {
				return in(err, "query")
			}
		case "free":
			bit = 1 << 3
			if d.null() {
				break
			}
			if v.Free, err = d.raw(); err != nil {
				return in(err, "free")
			}
		case "env":
			bit = 1 << 4
			if d.null() {
				break
			}
			if v.Env, err = d.string(); err != nil {
				return in(err, "env")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&1 != 1 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "route")
		}
	}
	return nil
}

// ErrorDocument: Document of the wire contract.
type ErrorDocument struct {
	Code    string // A provider code, for example NotFound.
	Message string
}

// AppendJSON appends the document to b.
func (v *ErrorDocument) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	first := true
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"code":`...)
	b = AppendString(b, v.Code)
	if !first {
		b = append(b, ',')
	}
	first = false
	b = append(b, `"message":`...)
	b = AppendString(b, v.Message)
	_ = first
	return append(b, '}')
}

// DecodeJSON replaces v by the document in data. With strict set, unknown and
// missing fields are refused; duplicates of declared fields and trailing data
// always are. The error is a *SyntaxError.
func (v *ErrorDocument) DecodeJSON(data []byte, strict bool) error {
	d := newDecoder(data, strict)
	*v = ErrorDocument{}
	if err := v.decode(&d); err != nil {
		return err
	}
	return d.end()
}

func (v *ErrorDocument) decode(d *decoder) error {
	var seen uint32
	more, err := d.begin('{', '}')
	for ; more && err == nil; more, err = d.next('}') {
		var key []byte
		if key, err = d.key(); err != nil {
			return err
		}
		var bit uint32
		switch string(key) {
		case "code":
			bit = 1 << 0
			if v.Code, err = d.string(); err != nil {
				return in(err, "code")
			}
		case "message":
			bit = 1 << 1
			if v.Message, err = d.string(); err != nil {
				return in(err, "message")
			}
		default:
			err = d.unknown()
		}
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return d.fail("duplicate field")
		}
		seen |= bit
	}
	if err != nil {
		return err
	}
	if d.strict && seen&3 != 3 {
		if seen&(1<<0) == 0 {
			return in(d.fail("missing field"), "code")
		}
		if seen&(1<<1) == 0 {
			return in(d.fail("missing field"), "message")
		}
	}
	return nil
}
