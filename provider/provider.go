// Package provider is the contract between sbxhost and what makes sandboxes.
//
// This file is all a provider author has to read. Implement [Provider] and
// [Sandbox]; implement the optional interfaces ([Ports], [Pauser], [Archiver],
// [Logs]) where the vendor can. Then run providertest.Run: it tests exactly what
// Describe declares.
//
// # Trust
//
// A provider registered as trusted receives protected values in
// CreateRequest.Protected or ExecRequest.Protected. It must deliver them to the
// workload through the transport it declared and copy them nowhere else: not
// into labels, names, logs, errors, argv or files. After creation protected
// destinations are absent from every path that is not the workload itself: file
// operations, probes, helper commands, archives, port look-up, destroy.
//
// # Errors
//
// Every error a provider returns is an [*Error], or wraps one. Act on the code,
// never on the message.
//
// # Concurrency
//
// All methods of all interfaces must be safe for concurrent use.
package provider

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"time"

	"github.com/sbxhost/sbxhost/secret"
)

// Provider makes sandboxes.
type Provider interface {
	// Describe returns what the provider is and can do. It does no I/O and
	// always returns the same description for one Provider.
	Describe() Description

	// Create makes a sandbox and returns when it can run commands.
	//
	// It is idempotent on SessionID: when a sandbox with the same SessionID
	// and Digest exists it is adopted; with another Digest the error is
	// Conflict. The caller never retries it blindly: after an ambiguous answer
	// it looks the sandbox up with List. When ctx is cancelled Create stops and
	// removes what it made as far as it can; the error's Applied says whether
	// something may be left. On success the caller owns the sandbox and must
	// Destroy it.
	Create(ctx context.Context, req CreateRequest) (Sandbox, error)

	// Open attaches to an existing sandbox. It changes nothing and may be
	// retried. NotFound when the sandbox is gone. Cancelling ctx abandons the
	// attempt only.
	Open(ctx context.Context, ref Ref) (Sandbox, error)

	// List returns every sandbox that matches q, in any state, all pages. It
	// changes nothing and may be retried. Not being able to list is an error
	// (Unsupported, Unavailable …), never an empty list.
	List(ctx context.Context, q Query) ([]Resource, error)

	// Destroy removes the sandbox and everything of it, and returns nil only
	// when it has verified that it is gone. An absent sandbox is success.
	// Destroy is idempotent and may be retried. When ctx is cancelled the
	// result is unknown and the error says so (Applied).
	Destroy(ctx context.Context, ref Ref) error
}

// Sandbox is a live sandbox. It holds no resources that need closing; the
// sandbox lives until Provider.Destroy.
type Sandbox interface {
	// Ref names the sandbox to its provider. It holds no value and is safe to
	// store.
	Ref() Ref

	// Exec starts a command and returns once it runs (or has failed to start).
	// It is never retried by the caller and must never be retried by the
	// provider, unless the provider can prove that nothing was started. The
	// caller owns the Process and must Wait for it. ctx covers the start only:
	// cancelling it after Exec returned does nothing; use Process.Kill.
	//
	// A command that does not exist is NotFound, one that cannot be executed is
	// PermissionDenied; both with Applied == No.
	Exec(ctx context.Context, req ExecRequest) (Process, error)

	// Files gives access to the files under the manifest's root.
	Files() FS

	// Status asks the provider. It changes nothing and may be retried.
	Status(ctx context.Context) (Status, error)
}

// Process is one running command.
type Process interface {
	// Stdin returns the command's input when ExecRequest.Stdin is StdinLive,
	// else nil. Closing it is the command's end of file.
	Stdin() io.WriteCloser

	// Signal sends a signal by its POSIX name without "SIG" ("TERM", "INT") to
	// the command. Unsupported where Describe says ExecKillNone. Signalling an
	// ended process is FailedPrecondition.
	Signal(ctx context.Context, name string) error

	// Kill ends the command and, as far as ExecCapabilities.Kill says, its
	// whole tree: TERM, grace, KILL. It returns nil only when their death is
	// confirmed. Killing an ended command's left-over tree is allowed; killing
	// nothing is success. It is idempotent.
	Kill(ctx context.Context, grace time.Duration) error

	// Wait blocks until the command itself has ended and its output was
	// delivered (at most 250 ms after the end when something still holds the
	// streams), or ctx is done. It may be called many times and from many
	// goroutines; all get the same Exit. Writers given in the ExecRequest are
	// not used after Wait returned an Exit. A cancelled ctx abandons this
	// wait only; the command goes on.
	Wait(ctx context.Context) (Exit, error)
}

// Resizer is implemented by a Process started with a TTY.
type Resizer interface {
	// Resize sets the terminal's size in character cells.
	Resize(ctx context.Context, cols, rows uint16) error
}

// FS is the file access of one sandbox. Paths are POSIX paths relative to the
// manifest's root; "" and "." are the root. A path, or a symbolic link met on
// the way, that leads out of the root is PermissionDenied. Operations run as
// the session's user. None may be observed half done, except that an
// interrupted Write may leave an unnamed temporary file.
type FS interface {
	// Open opens a regular file for reading. The caller must close the reader.
	// A directory is FailedPrecondition. ctx covers the whole read: once it has
	// ended, Read gives nothing more, whatever has arrived already.
	Open(ctx context.Context, path string) (io.ReadCloser, FileInfo, error)

	// Write replaces a file's content atomically, making missing parent
	// directories. It may be retried with a fresh reader.
	Write(ctx context.Context, path string, content io.Reader, opts WriteOptions) error

	// List returns the entries of a directory sorted by name.
	List(ctx context.Context, path string) ([]FileInfo, error)

	// Stat describes a file without following a final symbolic link.
	Stat(ctx context.Context, path string) (FileInfo, error)

	// Remove removes a file, a symbolic link, or an empty directory; with
	// recursive a whole tree. An absent path is NotFound. The root itself is
	// InvalidArgument.
	Remove(ctx context.Context, path string, recursive bool) error

	// Mkdir makes a directory and its missing parents. An existing directory
	// is success.
	Mkdir(ctx context.Context, path string, mode fs.FileMode) error
}

// Ports is implemented by sandboxes whose ports can be reached.
type Ports interface {
	// Port returns where a port of the manifest can be reached. It may be
	// retried. NotFound for a port that the manifest does not name.
	Port(ctx context.Context, port int) (Endpoint, error)
}

// Pauser is implemented by sandboxes that can be paused. Both methods are
// idempotent and may be retried.
type Pauser interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Archiver is implemented by sandboxes that can export and import the root as
// an uncompressed POSIX tar stream.
type Archiver interface {
	// Export writes the files under root, names relative to it. May be
	// retried.
	Export(ctx context.Context, w io.Writer) error
	// Import adds the archive's files under root. Entries that would land
	// outside it are refused before anything is written for them.
	Import(ctx context.Context, r io.Reader) error
}

// Logs is implemented by sandboxes whose own log (an image's entrypoint) can be
// read.
type Logs interface {
	// Logs copies the log so far to w. It may be retried.
	Logs(ctx context.Context, w io.Writer) error
}

// Transport is how protected values reach the workload.
type Transport string

const (
	// TransportNone: the provider cannot be given protected values.
	TransportNone Transport = ""
	// TransportExec: values are given to each workload process in the
	// provider's structured channel (ExecRequest.Protected) and rest nowhere.
	TransportExec Transport = "exec"
	// TransportCreate: values are put in the creation environment
	// (CreateRequest.Protected). The provider's record shows them.
	TransportCreate Transport = "create"
)

// TransportInfo is one transport a provider offers.
type TransportInfo struct {
	Transport Transport `json:"transport"`
	// Detail names the mechanism, for example "supervisor" or "engine-env".
	Detail string `json:"detail,omitempty"`
	// Exposure says in one sentence who else can see the values.
	Exposure string `json:"exposure,omitempty"`
}

// String returns "exec/supervisor", "create" and the like.
func (t TransportInfo) String() string {
	switch {
	case t.Transport == TransportNone:
		return "none"
	case t.Detail == "":
		return string(t.Transport)
	}
	return string(t.Transport) + "/" + t.Detail
}

// Support says how a provider honours a wish of the manifest.
type Support string

const (
	// SupportNone: a manifest that asks for it is refused.
	SupportNone Support = ""
	// SupportEnforced: honoured.
	SupportEnforced Support = "enforced"
	// SupportUnenforced: harmless to miss; accepted, and listed in Session.Info.
	SupportUnenforced Support = "unenforced"
)

// Features says for each optional part of a manifest how it is honoured.
type Features struct {
	Image           Support `json:"image"`
	User            Support `json:"user"`
	NetworkNone     Support `json:"networkNone"`
	NetworkDefault  Support `json:"networkDefault"`
	PathGrants      Support `json:"pathGrants"`
	Ports           Support `json:"ports"`
	StartImage      Support `json:"startImage"`
	CPUs            Support `json:"cpus"`
	MemoryMiB       Support `json:"memoryMiB"`
	PIDs            Support `json:"pids"`
	DiskMiB         Support `json:"diskMiB"`
	TTL             Support `json:"ttl"`
	WorkspaceMove   Support `json:"workspaceMove"`   // the files under root can move to a replacement
	SharedWorkspace bool    `json:"sharedWorkspace"` // … because both use the same storage
}

// StdinMode says when a command's input can be given.
type StdinMode string

const (
	StdinNone    StdinMode = "none"    // always empty
	StdinUpfront StdinMode = "upfront" // complete before the start
	StdinLive    StdinMode = "live"    // written while the command runs
)

// StderrMode says whether the two output streams arrive apart.
type StderrMode string

const (
	StderrSeparate StderrMode = "separate"
	StderrMerged   StderrMode = "merged"
)

// KillMode says how far Process.Kill reaches.
type KillMode string

const (
	KillTree    KillMode = "tree"    // every descendant, setsid children included
	KillGroup   KillMode = "group"   // the process group
	KillProcess KillMode = "process" // the command only
	KillNone    KillMode = "none"
)

// ExecCapabilities describes what Exec can do.
type ExecCapabilities struct {
	Stream           bool          `json:"stream"` // output is delivered while the command runs
	Stdin            StdinMode     `json:"stdin"`
	TTY              bool          `json:"tty"`
	Stderr           StderrMode    `json:"stderr"`
	Kill             KillMode      `json:"kill"`
	PartialOnTimeout bool          `json:"partialOnTimeout"` // output up to a timeout is kept
	BackgroundSafe   bool          `json:"backgroundSafe"`   // background children outlive the command that started them and do not delay it
	MaxTimeout       time.Duration `json:"maxTimeout"`       // 0: no limit of the provider's own
}

// Description is what a provider is and can do.
type Description struct {
	// Name is for people. It grants nothing: trust is the host's registration.
	Name string `json:"name"`
	// Version of the provider, for people.
	Version string `json:"version,omitempty"`
	// Isolation names the boundary in force ("namespaces", "landlock",
	// "container", "vm", "none") and OpenEnds lists plainly what it leaves open.
	Isolation string   `json:"isolation,omitempty"`
	OpenEnds  []string `json:"openEnds,omitempty"`
	// Transports from least to most exposing. Empty: references are refused.
	Transports []TransportInfo `json:"transports,omitempty"`
	// RefusedDestinations are environment names that this provider manages
	// itself; a reference to one is refused before the provider is touched.
	RefusedDestinations []string         `json:"refusedDestinations,omitempty"`
	Exec                ExecCapabilities `json:"exec"`
	Features            Features         `json:"features"`
	// Remedies says, by the wish as CheckCreate names it ("network: default"),
	// how the operator can get what Features refuse here. May be nil.
	Remedies map[string]string `json:"remedies,omitempty"`
	// DefaultNetwork is used when a manifest does not say: "none" or "default".
	DefaultNetwork string `json:"defaultNetwork"`
	// Survives says whether sandboxes outlive the host process, so that Open
	// from another process can work.
	Survives bool `json:"survives"`
	// IsolatesExecs says that processes of different execs cannot read each
	// other's environment.
	IsolatesExecs bool `json:"isolatesExecs"`
}

// Ref names one sandbox to the provider that made it. It holds no value.
type Ref struct {
	// ID identifies the sandbox among all of its provider's.
	ID string `json:"id"`
	// Data is the provider's own, opaque, at most 64 KiB of compact JSON.
	Data json.RawMessage `json:"data,omitempty"`
}

// MaxRefBytes is the largest encoded Ref a host keeps.
const MaxRefBytes = 64 << 10

// Labels every sandbox carries. User labels that start with LabelPrefix are
// refused.
const (
	LabelPrefix    = "sbxhost."
	LabelOwner     = "sbxhost.owner"
	LabelEpoch     = "sbxhost.epoch"
	LabelSession   = "sbxhost.session"
	LabelAttempt   = "sbxhost.attempt" // fresh random per create
	LabelDigest    = "sbxhost.digest"
	LabelProtected = "sbxhost.protected" // "1" or "0"
)

// NamePrefix starts the name of every sandbox; the session id follows.
const NamePrefix = "sbxhost-"

// Resources are limits; zero means the provider's default.
type Resources struct {
	CPUs      float64
	MemoryMiB int64
	PIDs      int64
	DiskMiB   int64
}

// PathGrant is a bind mount, already checked against the host's allowed roots.
type PathGrant struct {
	Path     string // absolute, in the sandbox
	HostPath string // absolute, resolved, on the host
	ReadOnly bool
}

// Stage is a step of a long create, for progress display. It never holds a
// value.
type Stage struct {
	Name           string // "pull", "build", "start" …
	Detail         string
	Current, Total int64 // 0, 0 when unknown; bytes unless Detail says otherwise
}

// CreateRequest asks for one sandbox.
type CreateRequest struct {
	SessionID string            // host-made, 32 hex digits
	Name      string            // NamePrefix + SessionID; for a replacement ReplacementName
	Digest    string            // of manifest and bound pairs; equal digests mean "the same request"
	Labels    map[string]string // complete, reserved labels included; to be put on the sandbox
	Image     string
	Root      string // absolute POSIX path, to be created, writable by User
	User      string
	Network   string // "none" or "default", never ""
	Start     string // "idle" or "image"
	Ports     []int
	Resources Resources
	Mounts    []PathGrant
	TTL       time.Duration // 0: none
	Idle      time.Duration // 0: none
	// Environment holds the manifest's literals: the creation environment where
	// the provider has one. Each exec gets them again in ExecRequest.Env.
	Environment map[string]string
	// Transport is the one the host chose from Description.Transports;
	// TransportNone for an unprotected session.
	Transport Transport
	// Protected holds values only with TransportCreate.
	Protected secret.Env
	// ProtectedNames lists the protected destinations with any transport. They
	// must be absent from everything that is not the workload.
	ProtectedNames []string
	// Replaces is set when this sandbox takes over its session from an existing
	// one: a session with protected values is resumed by replacement. For a
	// while both live with the same SessionID, told apart by Name and
	// LabelAttempt; the existing one is then neither adopted nor a Conflict, and
	// Create is idempotent on SessionID and LabelAttempt. With
	// Features.SharedWorkspace both use the same storage under Root, and
	// destroying one of them keeps it for the other.
	Replaces *Ref
	// EmptyWorkspace is set, with Replaces and Features.SharedWorkspace, when the
	// new sandbox is to begin with an empty root all the same, on storage of its
	// own.
	EmptyWorkspace bool
	// Checkpoint may be nil. A provider calls it as soon as something exists
	// that would have to be destroyed; the ref is durable when it returns. An
	// error means that it is not: stop and remove what was made.
	Checkpoint func(Ref) error
	// Progress may be nil. It is called from one goroutine at a time and must
	// not block.
	Progress func(Stage)
}

// ReplacementName is the name of a sandbox that replaces another one of the
// same session: NamePrefix, the session id, a dash and the first eight
// characters of the attempt.
func ReplacementName(sessionID, attempt string) string {
	return NamePrefix + sessionID + "-" + attempt[:min(8, len(attempt))]
}

// ExecRequest asks for one command. Env, Protected and Secrets have no name in
// common: the host has resolved precedence.
type ExecRequest struct {
	ID string // host-made, unique in the session
	// Exactly one of Args and Shell is set. Shell is run by the sandbox's
	// "sh -c" without being altered.
	Args  []string
	Shell string
	Dir   string // relative to root, or absolute; "" is root
	User  string // "" is the session's
	// Env holds manifest and per-exec literals, over the provider's base.
	Env map[string]string
	// Protected holds the session's protected values with TransportExec.
	Protected secret.Env
	// Secrets holds request-scoped values. A provider that cannot deliver them
	// in a structured channel returns Unsupported before anything is started.
	Secrets secret.Env
	// KillLeftovers: when the command has ended, kill what it left running.
	KillLeftovers bool
	Stdin         StdinMode
	// Input is the complete input for StdinUpfront.
	Input io.Reader
	// TTY gives the command a terminal of Cols × Rows; its output arrives on
	// Stdout only.
	TTY        bool
	Cols, Rows uint16
	// Timeout: the provider kills the tree after it, if it can. The host
	// enforces it too. 0: none.
	Timeout time.Duration
	// Grace between TERM and KILL at the timeout.
	Grace time.Duration
	// Stdout and Stderr receive the output, never nil, each called from one
	// goroutine at a time. A blocked Write is back-pressure; a failed one means
	// that the rest of that stream is to be drained and dropped.
	Stdout, Stderr io.Writer
}

// ExitKind is how a command ended.
type ExitKind string

const (
	ExitExited   ExitKind = "exited"
	ExitSignaled ExitKind = "signaled"  // by a signal nobody here sent
	ExitTimedOut ExitKind = "timed_out" // killed at ExecRequest.Timeout
	ExitKilled   ExitKind = "killed"    // by Process.Kill or Signal
	ExitLost     ExitKind = "lost"      // the stream broke; how it ended is not known
)

// Exit is how a command ended.
type Exit struct {
	Kind ExitKind
	Code int // with ExitExited; -1 otherwise
	// Signal is the name without "SIG", when a signal ended the command.
	Signal string
	// Merged: stderr arrived on stdout.
	Merged bool
	// LeftRunning counts descendants that outlived the command; -1 unknown.
	LeftRunning int
	// TreeDead: every process of the exec is confirmed gone.
	TreeDead bool
}

// State of a sandbox.
type State string

const (
	StatePending State = "pending"
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateStopped State = "stopped"
	StateGone    State = "gone"
	StateUnknown State = "unknown" // a state we do not know is not a terminal one
)

// Status is a sandbox's present state.
type Status struct {
	State State
	// Reason is the provider's text. It is redacted before anyone sees it.
	Reason string
	// Unenforced lists manifest wishes that are not enforced for this sandbox.
	Unenforced []string
}

// Query selects sandboxes by label. Empty fields match everything of ours.
type Query struct {
	Owner   string
	Session string
}

// Resource is one listed sandbox.
type Resource struct {
	Ref       Ref
	Name      string
	Labels    map[string]string
	State     State
	CreatedAt time.Time
}

// FileInfo describes a file.
type FileInfo struct {
	Name    string      `json:"name"` // base name
	Path    string      `json:"path"` // relative to root
	Size    int64       `json:"size"` // bytes; 0 for directories
	Mode    fs.FileMode `json:"mode"`
	ModTime time.Time   `json:"modTime"`
	Target  string      `json:"target,omitempty"` // of a symbolic link
}

// WriteOptions for FS.Write.
type WriteOptions struct {
	Mode fs.FileMode // permission bits; 0 means 0644, or the existing file's
}

// Endpoint is where a port can be reached.
type Endpoint struct {
	Address string // host:port, or a URL
	// Secret is set when Address itself grants access (a signed URL).
	Secret bool
}
