// Package spec is the plugin manifest: what a plugin may do, as its author
// declares it and the operator approves it. It reads, checks and describes
// manifests; enforcing them is the egress package's work.
package spec

// Kind says who writes the requests that could reveal a value.
type Kind string

const (
	// Sealed: the host renders every request that creates a sandbox, runs a
	// command or moves a file. The plugin can be given references.
	Sealed Kind = "sealed"
	// PluginDriven: the plugin builds bodies itself, and could obtain a value by
	// what it runs. References are refused unless the operator allows them for
	// this plugin.
	PluginDriven Kind = "plugin-driven"
)

// Manifest is a plugin's declaration. It holds no secret: credentials are named
// only.
type Manifest struct {
	ABI         string
	Name        string
	Version     string
	Description string
	Kind        Kind
	Operations  []string
	Exec        Exec
	Config      map[string]ConfigField
	Credentials []Credential
	Captures    map[string]Capture
	Origins     map[string]Origin
	Routes      []Route
	Protected   Protected
	Limits      Limits
	// NoSnapshot asks for a fresh instance per call instead of one restored from
	// the snapshot taken after _initialize.
	NoSnapshot bool
}

// Exec is what the plugin can do with commands; see provider.ExecCapabilities.
type Exec struct {
	Stream           bool
	Stdin            string
	TTY              bool
	Stderr           string
	Kill             string
	PartialOnTimeout bool
	BackgroundSafe   bool
	MaxTimeoutMillis int64
}

// ConfigField is one setting the operator may give.
type ConfigField struct {
	Type        string // string, integer or boolean
	MaxLength   int    // of a string, in bytes
	Enum        []string
	Default     string // as text; "" is none
	Required    bool
	Description string
}

// Credential is a named secret the operator binds to a source.
type Credential struct {
	Name        string
	Description string
}

// Capture is a token that a vendor issues in a reply. The host keeps it.
type Capture struct {
	Scope string // session or plugin
}

// Origin is where requests may go.
type Origin struct {
	// URL is fixed, or holds {sandbox} in its first DNS label. Empty when
	// Configured or Capture is set.
	URL string
	// Configured: the operator sets the URL.
	Configured bool
	// Capture: the base URL is a captured reply field, which must match Allow.
	Capture string
	// Allow lists host name patterns: exact, or "*." and a suffix standing for
	// exactly one label.
	Allow   []string
	Headers []Header
}

// PerSandbox reports whether the host name differs between sandboxes.
func (o Origin) PerSandbox() bool { return o.Capture != "" || hasSandbox(o.URL) }

// Header is one request header. Exactly one of Value, Credential, Capture,
// Config and From is set.
type Header struct {
	Name       string
	Prefix     string // put before a credential, capture or setting
	Value      string
	Credential string
	Capture    string
	Config     string
	From       string // sandbox only
}

// Role says what a route is for.
type Role string

// Roles of routes.
const (
	RoleCreate  Role = "create"
	RoleExec    Role = "exec"
	RoleFile    Role = "file"
	RoleControl Role = "control"
)

// Route is one approved request.
type Route struct {
	ID          string
	Role        Role
	Origin      string
	Method      string
	Path        string
	Params      map[string]Field
	Query       map[string]Field
	Headers     []Header
	Request     Request
	Response    Response
	Retry       Retry
	Idempotency Idempotency
}

// Field is a path or query parameter: filled by the host (From, Value), or by
// the plugin within bounds (Free).
type Field struct {
	From  string
	Value string
	Free  *Free
}

// Free is what the plugin may fill in.
type Free struct {
	Pointer   string // in a body; "" for a parameter
	Type      string // string, integer or boolean
	MaxLength int    // of a string, in bytes
	Enum      []string
	Min, Max  *int64
	Optional  bool
}

// Body kinds of requests and responses.
const (
	BodyNone      = "none"
	BodyJSON      = "json"
	BodyRaw       = "raw"
	BodyConnect   = "connect"
	BodySSE       = "sse"
	BodyNDJSON    = "ndjson"
	BodyMultipart = "multipart"
	BodyPlugin    = "plugin" // built by the plugin; plugin-driven only
)

// Request is a route's body.
type Request struct {
	Body  string
	Slots []Slot
	Free  []Free
	Parts []Part
	// EnvPointer and EnvShape say where the host puts the environment into a
	// plugin-built body.
	EnvPointer string
	EnvShape   string
}

// Slot is a place in a body that only the host fills.
type Slot struct {
	Pointer  string
	From     string // a host value, or "" with Value
	Value    string // a JSON constant, as text
	Shape    string // of an environment or labels: map, nv or kv
	NameKey  string // of nv; default "name"
	ValueKey string // of nv; default "value"
	Extra    string // of nv: a JSON object of constants to add to each entry
	Default  string // a host value used when From is empty
	Encoding string // base64, or "" for text
	OmitZero bool   // leave the pointer out when the value is empty
}

// Part is one part of a multipart body.
type Part struct {
	Name     string
	From     string
	Value    string
	Filename string
}

// Response says what of an answer goes where.
type Response struct {
	Body    string
	Sandbox string // pointer of the new sandbox's id; create routes only
	Capture []CapturePointer
	Headers []string // that the plugin may read
	Payload []Payload
	Items   *Items
}

// CapturePointer names a reply field that is a token.
type CapturePointer struct {
	Pointer string
	Name    string
}

// Payload is output or file content inside an answer; the host delivers it past
// the plugin.
type Payload struct {
	Pointer  string // in a JSON document or frame; "" with a raw body
	Encoding string // base64 or ""
	To       string // stdout, stderr or content
	Mode     string // delta or cumulative
	When     string // pointer that must be present, or "pointer=value"
}

// Items says how a list reply proves whose each element is. Elements without the
// owner's label are dropped before the plugin sees the reply.
type Items struct {
	Pointer string // of the array
	Sandbox string // pointer of the id in an element
	Labels  string // pointer of the labels in an element: an object, or nv pairs
}

// Retry lets the host repeat a request.
type Retry struct {
	Status []int
	Max    int
}

// Idempotency is a header with which the vendor recognises a repetition.
type Idempotency struct {
	Header string
	Key    string // session or exec
}

// Protected lists the routes that may carry protected values.
type Protected struct {
	Create []string
	Exec   []string
}

// Any reports whether the plugin has a protected transport at all.
func (p Protected) Any() bool { return len(p.Create)+len(p.Exec) > 0 }

// Limits narrow the runtime's defaults.
type Limits struct {
	MemoryMiB int64
	WallMs    int64
}

// Route returns the route with the given id.
func (m *Manifest) Route(id string) (*Route, bool) {
	for i := range m.Routes {
		if m.Routes[i].ID == id {
			return &m.Routes[i], true
		}
	}
	return nil, false
}

// Has reports whether the plugin declares an operation.
func (m *Manifest) Has(op string) bool {
	for _, o := range m.Operations {
		if o == op {
			return true
		}
	}
	return false
}

// Credential reports whether a credential of that name is declared.
func (m *Manifest) Credential(name string) bool {
	for _, c := range m.Credentials {
		if c.Name == name {
			return true
		}
	}
	return false
}
