// Package daytonatest is a fake of the Daytona service for tests: the control
// API, the toolbox of each sandbox, and the proxy in front of both, with the
// quirks that were measured on the real service and with faults on demand.
//
// # What is real
//
// Commands run for real. Each sandbox is a directory of its own, entered by its
// processes as their root in their own mount, pid and network namespaces, so
// that absolute paths, ports and process ids do not meet those of the machine
// or of another sandbox. The system's programs are bound into it read-only. It
// is no security boundary: run nothing in it that may not run in a test. Where
// namespaces cannot be made (not Linux, or refused), [Start] fails and says so;
// nothing is run unconfined instead.
//
// # What is faithful
//
// By default the fake answers as the public server v0.190 was measured to
// answer: the body of a create that says "creating", a sandbox that is not
// visible for a moment, a failed create that leaves a sandbox behind, the
// environment in clear in each object, file errors without a body, 429s with
// suffixed Retry-After headers, toolbox errors in three shapes, session logs
// that depend on headers, PTY exit codes in close frames. [ReleaseCurrent] is
// the surface of the specifications of August 2026 instead. Where the two
// documents disagree, the measured behaviour is kept, and listed in
// [Deviations].
//
// # Faults
//
// [Server.Inject] adds a [Fault] of one named kind to chosen operations; [Kinds]
// lists them all with what they do, so that a test can go through the whole
// table.
//
// # What it keeps
//
// [Server.Records] is everything the service stored or published of a sandbox,
// deleted ones included: objects, lists, events, sessions, PTY lists, logs,
// snapshots, files of the daemon. A canary found there is a leak.
// [Server.Requests] is the log of requests, without bodies unless
// [Options.KeepBodies] is set.
package daytonatest
