// Package hostile holds what a sandbox must withstand: a static program that
// tries, one named attempt at a time, to reach what lies outside, and the types
// its reports are made of.
//
// The program is cmd/probe. It does no lasting harm where an attempt is not
// refused: it opens without writing, signals with SIGURG, sets limits to what
// they are, and calls what would change the machine with arguments that fail
// after the permission check. So the same program can be run outside any sandbox,
// as a control that it is able to succeed.
package hostile

// Outcome is how an attempt ended.
type Outcome string

const (
	// Refused: the attempt did not reach its goal.
	Refused Outcome = "refused"
	// Succeeded: the attempt reached its goal, or got past every permission
	// check on the way to it.
	Succeeded Outcome = "succeeded"
	// Error: the attempt could not be carried out, so it says nothing. A test
	// must not count it as refused.
	Error Outcome = "error"
)

// Result is the report of one attempt, one JSON object per line.
type Result struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"`
}

// Target is a process that the probe attacks.
type Target struct {
	Name string `json:"name"`
	// PID is the target's number outside, 0 when it is to be looked for by
	// Marker only.
	PID int `json:"pid,omitempty"`
	// Marker occurs in the target's command line. A process with the right
	// number and another command line is somebody else.
	Marker string `json:"marker"`
}

// Config tells the probe what there is to reach outside. Attempts whose target
// is not configured end with Error.
type Config struct {
	// Targets are processes beside PID 1 and the probe's own parent, which are
	// always attacked.
	Targets []Target `json:"targets,omitempty"`
	// CanaryFiles are absolute paths of host files that must be out of reach.
	CanaryFiles []string `json:"canaryFiles,omitempty"`
	// HostDirs are host directories that must be out of reach.
	HostDirs []string `json:"hostDirs,omitempty"`
	// CanaryVariables are names that only the host's environment holds.
	CanaryVariables []string `json:"canaryVariables,omitempty"`
	// AbstractSocket is the name of a host stream socket, without the NUL; with
	// "-dgram" after it the name of a datagram socket. PathSocket is the path of
	// a stream socket.
	AbstractSocket string `json:"abstractSocket,omitempty"`
	PathSocket     string `json:"pathSocket,omitempty"`
	// TCP and UDP are host:port of listeners of the host; the UDP ones echo.
	TCP []string `json:"tcp,omitempty"`
	UDP []string `json:"udp,omitempty"`
	// HostInterface is the name of a network interface of the host, not lo.
	HostInterface string `json:"hostInterface,omitempty"`
	// HostTTY is the path of a terminal of the host, HostTTYDevice the device
	// number of the file system it is in: a sandbox may have a terminal of that
	// path too.
	HostTTY       string `json:"hostTTY,omitempty"`
	HostTTYDevice uint64 `json:"hostTTYDevice,omitempty"`
	// ShmKey and MsgKey are System V keys of a segment and a queue of the host,
	// SemKey of a semaphore set, MQueue the name of a POSIX queue, ShmFile of a
	// file in /dev/shm.
	ShmKey  int    `json:"shmKey,omitempty"`
	MsgKey  int    `json:"msgKey,omitempty"`
	SemKey  int    `json:"semKey,omitempty"`
	MQueue  string `json:"mqueue,omitempty"`
	ShmFile string `json:"shmFile,omitempty"`
	// PIDs and MemoryMiB are the limits in force, 0 for none.
	PIDs      int `json:"pids,omitempty"`
	MemoryMiB int `json:"memoryMiB,omitempty"`
	// TmpMiB is more than the sandbox's /tmp may take, 0 when it has no limit.
	TmpMiB int `json:"tmpMiB,omitempty"`
	// Workspace is the directory the probe may write in.
	Workspace string `json:"workspace,omitempty"`
	// Only and Skip select attempts by name; Only wins when it is not empty.
	Only []string `json:"only,omitempty"`
	Skip []string `json:"skip,omitempty"`
}
