// Package guest is the kit for writing a provider plugin in Go.
//
// Implement [Provider] and whichever of the optional interfaces the vendor can
// do ([Execer], [Inputter], [FileReader] …), and call [Serve] from init:
//
//	func init() { guest.Serve(vendor{}) }
//	func main() {}
//
// Build with the stock toolchain:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags=-s -trimpath -o vendor.wasm .
//
// A plugin decides when to call which route of its approved manifest, polls,
// pages, and maps states and errors. The host renders requests that carry the
// environment, a command or a file, and takes their output past the plugin: no
// method here ever receives a secret.
//
// # State
//
// Every call starts from the snapshot taken after init: package variables set
// during a call are gone in the next one, and math/rand repeats (use
// [Call.Random]). What must last goes into [Call.Checkpoint]. Before the snapshot the
// host rehearses: it calls Create and Status with made-up requests, without a
// network, and drops the replies.
package guest

import "github.com/sbxhost/sbxhost/abi"

// Provider is what every plugin implements. An error should be an [*Error];
// anything else is reported as Internal.
type Provider interface {
	// Create makes the sandbox. Checkpoint as soon as the vendor has answered.
	// A slow vendor is answered with state "pending"; the host then polls
	// Status.
	Create(c *Call, req *abi.CreateRequest) (abi.CreateReply, error)
	// Status maps the vendor's state to one of ours; an unknown one is
	// "unknown", which is not terminal.
	Status(c *Call, req *abi.StatusRequest) (abi.StatusReply, error)
	// Destroy removes the sandbox. An absent one is success. The host verifies
	// with Status and List.
	Destroy(c *Call, req *abi.StatusRequest) error
	// List returns every sandbox of ours, all pages, in any state.
	List(c *Call, req *abi.ListRequest) (abi.ListReply, error)
}

// Execer runs a command and returns when it ended.
type Execer interface {
	Exec(c *Call, req *abi.ExecRequest) (abi.ExecReply, error)
}

// Inputter delivers one chunk of a running command's input; the host fills it in.
type Inputter interface {
	Input(c *Call, req *abi.InputRequest) error
}

// Resizer sets a running command's terminal size.
type Resizer interface {
	Resize(c *Call, req *abi.ResizeRequest) error
}

// Signaler signals a running command.
type Signaler interface {
	Signal(c *Call, req *abi.SignalRequest) error
}

// FileReader reads a file; its content goes from the host to the caller.
type FileReader interface {
	Read(c *Call, req *abi.PathRequest) (abi.ReadReply, error)
}

// FileWriter writes a file; the host fills in its content.
type FileWriter interface {
	Write(c *Call, req *abi.WriteRequest) error
}

// DirLister lists a directory.
type DirLister interface {
	ListDir(c *Call, req *abi.PathRequest) (abi.ListDirReply, error)
}

// Stater describes a file.
type Stater interface {
	Stat(c *Call, req *abi.PathRequest) (abi.StatReply, error)
}

// Remover removes a file or directory.
type Remover interface {
	Remove(c *Call, req *abi.RemoveRequest) error
}

// DirMaker makes a directory.
type DirMaker interface {
	Mkdir(c *Call, req *abi.MkdirRequest) error
}

// Pauser pauses and resumes a sandbox.
type Pauser interface {
	Pause(c *Call, req *abi.StatusRequest) error
	Resume(c *Call, req *abi.StatusRequest) error
}

// Porter says where a port can be reached.
type Porter interface {
	Port(c *Call, req *abi.PortRequest) (abi.PortReply, error)
}

var served Provider

// Serve registers the plugin's provider. Call it once, from init: it performs no
// work of its own.
func Serve(p Provider) { served = p }
