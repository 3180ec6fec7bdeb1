package daytonatest

import (
	"errors"
	"net/http"
	"time"
)

// Server is a running fake. All methods are safe for concurrent use.
type Server struct{ faults faultTable }

type faultTable struct{}

func (*faultTable) drop(*Injection) {}

// Start starts a fake on a loopback port. The caller must Close it.
func Start(Options) (*Server, error) { return nil, errors.New("the fake is not finished yet") }

// URL is the control API's base, ending in /api.
func (s *Server) URL() string { return "" }

// Key is the valid API key.
func (s *Server) Key() string { return "" }

// Organization is the id of the key's organization.
func (s *Server) Organization() string { return "" }

// ToolboxURL is what sandboxes show as toolboxProxyUrl.
func (s *Server) ToolboxURL() string { return "" }

// HTTPClient finds *.preview.localhost.
func (s *Server) HTTPClient() *http.Client { return nil }

// Close kills every sandbox's processes, removes its files and ends every
// connection. It reports what could not be cleaned up.
func (s *Server) Close() error { return nil }

// Now is the service's clock.
func (s *Server) Now() time.Time { return time.Time{} }

// Advance moves the service's clock on and does what is then due: automatic
// stop, archive, delete, lifetimes, expiry of URLs.
func (s *Server) Advance(time.Duration) {}

// Inject adds a fault. The latest that matches wins.
func (s *Server) Inject(Fault) *Injection { return nil }

// Heal removes all faults and lets what hangs go on.
func (s *Server) Heal() {}

// CutConnections resets every open connection to the toolbox of a sandbox (id
// or name; "" means all) and says how many there were. Commands go on.
func (s *Server) CutConnections(string) int { return 0 }

// Requests returns the log so far.
func (s *Server) Requests() []Request { return nil }

// Count counts the requests of these operations; without any, all.
func (s *Server) Count(...Op) int { return 0 }

// Forget empties the log.
func (s *Server) Forget() {}

// Executions lists the commands a sandbox (id or name; "" means all) really
// started, in order.
func (s *Server) Executions(string) []Execution { return nil }

// Records returns everything that was stored or published.
func (s *Server) Records() []Record { return nil }

// Find returns where needle is in Records, as "kind sandbox name".
func (s *Server) Find([]byte) []string { return nil }

// Sandbox tells the truth about one sandbox.
func (s *Server) Sandbox(string) (SandboxInfo, bool) { return SandboxInfo{}, false }

// Sandboxes tells the truth about all of them, destroyed ones included.
func (s *Server) Sandboxes() []SandboxInfo { return nil }

// ReadFile reads a file of a sandbox by its absolute path in it, past the toolbox.
func (s *Server) ReadFile(string, string) ([]byte, error) { return nil, nil }

// Validator checks requests and replies against the specifications of August
// 2026. What differs and was measured to differ is in Deviations.
type Validator struct{}

// Validate returns a validator that reports to tb with Errorf.
func Validate(TB) *Validator { return nil }

// Handler checks what passes through a server's handler.
func (v *Validator) Handler(next http.Handler) http.Handler { return next }

// Transport checks what a client sends and gets.
func (v *Validator) Transport(next http.RoundTripper) http.RoundTripper { return next }

// Deviation is a measured difference from the specifications.
type Deviation struct{ Op, What string }

// Deviations lists the measured differences that the validator lets pass.
func Deviations() []Deviation { return nil }
