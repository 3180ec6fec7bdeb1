package host

import (
	"fmt"

	"github.com/sbxhost/sbxhost/manifest"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/sbxhost/sbxhost/redact"
	"github.com/sbxhost/sbxhost/secret"
)

// requestSecrets are the request-scoped values that a session has seen. They
// stay armed in its redactor as long as it lives: what was printed or written
// once can be seen again.
type requestSecrets struct {
	known map[string][]secret.Value
	count int
}

// armRequest makes the redactor know values before a command gets them.
func (s *Session) armRequest(env secret.Env) error {
	if env.Len() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := map[string]secret.Value{}
	for name, v := range env.All() {
		if !s.request.has(name, v) {
			fresh[name] = v
		}
	}
	if limit := s.h.limits.RequestSecrets; s.request.count+len(fresh) > limit {
		return refusal(provider.ResourceExhausted, opExec, fmt.Sprintf("the session has seen its limit of %d request-scoped values", limit), "make a new session")
	}
	refused := s.redactor.AddEnv(secret.NewEnv(fresh))
	s.boundary.armed.Store(true)
	for name, v := range fresh {
		s.request.add(name, v)
	}
	s.h.unmaskable(s.redactor, s.id, s.reg.name, refused)
	return nil
}

func (r *requestSecrets) has(name string, v secret.Value) bool {
	for _, k := range r.known[name] {
		if k.Equal(v) {
			return true
		}
	}
	return false
}

func (r *requestSecrets) add(name string, v secret.Value) {
	if r.known == nil {
		r.known = map[string][]secret.Value{}
	}
	r.known[name] = append(r.known[name], v)
	r.count++
}

// unmaskable reports values that are in force and cannot be redacted.
func (h *Host) unmaskable(clean *redact.Redactor, session, providerName string, refused []redact.Refused) {
	for _, r := range refused {
		h.events.emit(Record{Time: h.clock(), Kind: KindRedaction, Operation: "unmaskable", Host: h.id, Session: session,
			Provider: providerName, Names: []string{r.Name}, Reason: r.Reason}, clean)
	}
}

// execPairs are the pairs whose values each command is given.
func (s *Session) execPairs() []manifest.Pair {
	if s.transport.Transport != provider.TransportExec {
		return nil
	}
	return s.manifest.Pairs()
}
