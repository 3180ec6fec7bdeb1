package daytonatest

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sandbox is one sandbox. Its fields are guarded by Server.mu, unless they say
// otherwise.
type sandbox struct {
	s     *Server
	id    string
	name  string
	given string // the name it was created with; deleting changes name
	dir   string

	snapshot string
	dockerfile,
	snapshotRef string
	contexts []string
	user     string
	target   string
	env      map[string]string
	rawEnv   map[string]any    // as it was sent: values may be of any type
	bakedEnv map[string]string // of the snapshot
	labels   map[string]string
	public   bool
	blockAll bool
	allow    any // string or nil
	domains  any
	cpu, gpu, memory, disk,
	autoStop, autoArchive, autoDelete, autoPause, ttl int
	volumes []any
	secrets []any

	state, desired string
	reason         any
	recoverable    bool
	backup         string
	backupAt       time.Time
	created        time.Time
	updated        time.Time
	activity       time.Time
	stopped        time.Time
	visible        time.Time
	daemonVersion  any    // string or nil
	hidden         string // shown instead of started: UnknownState
	destroyed      bool
	inflight       int
	buildLog       []string
	token          string // of standard previews; new at each start
	signed         map[string]*signedURL
	cookies        map[string]time.Time

	// life is held while processes are started or killed.
	life   sync.Mutex
	jail   *jail
	daemon *daemon
}

// States of a sandbox.
const (
	creating       = "creating"
	restoring      = "restoring"
	destroying     = "destroying"
	destroyed      = "destroyed"
	started        = "started"
	stopped        = "stopped"
	starting       = "starting"
	stopping       = "stopping"
	failed         = "error"
	buildFailed    = "build_failed"
	pendingBuild   = "pending_build"
	building       = "building_snapshot"
	archived       = "archived"
	archiving      = "archiving"
	resizing       = "resizing"
	snapshotting   = "snapshotting"
	defaultSnap    = "daytonaio/sandbox:0.8.0"
	defaultTarget  = "us"
	homeDir        = "/home/daytona"
	daemonLog      = "/tmp/daytona-daemon.log"
	sessionsDir    = homeDir + "/.daytona/sessions"
	previewDomain  = "preview.localhost"
	minDaemonEnvs  = "0.167.0"
	defaultStop    = 15
	defaultArchive = 7 * 24 * 60
)

// pending says that a state change is under way.
func (sb *sandbox) pending() bool {
	switch sb.state {
	case started, stopped, failed, buildFailed, archived, destroyed:
		return sb.state == archived && sb.desired == started
	}
	return true
}

// find returns a visible or invisible sandbox by id or present name; s.mu is
// held.
func (s *Server) find(idOrName string) *sandbox {
	for _, sb := range s.sandboxes {
		if !sb.destroyed && (sb.id == idOrName || sb.name == idOrName) {
			return sb
		}
	}
	return nil
}

// set changes the state; s.mu is held.
func (sb *sandbox) set(state, desired string) {
	sb.state, sb.desired, sb.updated = state, desired, sb.s.Now()
	sb.publish("sandbox.state.updated")
	sb.s.notify()
}

// publish records what the event socket sends to every client of the
// organization: the whole object.
func (sb *sandbox) publish(event string) {
	sb.s.rec.addJSON(RecordEvent, sb.id, event, map[string]any{"event": event, "sandbox": sb.object(false)})
}

// object is the sandbox as the service shows it; in a list without env. s.mu is
// held.
func (sb *sandbox) object(listItem bool) map[string]any {
	s := sb.s
	state := sb.state
	if state == started && sb.hidden != "" {
		state = sb.hidden
	}
	o := map[string]any{
		"id": sb.id, "organizationId": s.org, "name": sb.name, "target": sb.target, "user": sb.user,
		"snapshot": orNil(sb.snapshot), "cpu": sb.cpu, "gpu": sb.gpu, "memory": sb.memory, "disk": sb.disk,
		"public": sb.public, "networkBlockAll": sb.blockAll, "networkAllowList": sb.allow, "domainAllowList": sb.domains,
		"labels": sb.labels, "state": state, "desiredState": sb.desired, "errorReason": sb.reason,
		"recoverable": sb.recoverable, "backupState": sb.backup, "autoStopInterval": sb.autoStop,
		"autoArchiveInterval": sb.autoArchive, "autoDeleteInterval": sb.autoDelete, "sandboxClass": "container",
		"createdAt": sb.created.UTC().Format(timeFormat), "updatedAt": sb.updated.UTC().Format(timeFormat),
		"lastActivityAt": sb.activity.UTC().Format(timeFormat), "daemonVersion": sb.daemonVersion,
		"runnerId": "3f0c1d5e-0000-4000-a000-00000000fa4e", "toolboxProxyUrl": s.ToolboxURL(),
	}
	if !sb.backupAt.IsZero() {
		o["backupCreatedAt"] = sb.backupAt.UTC().Format(timeFormat)
	}
	if s.current() {
		o["autoPauseInterval"] = sb.autoPause
		if sb.ttl > 0 {
			o["autoDestroyAt"] = sb.created.Add(time.Duration(sb.ttl) * time.Minute).UTC().Format(timeFormat)
		}
	}
	if !listItem {
		o["env"] = sb.env
		o["volumes"] = sb.volumes
		if sb.dockerfile != "" {
			o["buildInfo"] = map[string]any{"dockerfileContent": sb.dockerfile, "contextHashes": sb.contexts,
				"createdAt": sb.created.UTC().Format(timeFormat), "updatedAt": sb.created.UTC().Format(timeFormat), "snapshotRef": sb.snapshotRef}
		}
	} else {
		delete(o, "backupCreatedAt")
	}
	if s.current() {
		maps.DeleteFunc(o, func(_ string, v any) bool { return v == nil })
	}
	return o
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// shown is the object as an answer to op shows it, with its faults; s.mu is
// held.
func (sb *sandbox) shown(op Op, listItem bool) map[string]any {
	o := sb.object(listItem)
	if f, ok := sb.s.faults.is(ForeignToolboxURL, op, sb); ok {
		o["toolboxProxyUrl"] = f.Location
	}
	if _, ok := sb.s.faults.is(UnknownFields, op, sb); ok {
		o["futureField"] = map[string]any{"nested": []any{1, "two", nil}}
		o["id2"] = sb.id
	}
	return o
}

// compareVersions orders dotted version numbers.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var x, y int
		if i < len(as) {
			x, _ = strconv.Atoi(as[i])
		}
		if i < len(bs) {
			y, _ = strconv.Atoi(bs[i])
		}
		if x != y {
			return x - y
		}
	}
	return 0
}

// knowsEnvs says whether the sandbox's daemon understands envs; s.mu is held.
func (sb *sandbox) knowsEnvs() bool {
	v, ok := sb.daemonVersion.(string)
	return !ok || compareVersions(v, minDaemonEnvs) >= 0
}

// boot starts the processes; life is held, s.mu is not.
func (sb *sandbox) boot() error {
	j, err := startJail(filepath.Join(sb.dir, "root"), sb.user)
	if err != nil {
		return err
	}
	sb.s.mu.Lock()
	defer sb.s.mu.Unlock()
	if sb.s.closing() {
		return errors.Join(errors.New("the server is closed"), j.kill())
	}
	sb.jail, sb.token = j, randomHex(16)
	sb.daemon = newDaemon(sb)
	return nil
}

// halt kills the processes; life is held, s.mu is not. A sandbox that does not
// run is success.
func (sb *sandbox) halt() error {
	sb.s.mu.Lock()
	j, d := sb.jail, sb.daemon
	sb.jail, sb.daemon = nil, nil
	sb.s.mu.Unlock()
	if j == nil {
		return nil
	}
	err := j.kill()
	d.ended()
	if err != nil {
		return fmt.Errorf("stop sandbox %s: %w", sb.id, err)
	}
	return nil
}

// Sandbox tells the truth about one sandbox, by id or by the name it was created
// with; destroyed ones too, the latest first.
func (s *Server) Sandbox(idOrName string) (SandboxInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range slices.Backward(s.sandboxes) {
		if sb.id == idOrName || sb.given == idOrName {
			return sb.info(), true
		}
	}
	return SandboxInfo{}, false
}

// Sandboxes tells the truth about all of them, destroyed ones included, oldest
// first.
func (s *Server) Sandboxes() []SandboxInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]SandboxInfo, 0, len(s.sandboxes))
	for _, sb := range s.sandboxes {
		out = append(out, sb.info())
	}
	return out
}

func (sb *sandbox) info() SandboxInfo {
	v, _ := sb.daemonVersion.(string)
	return SandboxInfo{ID: sb.id, Name: sb.given, State: sb.state, DesiredState: sb.desired, Labels: maps.Clone(sb.labels),
		Env: maps.Clone(sb.env), DaemonVersion: v, CreatedAt: sb.created, LastActivity: sb.activity, Destroyed: sb.destroyed}
}
