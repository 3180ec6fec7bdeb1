package plugintest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/hook"
	"github.com/sbxhost/sbxhost/provider"
)

// errnosOf are the failures an import can report. Imports that are not here
// always succeed.
var errnosOf = map[string][]abi.Errno{
	"in_read":     {abi.ErrnoInvalid},
	"out_write":   {abi.ErrnoTooLarge},
	"checkpoint":  {abi.ErrnoIo, abi.ErrnoDenied},
	"http_open":   {abi.ErrnoNetwork, abi.ErrnoNoCapture, abi.ErrnoDenied},
	"http_status": {abi.ErrnoBadf},
	"http_header": {abi.ErrnoNotFound},
	"http_read":   {abi.ErrnoTruncated, abi.ErrnoTooLarge},
	"http_next":   {abi.ErrnoTruncated, abi.ErrnoDenied},
	"http_close":  {abi.ErrnoBadf},
	"emit":        {abi.ErrnoIo},
	"log":         {abi.ErrnoLimit},
	"random":      {abi.ErrnoIo},
}

// maxSteps bounds how many imports of one operation are failed: all of a short
// operation, evenly chosen ones of a long one.
const maxSteps = 24

// spy watches, and fails, the imports of one operation.
type spy struct {
	mu    sync.Mutex
	op    abi.Op
	names []string // what was called, in order
	fail  int      // index to fail, -1 none
	errno abi.Errno
	hit   bool
	first func(name string) // called at each import of op
}

func (s *spy) hooks() *hook.Hooks {
	return &hook.Hooks{Import: func(op abi.Op, name string) (int64, bool) {
		s.mu.Lock()
		if op != s.op {
			s.mu.Unlock()
			return 0, false
		}
		i := len(s.names)
		s.names = append(s.names, name)
		fail, errno, first := s.fail == i, s.errno, s.first
		s.hit = s.hit || fail
		s.mu.Unlock()
		if first != nil {
			first(name)
		}
		return int64(errno), fail
	}}
}

// arm begins to watch op; fail is the index of the import to fail with errno.
func (s *spy) arm(op abi.Op, fail int, errno abi.Errno, first func(string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.op, s.names, s.fail, s.errno, s.hit, s.first = op, nil, fail, errno, false, first
}

func (s *spy) disarm() { s.arm(-1, -1, 0, nil) }

func (s *spy) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.names...)
}

// errnos fails each import of each operation in turn.
func (k *kit) errnos(ctx context.Context) {
	for _, a := range k.actions() {
		k.check(ctx, "errno/"+a.op.String(), "when an import fails the operation ends in an error of the plugin's own or works all the same; it never traps, breaks the interface, or claims what is not so", 3*time.Minute, func(t *t) {
			s := &spy{fail: -1}
			p := k.open(t, s.hooks())
			w := k.build(t, p, a)
			s.arm(a.op, -1, 0, nil)
			lie, err := k.act(t, a, w)
			names := s.seen()
			s.disarm()
			if err != nil || lie != "" {
				t.fatalf("with nothing disturbed it failed: %v %s", err, lie)
			}
			if a.fresh {
				k.tear(t, w)
				w = nil
			}
			steps := 0
			for i := 0; i < len(names); i += max(1, len(names)/maxSteps) {
				for _, errno := range errnosOf[names[i]] {
					if w == nil {
						w = k.build(t, p, a)
					}
					s.arm(a.op, i, errno, nil)
					lie, err := k.act(t, a, w)
					s.disarm()
					what := fmt.Sprintf("import %d, %s, failing with %s", i+1, names[i], errno.Error())
					if why := broke(err); why != "" && err != errLost {
						t.errorf("%s: %s", what, why)
					}
					if err == nil && lie != "" {
						t.errorf("%s: the plugin claims that %s, and it is not so", what, lie)
					}
					steps++
					if a.fresh {
						k.tear(t, w)
						w = nil
					}
				}
			}
			if w != nil {
				k.healthy(t, p)
				k.tear(t, w)
			}
			t.notef("%d failures of %d imports", steps, len(names))
		})
	}
}

// fresh loads the plugin for a check as another process would.
func (k *kit) fresh(t *t, h *hook.Hooks, trace func(string, []byte), log *slog.Logger) loaded {
	p, err := k.load(t.ctx, h, trace, log)
	t.must(err, "Load")
	t.cleanup(func() {
		if err := p.Close(); err != nil {
			t.errorf("Close failed: %s", err)
		}
	})
	return p
}

// act runs an action under the usual deadline.
func (k *kit) act(t *t, a action, w *world) (lie string, err error) {
	within(t.ctx, opTimeout, func(ctx context.Context) { lie, err = a.run(ctx, k, w) })
	if err != nil && err != errLost && !strings.Contains(err.Error(), "EOF") && provider.CodeOf(err) == "" {
		t.errorf("an error without a code: %s", err)
	}
	return lie, err
}
