package daytonatest

import (
	"net/http"
	"time"
)

// RecordKind says what a Record is.
type RecordKind string

const (
	RecordSandbox  RecordKind = "sandbox"  // the object, as GET shows it; kept after deletion
	RecordListItem RecordKind = "list"     // the object, as the list shows it
	RecordEvent    RecordKind = "event"    // what the event socket would have sent to the whole organization
	RecordAnswer   RecordKind = "answer"   // each answer of the control API
	RecordSession  RecordKind = "session"  // a session with its commands
	RecordPTY      RecordKind = "pty"      // an entry of the PTY list
	RecordFile     RecordKind = "file"     // a file the daemon wrote: its log, session scripts and logs
	RecordSnapshot RecordKind = "snapshot" // a snapshot with the environment that is baked in
	RecordBuildLog RecordKind = "buildlog"
	RecordHeader   RecordKind = "header" // request line and headers, as the proxy's log keeps them; the key left out
	RecordPreview  RecordKind = "preview"
	RecordArgv     RecordKind = "argv" // argument lists of processes started, as ps shows them
)

// Record is one thing that the service stored or published.
type Record struct {
	Kind    RecordKind
	Sandbox string // id, or ""
	Name    string // what it is: a path, a command id, an operation
	Data    []byte
}

// Request is one line of the log.
type Request struct {
	Time    time.Time
	Op      Op
	Sandbox string // id, when it is known
	Method  string
	Path    string
	Query   string
	Header  http.Header // a copy; the key is replaced by "KEY"
	// Chunked says that the body came without a Content-Length.
	Chunked bool
	// Authorized says that the request carried the valid key.
	Authorized bool
	Status     int    // 0 when it got no answer
	Fault      Kind   // "" when none
	Body       []byte // with Options.KeepBodies only, like Reply; at most 64 KiB
	Reply      []byte
}

// Execution is one command that a toolbox really started.
type Execution struct {
	Time    time.Time
	Op      Op
	Sandbox string
	Command string
	Envs    []string // names only
}

// SandboxInfo is the truth about a sandbox, whatever GET and lists show.
type SandboxInfo struct {
	ID, Name      string
	State         string
	DesiredState  string
	Labels        map[string]string
	Env           map[string]string
	DaemonVersion string
	CreatedAt     time.Time
	LastActivity  time.Time
	// Destroyed sandboxes are kept in the record.
	Destroyed bool
}
