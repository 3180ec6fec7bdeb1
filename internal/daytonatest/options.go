package daytonatest

import (
	"net/http"
	"time"
)

// Release selects whose surface the fake shows.
type Release string

const (
	// ReleaseMeasured is the public server v0.190 as it was measured.
	ReleaseMeasured Release = "0.190"
	// ReleaseCurrent is the surface of the specifications of August 2026:
	// null fields are left out, file errors have bodies, errors carry "source"
	// and finer codes, upload-v2, create-connect and POST /env exist.
	ReleaseCurrent Release = "0.218"
)

// Options of a fake. The zero value is a fast v0.190 with one key.
type Options struct {
	// Key is the one valid API key; default a random "dtn_" key.
	Key string
	// Release of the surface; default ReleaseMeasured.
	Release Release
	// DaemonVersion of new sandboxes; default the release's. One older than
	// 0.167 ignores the envs of an execute request, as those daemons did.
	DaemonVersion string
	// Timing of state changes; zero fields are a few milliseconds.
	Timing Timing
	// KeepBodies keeps request and reply bodies (64 KiB of each) in the log.
	KeepBodies bool
	// HostPreviews makes preview URLs of the real form,
	// http://PORT-TOKEN.preview.localhost:N, which need a client that finds
	// *.localhost; see Server.HTTPClient. Default is
	// http://127.0.0.1:N/preview/PORT-TOKEN, which any client can open.
	HostPreviews bool
	// Address to listen on; default a free loopback port. Only for manual use:
	// who reaches it can run commands.
	Address string
	// User that commands run as when a create names none; default root. "daytona"
	// (uid 1000) is what the service's own snapshots use: it may write to its home
	// and /tmp only.
	User string
	// Snapshots that exist; default the service's own default only.
	Snapshots []string
	// MaxSandboxes of the organization; 0 means no limit. Failed sandboxes count.
	MaxSandboxes int
	// Middleware wraps the service's handler, for example Validator.Handler. May
	// be nil.
	Middleware func(http.Handler) http.Handler
	// Logf receives one line per request and fault, without bodies. May be nil.
	Logf func(format string, args ...any)
}

// Timing is how long state changes take. Zero means the default, which is short.
type Timing struct {
	Visible time.Duration // after a create: until GET finds it
	Create  time.Duration // creating → started
	Build   time.Duration // pending_build → building_snapshot → creating, each
	Start   time.Duration
	Stop    time.Duration
	Archive time.Duration
	Restore time.Duration
	Destroy time.Duration
	List    time.Duration // until the list shows a change
	// Wait is how long create and start calls wait for started before they
	// answer all the same; default 30 s, like the service.
	Wait time.Duration
}

// Measured returns the times seen on the real server, for a demonstration.
func Measured() Timing {
	return Timing{Visible: 100 * time.Millisecond, Create: 1300 * time.Millisecond, Build: 2 * time.Second,
		Start: 700 * time.Millisecond, Stop: 300 * time.Millisecond, Archive: 29 * time.Second,
		Restore: 3 * time.Second, Destroy: 300 * time.Millisecond, List: time.Second}
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		d *time.Duration
		v time.Duration
	}{
		{&t.Visible, 5 * time.Millisecond}, {&t.Create, 10 * time.Millisecond}, {&t.Build, 10 * time.Millisecond},
		{&t.Start, 5 * time.Millisecond}, {&t.Stop, 5 * time.Millisecond}, {&t.Archive, 10 * time.Millisecond},
		{&t.Restore, 10 * time.Millisecond}, {&t.Destroy, 10 * time.Millisecond}, {&t.List, time.Millisecond}, {&t.Wait, 30 * time.Second},
	} {
		if *f.d == 0 {
			*f.d = f.v
		}
	}
	return t
}
