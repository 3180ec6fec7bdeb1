package daytona

import (
	"context"
	"io"
	"time"

	"github.com/sbxhost/sbxhost/secret"
)

// service is everything that the provider asks of Daytona, shaped like the
// official SDKs so that one could take its place. client implements it.
//
// Every error is a *callError, or a *fault, and holds no value.
type service interface {
	CreateSandbox(ctx context.Context, req createSandbox) (sandboxInfo, error)
	GetSandbox(ctx context.Context, idOrName string) (sandboxInfo, error)
	// ListSandboxes returns one page; next is "" after the last.
	ListSandboxes(ctx context.Context, labels map[string]string, cursor string) (items []sandboxInfo, next string, err error)
	DeleteSandbox(ctx context.Context, id string) error
	StartSandbox(ctx context.Context, id string) error
	StopSandbox(ctx context.Context, id string) error
	UpdateLastActivity(ctx context.Context, id string) error
	SignedPreviewURL(ctx context.Context, id string, port int, ttl time.Duration) (string, error)
	ToolboxURL(ctx context.Context, id string) (string, error)
	// BuildLog copies the log of a build until it ends.
	BuildLog(ctx context.Context, id string, w io.Writer) error
	// CurrentKey returns the permissions of the API key.
	CurrentKey(ctx context.Context) (keyInfo, error)

	// Toolbox returns the toolbox of a sandbox, at an address that the service
	// gave; one that does not belong to the configured endpoint is refused.
	Toolbox(address, id string) (toolbox, error)
}

// toolbox is what runs in one started sandbox.
type toolbox interface {
	// Execute runs a script and returns when it has ended. It is sent once.
	Execute(ctx context.Context, req executeRequest) (executeResult, error)
	// Upload writes a file, and fails when the service says that it wrote less.
	Upload(ctx context.Context, path string, data []byte) error
	// Download reads a file from an offset; negative: all of it, in one piece.
	Download(ctx context.Context, path string, offset int64) (*download, error)
	CreatePTY(ctx context.Context, id, dir string, cols, rows uint16) error
	ConnectPTY(ctx context.Context, id string) (ptyConn, error)
	ResizePTY(ctx context.Context, id string, cols, rows uint16) error
	DeletePTY(ctx context.Context, id string) error
}

// createSandbox is what POST /sandbox is asked for.
type createSandbox struct {
	name     string
	image    string // built from; excludes snapshot
	snapshot string
	target   string
	labels   map[string]string
	env      secret.Env // with the create transport only
	blockAll bool
	cpu      int64
	memory   int64 // GiB
	disk     int64 // GiB
	autoStop int   // minutes; 0: never
	// minutes; 0: left out
	ttl, autoDelete int
}

// sandboxInfo is what the service says of a sandbox. env is not among it.
type sandboxInfo struct {
	ID            string            `json:"id"`
	Name          string            `json:"name"`
	State         string            `json:"state"`
	DesiredState  string            `json:"desiredState"`
	ErrorReason   *string           `json:"errorReason"`
	Labels        map[string]string `json:"labels"`
	CreatedAt     string            `json:"createdAt"`
	DaemonVersion *string           `json:"daemonVersion"`
	ToolboxURL    string            `json:"toolboxProxyUrl"`
}

// keyInfo is what the service says of an API key.
type keyInfo struct {
	Permissions []string `json:"permissions"`
}

// executeRequest is one command. Its script is the standard input of the
// sandbox's shell.
type executeRequest struct {
	script  string
	env     map[string]string
	values  []secret.Env  // more environment
	timeout time.Duration // whole seconds; 0: none
	again   bool          // may be repeated, when it was refused or its answer lost
}

// executeResult is the answer. exited is false when the service did not say how
// the script ended.
type executeResult struct {
	exited bool
	code   int
	output string
}

// download is a file's content from an offset.
type download struct {
	io.ReadCloser
	length int64 // of the rest; -1 unknown
	total  int64 // of the file; -1 unknown
}
