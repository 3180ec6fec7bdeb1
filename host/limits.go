package host

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Limits bounds what a host runs at once and how long it waits. Zero fields
// take the default; negative ones mean no limit, where that is allowed.
type Limits struct {
	Live           int // sessions, those being made included; default 16,384
	Pending        int // sessions being made; default 256
	Execs          int // running commands; default 4,096
	RequestSecrets int // request-scoped values per session; default, and at most, 1,000

	ExecTimeout time.Duration // of a command that does not say; default 10 min; not negative
	Output      int64         // kept bytes per output stream; default 10 MiB
	File        int64         // bytes that ReadFile returns; default 64 MiB

	CreateTimeout time.Duration // of a provider's create, image pulls included, and again of its files; default 15 min
	CallTimeout   time.Duration // of any other provider call; default 2 min; not negative
}

const maxRequestSecrets = 1000

func (l Limits) withDefaults() (Limits, error) {
	setInt := func(v *int, def int) {
		if *v == 0 {
			*v = def
		} else if *v < 0 {
			*v = math.MaxInt
		}
	}
	setInt(&l.Live, 16384)
	setInt(&l.Pending, 256)
	setInt(&l.Execs, 4096)
	if l.RequestSecrets == 0 {
		l.RequestSecrets = maxRequestSecrets
	}
	setInt64 := func(v *int64, def int64) {
		if *v == 0 {
			*v = def
		} else if *v < 0 {
			*v = math.MaxInt64
		}
	}
	setInt64(&l.Output, 10<<20)
	setInt64(&l.File, 64<<20)
	setTime := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	setTime(&l.ExecTimeout, 10*time.Minute)
	setTime(&l.CreateTimeout, 15*time.Minute)
	setTime(&l.CallTimeout, 2*time.Minute)
	switch {
	case l.RequestSecrets < 0 || l.RequestSecrets > maxRequestSecrets:
		return l, invalid("new", "Limits.RequestSecrets must be 1 to 1,000", "")
	case l.ExecTimeout < 0:
		return l, invalid("new", "Limits.ExecTimeout must not be negative: every command has a deadline", "")
	case l.CallTimeout < 0:
		return l, invalid("new", "Limits.CallTimeout must not be negative: no provider call may hang", "")
	}
	return l, nil
}

// slots counts what is in use. A slot is reserved before the work that needs it
// begins, so that a limit holds whatever runs at the same time.
type slots struct {
	max           int
	what, setting string

	mu   sync.Mutex
	used int
}

// reserve takes a slot, or fails with ResourceExhausted.
func (s *slots) reserve(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.max {
		return refusal(provider.ResourceExhausted, op, fmt.Sprintf("the limit of %d %s is reached", s.max, s.what),
			"wait for one to end, or raise "+s.setting)
	}
	s.used++
	return nil
}

func (s *slots) release() {
	s.mu.Lock()
	s.used--
	s.mu.Unlock()
}
