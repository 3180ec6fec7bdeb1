package redact_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/redact"
)

// dice turns fuzz input into choices; when it runs out everything is zero.
type dice struct{ data []byte }

func (d *dice) roll(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	c := d.data[0]
	d.data = d.data[1:]
	return int(c) % n
}

func (d *dice) text(letters string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[d.roll(len(letters))]
	}
	return string(b)
}

// Small alphabets make occurrences overlap, share prefixes and touch the
// characters that widen them.
var letters = []string{"ab", "abc", `ab\n`, `a\`, "aB1+-/", "a b1", "abcdefgh", "ab\n\"\\u"}

func (d *dice) needle(alphabet string) redact.RawNeedle {
	size := 4 + d.roll(9)
	if d.roll(8) == 0 {
		size += d.roll(40)
	}
	n := redact.RawNeedle{Text: d.text(alphabet, size), Name: string(rune('0' + d.roll(5)))}
	switch d.roll(6) {
	case 0:
		n.Bound = true
	case 1:
		n.Left = sextets(d.text(alphabet, 2))
	case 2:
		n.Right = sextets(d.text(alphabet, 2))
	case 3:
		n.Left, n.Right = sextets(d.text(alphabet, 2)), sextets(d.text(alphabet, 2))
	}
	return n
}

// piece is input that often consists of needles, whole, cut and overlapping.
func (d *dice) piece(alphabet string, needles []redact.RawNeedle) string {
	if len(needles) == 0 || d.roll(3) == 0 {
		return d.text(alphabet, d.roll(12))
	}
	t := needles[d.roll(len(needles))].Text
	switch d.roll(4) {
	case 0:
		return t[:d.roll(len(t)+1)]
	case 1:
		return t[d.roll(len(t)+1):]
	default:
		return t
	}
}

// differ feeds one random history to the package and to the model.
func differ(t *testing.T, data []byte) {
	d := &dice{data}
	alphabet := letters[d.roll(len(letters))]
	r := redact.New(redact.Options{Idle: -1})
	switch d.roll(8) {
	case 0:
		r.UseSimple()
	case 1: // of the small engine for as long as nothing widens it
	default:
		r.Widen()
	}
	m := &model{}
	var out strings.Builder
	w := r.Writer(&out)
	history := []string{}
	note := func(format string, args ...any) { history = append(history, fmt.Sprintf(format, args...)) }
	same := func(what, want, got, before string) {
		if want != got { // the story is long, and told seldom
			require.Equal(t, want, got, "%s before %q, after %s", what, before, strings.Join(history, "\n"))
		}
	}
	static, quiet := true, true
	arrived := []int{} // length of the input when needle i was added
	add := func() {
		n := d.needle(alphabet)
		note("add %+v", n)
		r.AddRaw(n)
		m.needles = append(m.needles, n)
		arrived = append(arrived, len(m.text))
	}
	for range 1 + d.roll(6) {
		add()
	}
	for len(d.data) > 0 {
		switch d.roll(16) {
		case 0:
			if len(m.text) > 0 {
				static = false
			}
			add()
		case 1:
			quiet = false
			note("flush")
			require.NoError(t, w.Flush())
			m.flush()
		case 2:
			note("widen")
			r.Widen()
		case 3:
			quiet = false
			note("idle")
			require.NoError(t, w.IdleNow())
			m.idle()
		default:
			p := d.piece(alphabet, m.needles)
			size := max(1, len(p))
			if d.roll(3) == 0 {
				size = 1 // a byte at a time goes a way of its own
			}
			note("write %q in parts of %d", p, size)
			for first := true; first || p != ""; first = false {
				part := []byte(p[:min(size, len(p))])
				p = p[len(part):]
				n, err := w.Write(part)
				require.NoError(t, err)
				require.Equal(t, len(part), n)
				if n > 0 {
					m.write(string(part))
				}
				carry, _ := w.Carry()
				same("what is held", m.text[m.carry:], carry, p)
				same("output", m.out.String(), out.String(), p)
			}
		}
		same("output", m.out.String(), out.String(), "")
	}
	require.NoError(t, w.Close())
	m.close()
	story := strings.Join(history, "\n")
	require.Equal(t, m.out.String(), out.String(), "after %s\nclose", story)
	if m.hits == nil {
		m.hits = map[string]int64{}
	}
	require.Equal(t, m.hits, w.Hits(), story)
	if static && quiet {
		whole := oracle(m.needles, m.text)
		require.Equal(t, whole, out.String(), "output depends on splitting: %s", story)
		require.Equal(t, whole, r.String(m.text), story)
		got, _ := r.Bytes([]byte(m.text))
		require.Equal(t, whole, string(got), story)
		require.Equal(t, whole, string(r.Append(nil, []byte(m.text))), story)
	}
	if !strings.Contains(story, "flush") {
		m.leaks(t, arrived, story)
	}
}

// leaks checks that of every occurrence that came after its needle no more than
// an idle release allows was shown.
func (m *model) leaks(t *testing.T, arrived []int, story string) {
	for k, n := range m.needles {
		if n.Bound {
			continue
		}
		for i := arrived[k]; i+len(n.Text) <= len(m.text); i++ {
			if m.text[i:i+len(n.Text)] != n.Text {
				continue
			}
			count := 0
			for _, s := range m.state[i : i+len(n.Text)] {
				if s == shown {
					count++
				}
			}
			allowed := 0
			if strings.Contains(story, "idle") {
				allowed = min(3, len(n.Text)/2)
				if q := len(n.Text) / 4; len(n.Text)-q >= 12 {
					allowed = max(allowed, q)
				}
			}
			require.LessOrEqual(t, count, allowed, "%d bytes of %q at %d shown after %s", count, n.Text, i, story)
		}
	}
}

// enginesAgree compares the fast engine with the simple one on needles of all
// lengths, repeated and sharing long beginnings, in texts made of them.
func enginesAgree(t *testing.T, data []byte) {
	d := &dice{data}
	alphabet := letters[d.roll(len(letters))]
	var needles []redact.RawNeedle
	shared := d.text(alphabet, d.roll(100))
	for range 1 + d.roll(40) {
		n := redact.RawNeedle{Name: string(rune('0' + d.roll(3)))}
		switch d.roll(5) {
		case 0:
			n.Text = shared + d.text(alphabet, 4+d.roll(20))
		case 1:
			n.Text = strings.Repeat(d.text(alphabet, 1+d.roll(3)), 4+d.roll(60)) + d.text(alphabet, d.roll(2))
		case 2:
			n.Text = d.text(alphabet, 4+d.roll(60))
		default:
			n.Text = d.text(alphabet, 4+d.roll(20))
		}
		n.Bound, n.Right = d.roll(8) == 0, sextets(d.text(alphabet, d.roll(2)))
		needles = append(needles, n)
	}
	var text strings.Builder
	for range 1 + d.roll(60) {
		text.WriteString(d.piece(alphabet, needles))
	}
	simple, fast, simpleHold, fastHold := redact.ScanBoth(needles, text.String())
	require.Equal(t, simpleHold, fastHold, "needles %+v text %q", needles, text.String())
	slices.SortFunc(simple, compareHits)
	slices.SortFunc(fast, compareHits)
	require.Equal(t, simple, fast, "needles %+v text %q", needles, text.String())
}

// loopsAgree does the same for needles that repeat themselves, but for a byte
// here and there, in texts that repeat themselves likewise.
func loopsAgree(t *testing.T, data []byte) {
	d := &dice{data}
	unit := d.text("abc", 1+d.roll(5))
	repeat := func(n int) string {
		b := []byte(strings.Repeat(unit, n/len(unit)+2)[d.roll(len(unit)):][:n])
		for range d.roll(3) {
			b[d.roll(n)] = "abcd"[d.roll(4)]
		}
		return string(b)
	}
	var needles []redact.RawNeedle
	for range 1 + d.roll(5) {
		n := redact.RawNeedle{Name: string(rune('0' + d.roll(3))), Text: repeat(20 + d.roll(250))}
		n.Bound, n.Right = d.roll(8) == 0, sextets(d.text("abc", d.roll(2)))
		needles = append(needles, n)
		if d.roll(8) == 0 {
			n.Name = "twin"
			needles = append(needles, n)
		}
	}
	var text strings.Builder
	for range 1 + d.roll(8) {
		text.WriteString(repeat(1 + d.roll(250)))
	}
	simple, fast, simpleHold, fastHold := redact.ScanBoth(needles, text.String())
	require.Equal(t, simpleHold, fastHold, "needles %+v text %q", needles, text.String())
	slices.SortFunc(simple, compareHits)
	slices.SortFunc(fast, compareHits)
	require.Equal(t, simple, fast, "needles %+v text %q", needles, text.String())

	whole := oracle(needles, text.String())
	r := redact.New(redact.Options{Idle: -1})
	r.Widen()
	r.AddRaw(needles...)
	require.Equal(t, whole, r.String(text.String()))
	var out strings.Builder
	w := r.Writer(&out)
	for rest := text.String(); rest != ""; {
		n := min(len(rest), 1+d.roll(200))
		_, err := w.Write([]byte(rest[:n]))
		require.NoError(t, err)
		rest = rest[n:]
	}
	require.NoError(t, w.Close())
	require.Equal(t, whole, out.String(), "needles %+v text %q", needles, text.String())
}

func TestLoopsAgree(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(37, 38))
	for range 300 {
		data := make([]byte, 20+rng.IntN(200))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		loopsAgree(t, data)
	}
}

func compareHits(a, b redact.ScanHit) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), strings.Compare(a.Name, b.Name))
}

func TestEnginesAgree(t *testing.T) {
	t.Parallel()
	rounds := 2000
	if testing.Short() {
		rounds = 500
	}
	rng := rand.New(rand.NewPCG(17, 18))
	for range rounds {
		data := make([]byte, 20+rng.IntN(2000))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		enginesAgree(t, data)
	}
}

// The fast engine has a filter for each order of magnitude of needles.
func TestEnginesAgreeOnMany(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(35, 36))
	for _, n := range []int{5, 15, 100, 2000, 8000, 16000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			needles := make([]redact.RawNeedle, n)
			var text strings.Builder
			for i := range needles {
				needles[i] = redact.RawNeedle{Text: token(rng, 18+rng.IntN(20)), Name: "N", Bound: i%7 == 0}
				text.WriteString(needles[i].Text[:len(needles[i].Text)-rng.IntN(2)])
				text.WriteString(token(rng, rng.IntN(9)))
			}
			for _, end := range []int{0, 1, 2, 3, 4, 5, 8, 17, 18, 19} {
				all := text.String() + needles[n/2].Text[:end]
				simple, fast, simpleHold, fastHold := redact.ScanBoth(needles, all)
				require.Equal(t, simpleHold, fastHold)
				slices.SortFunc(simple, compareHits)
				slices.SortFunc(fast, compareHits)
				require.True(t, slices.Equal(simple, fast))
				require.Greater(t, len(fast), n/4)
				if n > 100 {
					break
				}
			}
		})
	}
}

func FuzzEngines(f *testing.F) {
	rng := rand.New(rand.NewPCG(19, 20))
	for range 20 {
		data := make([]byte, 20+rng.IntN(1000))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4000 {
			return
		}
		enginesAgree(t, data)
	})
}

func FuzzLoops(f *testing.F) {
	rng := rand.New(rand.NewPCG(39, 40))
	for range 20 {
		data := make([]byte, 20+rng.IntN(200))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 500 {
			return
		}
		loopsAgree(t, data)
	})
}

func TestDifferential(t *testing.T) {
	t.Parallel()
	rounds := 8000
	if testing.Short() {
		rounds = 2000
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		data := make([]byte, 20+rng.IntN(300))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		differ(t, data)
	}
}

func FuzzDifferential(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		data := make([]byte, 20+rng.IntN(200))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1000 {
			return
		}
		differ(t, data)
	})
}
