package egress

import (
	"sync"

	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/secret"
)

// MaxRedactedReplies is how many replies of one session may need redaction
// before the plugin has to give up: more are an attempt to probe.
const MaxRedactedReplies = 16

// Session is what the broker keeps for one sandbox: its id, taken from the
// vendor's own reply, the tokens captured for it, and what must not be shown to
// the plugin. It is safe for concurrent use.
type Session struct {
	b     *Broker
	req   provider.CreateRequest
	owner map[string]string // owner and session labels
	sight *sight

	mu        sync.Mutex
	sandbox   string
	captures  map[string]secret.Value
	armed     []secret.Value // what Close takes out of the guard again
	redacted  int
	delivered map[string]*joined // by exec id and stream
	create    uses
	closed    bool
}

// uses counts how a single-use right was spent.
type uses struct {
	spent    bool
	returned int
}

// Session returns the state for a sandbox that is being created (sandbox "") or
// is known. req holds what the host renders into requests; its Protected values
// and literals stay here.
func (b *Broker) Session(req provider.CreateRequest, protected secret.Env, sandbox string) (*Session, error) {
	s := &Session{
		b: b, req: req, owner: map[string]string{}, captures: map[string]secret.Value{}, delivered: map[string]*joined{}, sight: newSight(b.guard),
	}
	for _, k := range []string{provider.LabelOwner, provider.LabelSession} {
		if v, ok := req.Labels[k]; ok {
			s.owner[k] = v
		}
	}
	if sandbox != "" {
		if err := s.claim(sandbox); err != nil {
			return nil, err
		}
	}
	s.Arm(protected)
	s.Arm(req.Protected)
	return s, nil
}

// Sandbox returns the vendor's id of this session's sandbox, "" before the
// create reply.
func (s *Session) Sandbox() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandbox
}

// claim records the sandbox id. One id belongs to one session.
func (s *Session) claim(id string) error {
	if !safeSandboxID(id) {
		return &Denied{Rule: "the sandbox id in the reply is not a plain identifier"}
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	// Another Session of the same sandbox is one that was opened again.
	if other := s.b.claimed[id]; other != nil && other != s && other.req.SessionID != s.req.SessionID {
		return &Denied{Rule: "the sandbox id in the reply belongs to another session"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sandbox != "" && s.sandbox != id {
		return &Denied{Rule: "the session already has another sandbox"}
	}
	s.sandbox = id
	s.b.claimed[id] = s
	return nil
}

// Close forgets the session's values, captures and claim on the sandbox id.
func (s *Session) Close() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b.claimed[s.sandbox] == s {
		delete(s.b.claimed, s.sandbox)
	}
	for _, v := range s.armed {
		s.b.guard.remove(v)
	}
	s.captures, s.armed, s.closed = map[string]secret.Value{}, nil, true
}

// safeSandboxID reports whether an id may be put into paths, host names and
// headers as it is.
func safeSandboxID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return id != "." && id != ".."
}

// note counts a reply that needed redaction and reports whether it is one too
// many.
func (s *Session) note() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redacted++
	return s.redacted > MaxRedactedReplies
}

// exhausted reports whether the plugin has used up the session's redacted
// replies.
func (s *Session) exhausted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redacted > MaxRedactedReplies
}

// arm makes v something the plugin must not see.
func (s *Session) arm(name string, v secret.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range s.armed {
		if have.Equal(v) {
			return
		}
	}
	if s.closed {
		return
	}
	s.armed = append(s.armed, v)
	s.b.guard.add(name, v)
}

// Find reports the name of a value that text holds, whole or in part.
func (s *Session) Find(text string) (string, bool) { return s.sight.find(text) }

// Arm makes values something the plugin must not see, for the rest of the
// session.
func (s *Session) Arm(env secret.Env) {
	for name, v := range env.All() {
		s.arm(name, v)
	}
}
