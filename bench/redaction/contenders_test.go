package redaction_test

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	bobusumisu "github.com/BobuSumisu/aho-corasick"
	"github.com/buildkite/agent/v3/benchbridge"
	cloudflare "github.com/cloudflare/ahocorasick"
	coregx "github.com/coregx/ahocorasick"
	petar "github.com/petar-dambovaliev/aho-corasick"
)

// contender masks what it is given. Only the streaming ones find what lies across
// two writes.
type contender struct {
	name      string
	streaming bool
	most      int // needles; more would take minutes
	make      func(s set) func(p []byte) error
}

const mark = "[redacted]"

var marker = []byte(mark)

func writer(w io.Writer) func([]byte) error {
	return func(p []byte) error {
		_, err := w.Write(p)
		return err
	}
}

// span is a part of a write that is to be masked.
type span struct{ from, to int }

// masked writes p with the spans masked, which are in order of their beginnings;
// overlapping ones become one.
func masked(p []byte, spans []span) error {
	done := 0
	for i, s := range spans {
		if s.to <= done {
			continue
		}
		if s.from > done || i == 0 {
			if _, err := io.Discard.Write(p[done:s.from]); err != nil {
				return err
			}
			if _, err := io.Discard.Write(marker); err != nil {
				return err
			}
		}
		done = s.to
	}
	_, err := io.Discard.Write(p[done:])
	return err
}

var errNUL = errors.New("the log holds a NUL")

// contenders, ours first. The first two and no others are exact over a stream.
func contenders() []contender {
	return []contender{
		{name: "sbxhost", streaming: true, make: func(s set) func([]byte) error { return writer(s.redact.Writer(io.Discard)) }},
		{name: "buildkite", streaming: true, make: func(s set) func([]byte) error {
			w, _ := benchbridge.NewRedactor(io.Discard, s.needles)
			return writer(w)
		}},
		{name: "strings.NewReplacer", make: func(s set) func([]byte) error {
			var pairs []string
			for _, n := range s.needles {
				pairs = append(pairs, n, mark)
			}
			r := strings.NewReplacer(pairs...)
			return func(p []byte) error {
				_, err := r.WriteString(io.Discard, string(p))
				return err
			}
		}},
		{name: "bytes.ReplaceAll", make: func(s set) func([]byte) error {
			var needles [][]byte
			for _, n := range s.needles {
				needles = append(needles, []byte(n))
			}
			return func(p []byte) error {
				for _, n := range needles {
					p = bytes.ReplaceAll(p, n, marker)
				}
				_, err := io.Discard.Write(p)
				return err
			}
		}},
		{name: "petar-dambovaliev", make: func(s set) func([]byte) error {
			// As an automaton of states without failures while it fits.
			b := petar.NewAhoCorasickBuilder(petar.Opts{DFA: len(s.needles) <= 1000, MatchKind: petar.LeftMostLongestMatch})
			ac := b.Build(s.needles)
			return func(p []byte) error {
				var spans []span
				for it := ac.IterByte(p); ; {
					m := it.Next()
					if m == nil {
						return masked(p, spans)
					}
					spans = append(spans, span{m.Start(), m.End()})
				}
			}
		}},
		{name: "coregx", make: func(s set) func([]byte) error {
			a, err := coregx.NewBuilder().AddStrings(s.needles).SetMatchKind(coregx.LeftmostLongest).Build()
			if err != nil {
				return func([]byte) error { return err }
			}
			return func(p []byte) error {
				var spans []span
				for _, m := range a.FindAll(p, -1) {
					spans = append(spans, span{m.Start, m.End})
				}
				return masked(p, spans)
			}
		}},
		{name: "BobuSumisu", make: func(s set) func([]byte) error {
			t := bobusumisu.NewTrieBuilder().AddStrings(s.needles).Build()
			return func(p []byte) error {
				var spans []span
				for _, m := range t.Match(p) {
					spans = append(spans, span{int(m.Pos()), int(m.Pos()) + len(m.Match())})
				}
				slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
				return masked(p, spans)
			}
		}},
		// Says which needles occur, not where: half the work.
		{name: "cloudflare-occurs-only", make: func(s set) func([]byte) error {
			m := cloudflare.NewStringMatcher(s.needles)
			return func(p []byte) error {
				m.Match(p)
				_, err := io.Discard.Write(p)
				return err
			}
		}},
		{name: "regexp", most: 100, make: func(s set) func([]byte) error {
			var quoted []string
			for _, n := range s.needles {
				quoted = append(quoted, regexp.QuoteMeta(n))
			}
			re := regexp.MustCompile(strings.Join(quoted, "|"))
			return func(p []byte) error {
				_, err := io.Discard.Write(re.ReplaceAllLiteral(p, marker))
				return err
			}
		}},
		// Ceilings: they mask nothing.
		{name: "IndexByte", make: func(set) func([]byte) error {
			return func(p []byte) error {
				if bytes.IndexByte(p, 0) >= 0 {
					return errNUL
				}
				return nil
			}
		}},
		{name: "copy", make: func(set) func([]byte) error {
			buf := make([]byte, 32<<10)
			return func(p []byte) error {
				copy(buf, p)
				return nil
			}
		}},
	}
}
