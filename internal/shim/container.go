package shim

import (
	"errors"
	"strings"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
)

// Path is where the program lies in a container.
const Path = "/.sbx/shim"

// ProtocolVersion is what this package speaks. A supervisor of a container that an
// older or newer build of us made may speak another: Pong says which.
const ProtocolVersion = wire.Version

// WorkloadCapabilities are what a command that runs as root keeps: enough to
// install packages, change owners and users, and listen on low ports. Others have
// none at all.
func WorkloadCapabilities() []string {
	return []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"}
}

// EngineCapabilities are those that the container must be created with, as the
// engine's CapAdd after CapDrop ALL: WorkloadCapabilities and SETPCAP, which the
// supervisors alone hold.
func EngineCapabilities() []string { return append(WorkloadCapabilities(), "SETPCAP") }

// EngineEnviron is the environment of every exec of the program by an engine, on
// top of the image's. It fixes every variable that the Go runtime of the program
// reads, whatever the image says of them. The container itself (PID 1) needs it
// too; PID 1 keeps nothing else of its environment.
func EngineEnviron() []string { return append(Environ(), "GODEBUG=", "GOTRACEBACK=none") }

// PID1Options says what PID 1 does at the container's start. No field is secret:
// all are in the container's arguments.
type PID1Options struct {
	// Image: the image's own command will be started with Control.StartImage.
	Image bool
	// Root is the directory that PID 1 makes when it is missing and gives to
	// User when it belongs to root; absolute, "" is none.
	Root string
	// User as in Workload.
	User string
}

// PID1Args returns the container's whole command line (its entrypoint; its command
// is to be empty).
//
// PID 1 is started as root, keeps only CAP_KILL, starts no thread after its
// set-up, ignores every signal from inside and takes nothing from its environment.
// It reads control lines from standard input (see [Control]) and answers on
// standard output. Standard error is the log: the output of the image's command
// and nothing else, so Logs is the container's standard error. A set-up that fails
// is one line on standard error and exit code 125.
//
// On StopSignal from outside (the engine's stop) it sends TERM to the image's
// command, gives it two seconds to end and exits 0, which ends everything in the
// container; without one it exits at once. TERM itself does nothing. On the end of
// its standard input it goes on.
//
// A process that is handed to it because its supervisor died is killed, with all
// its descendants. It looks for such four times a second, because the kernel does not
// tell; how long the killing takes then depends on how many there are, and on how
// busy the machine is. The left-overs of a command whose supervisor lives are not
// handed to it: the supervisor outlives its command for them.
func PID1Args(o PID1Options) []string {
	mode := "idle"
	if o.Image {
		mode = "image"
	}
	return []string{Path, "pid1", mode, o.Root, o.User}
}

// ExecArgs returns the command line of one exec. The engine runs it as root
// ("0:0"), with EngineEnviron, standard input and output attached and without a
// terminal. Its standard output carries frames only; nothing is ever written to
// its standard error. The engine's exit code means nothing.
func ExecArgs(id string) []string { return []string{Path, "exec", id} }

// FilesArgs returns the command line of one stream of file operations; otherwise as
// ExecArgs.
func FilesArgs(id string) []string { return []string{Path, "files", id} }

// StopSignal is the StopSignal that the container must be created with; an image's
// own is not for us.
const StopSignal = "SIGRTMIN+3"

// MaxID is the largest length of an exec's id.
const MaxID = wire.MaxID

// ValidID reports whether id can name an exec: 1 to MaxID letters, digits, "_", "-"
// and ".", the first a letter or digit.
func ValidID(id string) bool { return wire.ValidID(id) }

// Workload says who the commands of a container are.
type Workload struct {
	// User is "user", "user:group", each a name or a number, as in an image's
	// USER; "" is root. An unknown name is a StartError of StageUser with ENOENT;
	// a number need not be known.
	User string
}

// Setup returns what Request.Setup has to be for a command of w, or an error when
// User can never be one.
func (w Workload) Setup() ([]byte, error) {
	c, err := w.config()
	if err != nil {
		return nil, err
	}
	return c.MarshalBinary()
}

func (w Workload) config() (*wire.Config, error) {
	if len(w.User) > wire.MaxUser || strings.ContainsAny(w.User, "\x00\n") {
		return nil, errors.New("shim: not a user: longer than 256 bytes, or with a line break or NUL")
	}
	return &wire.Config{IDs: wire.IDUser, User: w.User, Keep: wire.WorkloadCaps}, nil
}

// ImageCommand is the image's own command (its entrypoint and command) that runs
// under PID 1. It holds no protected value: those are for the workload's execs.
type ImageCommand struct {
	Workload Workload
	// Args, Env (NAME=VALUE, complete: nothing is inherited) and Dir as in
	// Request.
	Args []string
	Env  [][]byte
	Dir  string
}
