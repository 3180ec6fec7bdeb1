// Package shim drives the in-sandbox supervisor from the host: one [Exec] is one
// command that a supervisor watches over, [Control] speaks to PID 1 of a container,
// [Files] is access to a container's files. The supervisor's program is in package
// shimbin, what the two say to each other in package wire.
//
// # In a container
//
// The program lies at [Path] on a read-only mount and runs in three modes, all
// started by the engine as root of the container, with [EngineCapabilities] and
// nothing else, no-new-privileges, no engine terminal:
//
//	/.sbx/shim pid1 idle|image ROOT USER   the container's PID 1, see PID1Args
//	/.sbx/shim exec ID                     one command, see ExecArgs and Start
//	/.sbx/shim files ID                    one stream of file operations, see Files
//
// # Why its supervisors are root
//
// A supervisor that ran as the session's user could be killed, stopped and, until
// it has made itself unreadable, traced by any command of that user. Root's cannot
// be signalled or traced by a workload of another user; a workload that is root
// itself cannot trace it, because the supervisor holds a capability
// (CAP_SETPCAP) that no workload gets. What is left is that a root workload can
// kill or stop its own supervisor: then PID 1 kills the tree. Each command becomes
// the session's user between fork and execve.
//
// # Who a command is in a container
//
// [Workload.User] is resolved inside the container from the image's own
// /etc/passwd and /etc/group, as engines do it. A command of another user than
// root has no capabilities; one of root keeps [WorkloadCapabilities]. Each has
// no-new-privileges and cannot dump core. HOME is set from /etc/passwd when the
// request's environment has none.
//
// # The container's streams
//
// Standard input and output carry control lines ([Control]): printable text, each
// line complete in itself, because an engine shares them among all who attach, keeps
// half of what a dead host said, and writes the output to the container's log.
// Standard error is the log of the image's command, so a reader of the log asks the
// engine for standard error alone. Nothing of a control line is secret.
package shim
