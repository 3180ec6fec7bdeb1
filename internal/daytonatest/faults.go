package daytonatest

import (
	"slices"
	"sync"
	"time"
)

// Kind is one named fault mode.
type Kind string

// Faults of any answer. They act on the operations a Fault names.
const (
	// Unauthorized answers 401 without doing anything.
	Unauthorized Kind = "unauthorized"
	// Forbidden answers 403 without doing anything.
	Forbidden Kind = "forbidden"
	// RateLimited answers 429 with Retry-After-NAME (Fault.Delay, at least one
	// second), the name of the operation's limit as the service has it, and
	// never plain Retry-After.
	RateLimited Kind = "rate-limited"
	// Conflict answers 409 "Sandbox state change in progress".
	Conflict Kind = "conflict"
	// ServerError answers Fault.Status (default 500) with a JSON error and does
	// nothing.
	ServerError Kind = "server-error"
	// ServerErrorAfter does it and then answers Fault.Status (default 500).
	ServerErrorAfter Kind = "server-error-after"
	// BadGateway answers 502 with an empty body and does nothing.
	BadGateway Kind = "bad-gateway"
	// BadGatewayAfter does it and then answers 502 with an empty body.
	BadGatewayAfter Kind = "bad-gateway-after"
	// HTMLError answers 503 with an HTML page, as a load balancer does.
	HTMLError Kind = "html-error"
	// Slow waits Fault.Delay (default 1 s) first.
	Slow Kind = "slow"
	// Hang reads the request and never answers; nothing is done.
	Hang Kind = "hang"
	// HangAfter does it and never answers.
	HangAfter Kind = "hang-after"
	// Drop resets the connection before anything is done.
	Drop Kind = "drop"
	// DropAfter does it and then resets the connection.
	DropAfter Kind = "drop-after"
	// Truncate does it, announces the whole answer and breaks off half way.
	Truncate Kind = "truncate"
	// Garbage does it and answers 200 with bytes that are not JSON.
	Garbage Kind = "garbage"
	// Oversize does it and answers with 64 MiB of valid JSON around the answer.
	Oversize Kind = "oversize"
	// Redirect answers 307 to Fault.Location and does nothing.
	Redirect Kind = "redirect"
	// Replay is the proxy's retry: the first time the toolbox has done it the
	// connection to it is lost, and the proxy sends the same request again, so
	// it is done twice and the client sees one answer. With a chunked request
	// body, or one over 256 KiB, the proxy cannot, and answers 502 after the
	// first. Toolbox operations only.
	Replay Kind = "replay"
)

// Faults of the sandbox's life.
const (
	// CreateFails lets create answer 400 "Sandbox failed to start" and leaves
	// the sandbox behind in state error. Its errorReason is Fault.Text.
	CreateFails Kind = "create-fails"
	// BuildFails lets the build of a created sandbox end in build_failed.
	BuildFails Kind = "build-fails"
	// SlowStart adds Fault.Delay (default for ever) to creating and starting.
	SlowStart Kind = "slow-start"
	// InvisibleCreate keeps a created sandbox out of GET for Fault.Delay
	// (default 2 s).
	InvisibleCreate Kind = "invisible-create"
	// StuckDestroying keeps deleted sandboxes in destroying for Fault.Delay
	// (default for ever).
	StuckDestroying Kind = "stuck-destroying"
	// UnknownState shows the state "hibernating" for Fault.Delay (default for
	// ever) where started would be.
	UnknownState Kind = "unknown-state"
	// OldDaemon gives created sandboxes the daemon version Fault.Text (default
	// 0.150.0), which ignores envs and cannot kill at a timeout.
	OldDaemon Kind = "old-daemon"
	// NoDaemonVersion gives created sandboxes a null daemon version.
	NoDaemonVersion Kind = "no-daemon-version"
	// ForeignToolboxURL shows Fault.Location as the toolbox's URL.
	ForeignToolboxURL Kind = "foreign-toolbox-url"
	// UnknownFields adds fields nobody knows to each object.
	UnknownFields Kind = "unknown-fields"
)

// Faults of lists.
const (
	// StaleList shows the list as it was Fault.Delay (default 2 s) ago.
	StaleList Kind = "stale-list"
	// FlappingList shows every second time the list as it was Fault.Delay
	// (default 2 s) ago.
	FlappingList Kind = "flapping-list"
	// EmptyList answers 200 with no items.
	EmptyList Kind = "empty-list"
	// TinyPages puts one item on each page, whatever the limit.
	TinyPages Kind = "tiny-pages"
	// LoopingCursor answers with the same cursor again and again.
	LoopingCursor Kind = "looping-cursor"
	// UnfilteredList ignores the filters.
	UnfilteredList Kind = "unfiltered-list"
)

// Faults of the toolbox.
const (
	// DaemonDead answers the toolbox with an empty 502 while GET still says
	// started. Running commands are cut off as well; they go on.
	DaemonDead Kind = "daemon-dead"
	// NoContainer answers the toolbox with 400 "failed to resolve container IP".
	NoContainer Kind = "no-container"
	// ContainerLost answers the toolbox with 404 "sandbox container not found".
	ContainerLost Kind = "container-lost"
	// IgnoreTimeout lets execute run on past its timeout.
	IgnoreTimeout Kind = "ignore-timeout"
	// NoExitCode leaves exitCode out of execute's answer.
	NoExitCode Kind = "no-exit-code"
	// IgnoreEnvs lets execute forget envs without a word.
	IgnoreEnvs Kind = "ignore-envs"
	// PTYAbnormal breaks a PTY's websocket off without a close frame when its
	// process ends.
	PTYAbnormal Kind = "pty-abnormal"
	// PTYRefused lets a PTY connect, say {"type":"control","status":"error"}
	// and drop.
	PTYRefused Kind = "pty-refused"
	// ShortDownload sends the first half of a file without a word.
	ShortDownload Kind = "short-download"
	// NoBoundary ends a bulk download before its closing boundary.
	NoBoundary Kind = "no-boundary"
	// PartialUpload writes the first half of each uploaded file and answers 200.
	PartialUpload Kind = "partial-upload"
)

// KindInfo describes one fault mode.
type KindInfo struct {
	Kind Kind
	// Does says in one sentence what happens.
	Does string
	// On are the operations it makes sense on; nil means all, or that it belongs
	// to the sandbox's life and not to one operation.
	On []Op
	// Applied says whether the operation is done although its answer is bad.
	Applied bool
	// Benign modes are within what the service promises: a client works under
	// them as if nothing were wrong, only slower.
	Benign bool
}

// Kinds lists every fault mode.
func Kinds() []KindInfo { return slices.Clone(kinds) }

var kinds = []KindInfo{
	{Kind: Unauthorized, Does: "401, nothing done"},
	{Kind: Forbidden, Does: "403, nothing done"},
	{Kind: RateLimited, Does: "429 with a suffixed Retry-After header, nothing done", Benign: true},
	{Kind: Conflict, Does: "409 state change in progress, nothing done", Benign: true},
	{Kind: ServerError, Does: "5xx with a JSON error, nothing done"},
	{Kind: ServerErrorAfter, Does: "done, then 5xx with a JSON error", Applied: true},
	{Kind: BadGateway, Does: "empty 502, nothing done"},
	{Kind: BadGatewayAfter, Does: "done, then an empty 502", Applied: true},
	{Kind: HTMLError, Does: "503 with an HTML page, nothing done"},
	{Kind: Slow, Does: "answers late", Applied: true, Benign: true},
	{Kind: Hang, Does: "never answers, nothing done"},
	{Kind: HangAfter, Does: "done, never answers", Applied: true},
	{Kind: Drop, Does: "connection reset, nothing done"},
	{Kind: DropAfter, Does: "done, then connection reset", Applied: true},
	{Kind: Truncate, Does: "done, answer broken off half way", Applied: true},
	{Kind: Garbage, Does: "done, 200 with bytes that are not JSON", Applied: true},
	{Kind: Oversize, Does: "done, 64 MiB of answer", Applied: true},
	{Kind: Redirect, Does: "307 to Fault.Location, nothing done"},
	{Kind: Replay, Does: "done twice and answered once, or 502 where the proxy cannot repeat", Applied: true,
		On: []Op{OpExecute, OpCodeRun, OpSessionCreate, OpSessionExec, OpSessionInput, OpPTYCreate, OpFileFolder, OpFileMove, OpFileReplace}},
	{Kind: CreateFails, Does: "create answers 400 and leaves the sandbox in state error", On: []Op{OpCreate}, Applied: true},
	{Kind: BuildFails, Does: "the build ends in build_failed", On: []Op{OpCreate}, Applied: true},
	{Kind: SlowStart, Does: "creating and starting take longer, or for ever", On: []Op{OpCreate, OpStart}, Applied: true},
	{Kind: InvisibleCreate, Does: "GET does not find a new sandbox for a while", On: []Op{OpCreate}, Applied: true, Benign: true},
	{Kind: StuckDestroying, Does: "a deleted sandbox stays in destroying", On: []Op{OpDelete}, Applied: true},
	{Kind: UnknownState, Does: "a state nobody knows instead of started", On: []Op{OpCreate, OpStart}, Applied: true},
	{Kind: OldDaemon, Does: "a daemon that ignores envs and timeouts", On: []Op{OpCreate}, Applied: true},
	{Kind: NoDaemonVersion, Does: "the daemon's version is null", On: []Op{OpCreate}, Applied: true},
	{Kind: ForeignToolboxURL, Does: "the toolbox's URL leads to Fault.Location", On: []Op{OpCreate, OpGet, OpList, OpListPaginated, OpToolboxURL, OpStart}, Applied: true},
	{Kind: UnknownFields, Does: "objects have fields nobody knows", On: []Op{OpCreate, OpGet, OpList, OpListPaginated, OpStart, OpStop, OpDelete}, Applied: true, Benign: true},
	{Kind: StaleList, Does: "the list is as it was a while ago", On: []Op{OpList, OpListPaginated}, Applied: true},
	{Kind: FlappingList, Does: "every second list is as it was a while ago", On: []Op{OpList, OpListPaginated}, Applied: true},
	{Kind: EmptyList, Does: "the list is empty", On: []Op{OpList, OpListPaginated}, Applied: true},
	{Kind: TinyPages, Does: "one item on each page", On: []Op{OpList, OpListPaginated}, Applied: true, Benign: true},
	{Kind: LoopingCursor, Does: "the cursor never ends", On: []Op{OpList}, Applied: true},
	{Kind: UnfilteredList, Does: "the list ignores its filters", On: []Op{OpList, OpListPaginated}, Applied: true, Benign: true},
	{Kind: DaemonDead, Does: "empty 502 from the toolbox, state still started", On: toolboxOps},
	{Kind: NoContainer, Does: "400 container IP from the toolbox", On: toolboxOps},
	{Kind: ContainerLost, Does: "404 container not found from the toolbox", On: toolboxOps},
	{Kind: IgnoreTimeout, Does: "execute runs on past its timeout", On: []Op{OpExecute, OpCodeRun}, Applied: true},
	{Kind: NoExitCode, Does: "execute's answer has no exit code", On: []Op{OpExecute, OpCodeRun}, Applied: true},
	{Kind: IgnoreEnvs, Does: "execute forgets envs", On: []Op{OpExecute, OpCodeRun}, Applied: true},
	{Kind: PTYAbnormal, Does: "a PTY's websocket ends without a close frame", On: []Op{OpPTYConnect, OpPTYOpen}, Applied: true},
	{Kind: PTYRefused, Does: "a PTY connects, reports an error and drops", On: []Op{OpPTYConnect, OpPTYOpen}},
	{Kind: ShortDownload, Does: "half a file without a word", On: []Op{OpFileDownload, OpFileBulkDown}, Applied: true},
	{Kind: NoBoundary, Does: "a bulk download without its closing boundary", On: []Op{OpFileBulkDown}, Applied: true},
	{Kind: PartialUpload, Does: "half of each file is written, answer 200", On: []Op{OpFileUpload, OpFileUploadV2, OpFileBulkUp}, Applied: true},
}

var toolboxOps = []Op{OpExecute, OpCodeRun, OpSessionCreate, OpSessionList, OpSessionGet, OpSessionDelete,
	OpSessionExec, OpSessionCommand, OpSessionLogs, OpSessionInput, OpPTYCreate, OpPTYList, OpPTYGet, OpPTYDelete,
	OpPTYResize, OpPTYConnect, OpPTYOpen, OpFileList, OpFileDelete, OpFileInfo, OpFileDownload, OpFileBulkDown,
	OpFileUpload, OpFileUploadV2, OpFileBulkUp, OpFileFolder, OpFileMove, OpFilePerms, OpFileSearch, OpFileFind,
	OpFileReplace, OpPorts, OpPortInUse, OpWorkDir, OpHomeDir, OpVersion, OpEnv, OpUnknownToolbox}

// Fault is one fault to inject. Kind is required.
type Fault struct {
	Kind Kind
	// On limits it to these operations; nil means those of KindInfo.On, or all.
	On []Op
	// Sandbox limits it to one, by id or name; "" means any.
	Sandbox string
	// After lets so many matching requests pass first.
	After int
	// Times it happens, then it is over; 0 means until it is removed.
	Times int
	// Delay of those kinds that have one.
	Delay time.Duration
	// Status of ServerError and ServerErrorAfter.
	Status int
	// Text is the errorReason or version of those kinds that have one.
	Text string
	// Location is the URL of Redirect and ForeignToolboxURL.
	Location string
}

// Injection is a fault at work.
type Injection struct {
	s     *Server
	fault Fault

	mu      sync.Mutex
	seen    int
	hits    int
	removed bool
}

// Hits returns how often it has happened.
func (i *Injection) Hits() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits
}

// Remove ends it. What it holds up (hanging requests, stuck states) goes on.
func (i *Injection) Remove() {
	i.mu.Lock()
	i.removed = true
	i.mu.Unlock()
	i.s.faults.drop(i)
}

// faultTable holds the faults at work.
type faultTable struct {
	s *Server

	mu     sync.Mutex
	list   []*Injection
	healed chan struct{} // closed by heal
}

// Inject adds a fault. The latest that matches wins. It panics when the kind is
// not one of Kinds: a test that misspells it would test nothing.
func (s *Server) Inject(f Fault) *Injection {
	i := slices.IndexFunc(kinds, func(k KindInfo) bool { return k.Kind == f.Kind })
	if i < 0 {
		panic("daytonatest: there is no fault " + string(f.Kind))
	}
	if f.On == nil {
		f.On = kinds[i].On
	}
	in := &Injection{s: s, fault: f}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, in)
	return in
}

// Heal removes all faults and lets requests that hang end.
func (s *Server) Heal() { s.faults.heal() }

func (t *faultTable) heal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = nil
	if t.healed != nil {
		close(t.healed)
		t.healed = nil
	}
}

// healing returns a channel that is closed by the next Heal.
func (t *faultTable) healing() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.healed == nil {
		t.healed = make(chan struct{})
	}
	return t.healed
}

func (t *faultTable) drop(in *Injection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = slices.DeleteFunc(t.list, func(o *Injection) bool { return o == in })
}

// take returns the latest fault that is due for the operation and accepted.
func (t *faultTable) take(op Op, sb *sandbox, accept func(Kind) bool) (Fault, bool) {
	t.mu.Lock()
	list := slices.Clone(t.list)
	t.mu.Unlock()
	for _, in := range slices.Backward(list) {
		f := in.fault
		if !accept(f.Kind) || f.On != nil && !slices.Contains(f.On, op) {
			continue
		}
		if f.Sandbox != "" && (sb == nil || f.Sandbox != sb.id && f.Sandbox != sb.given) {
			continue
		}
		if in.fires() {
			return f, true
		}
	}
	return Fault{}, false
}

func (i *Injection) fires() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen++
	if i.removed || i.seen <= i.fault.After || i.fault.Times > 0 && i.hits >= i.fault.Times {
		return false
	}
	i.hits++
	return true
}

// is returns the fault of this kind that is due.
func (t *faultTable) is(kind Kind, op Op, sb *sandbox) (Fault, bool) {
	return t.take(op, sb, func(k Kind) bool { return k == kind })
}

// ofAnswer are the kinds that act on any answer, before or after the operation
// itself; the others are asked for where they belong.
var ofAnswer = []Kind{Unauthorized, Forbidden, RateLimited, Conflict, ServerError, ServerErrorAfter, BadGateway,
	BadGatewayAfter, HTMLError, Slow, Hang, HangAfter, Drop, DropAfter, Truncate, Garbage, Oversize, Redirect, Replay,
	DaemonDead, NoContainer, ContainerLost}

// of returns the fault that is due for a call's answer.
func (t *faultTable) of(c *call) (Fault, bool) {
	sb := c.sb
	if sb == nil && c.route.group == control && c.params["id"] != "" {
		c.s.mu.Lock()
		sb = c.s.find(c.params["id"])
		c.s.mu.Unlock()
	}
	return t.take(c.op, sb, func(k Kind) bool { return slices.Contains(ofAnswer, k) })
}

func (f Fault) delay(otherwise time.Duration) time.Duration {
	if f.Delay > 0 {
		return f.Delay
	}
	return otherwise
}

const forever = 100 * 365 * 24 * time.Hour
