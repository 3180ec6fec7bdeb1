package daytonatest

import (
	"net/http"
	"time"
)

// TB is the part of testing.TB that the fake needs.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// New starts a fake for a test and closes it at the test's end.
func New(tb TB, opts Options) *Server {
	tb.Helper()
	s, err := Start(opts)
	if err != nil {
		tb.Fatalf("daytonatest: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("daytonatest: %v", err)
		}
	})
	return s
}

// API sketched: see the methods below.
var (
	_ interface {
		URL() string
		Key() string
		Organization() string
		ToolboxURL() string
		HTTPClient() *http.Client
		Close() error
		Now() time.Time
		Advance(d time.Duration)
		Inject(f Fault) *Injection
		Heal()
		CutConnections(sandbox string) int
		Requests() []Request
		Count(ops ...Op) int
		Forget()
		Executions(sandbox string) []Execution
		Records() []Record
		Find(needle []byte) []string
		Sandbox(idOrName string) (SandboxInfo, bool)
		Sandboxes() []SandboxInfo
		ReadFile(sandbox, path string) ([]byte, error)
	} = (*Server)(nil)
)
