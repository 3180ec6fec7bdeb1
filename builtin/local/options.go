// Package local makes sandboxes out of processes of this machine: no daemon, no
// image, as root and as an ordinary user, on Linux.
//
// # Levels
//
// What separates a sandbox from the host is chosen by a real probe in [New] and
// reported by Describe:
//
//   - "namespaces": user, mount, pid, ipc, uts, cgroup and network namespaces
//     with a private root that shows /usr and its like read-only, Landlock,
//     seccomp, no capability, resource limits. Nothing survives the host
//     process.
//   - "landlock": where namespaces are refused, as in an ordinary container.
//     Landlock and seccomp; what that leaves open is listed in
//     Description.OpenEnds.
//   - "none": only with Options.Unsafe, never chosen silently.
//
// # Values
//
// Protected values and request secrets travel to the in-sandbox supervisor as
// frames on a socket pair, and from there into the environment of the one command
// they are for. They are never in an argument, in a file, or in the environment
// of the supervisor.
//
// On other systems New returns an error that names the alternatives.
package local

// Level is how far a sandbox is separated from the host.
type Level string

// The levels, from the strongest.
const (
	LevelNamespaces Level = "namespaces"
	LevelLandlock   Level = "landlock"
	LevelNone       Level = "none"
)

// Options configure a Provider. The zero value is the sensible one.
type Options struct {
	// StateDir holds one private directory per sandbox: its workspace, and a
	// record without values by which a later process can find and remove what a
	// crash left. Default: $XDG_STATE_HOME/sbxhost/local, else
	// ~/.local/state/sbxhost/local, else a directory of this user below the
	// system's temporary one.
	StateDir string
	// AllowNetwork lets a manifest ask for network "default", which is the
	// host's own network. Default: no.
	AllowNetwork bool
	// InheritEnv names variables of the host's environment that commands get in
	// addition to PATH, LANG, LC_*, TZ and TERM. Names and values that look like
	// credentials are dropped nevertheless. Default: none.
	InheritEnv []string
	// ReadOnlyPaths are host directories, besides /usr and its like, that
	// sandboxes can read and execute. Default: none.
	ReadOnlyPaths []string
	// PIDs is the limit of processes and threads for a manifest that names none.
	// Default: 256.
	PIDs int64
	// Level asks for exactly this level; New fails when it cannot be had.
	// Default "": the strongest that works, never LevelNone.
	Level Level
	// Unsafe runs commands without isolation: they can do whatever the user of
	// this process can. Default: no.
	Unsafe bool
	// Environ returns the host's environment. Default: os.Environ.
	Environ func() []string
}

// Setting is the configuration key that Options.AllowNetwork has; errors name it.
const Setting = "local.allowNetwork"
