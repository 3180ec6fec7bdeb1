package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise of A\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
`

func TestSummary(t *testing.T) {
	t.Parallel()
	pass := `{"Action":"pass","Package":"p","Elapsed":0.1}` + "\n"
	fail := `{"Action":"output","Package":"p","Test":"TestB","Output":"B broke\n"}
{"Action":"fail","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":0.1}
`
	skipped := `{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:3: no engine\n"}
{"Action":"output","Package":"p","Test":"TestC","Output":"--- SKIP: TestC (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestC","Elapsed":0}
`
	build := `{"ImportPath":"q","Action":"build-output","Output":"q.go:1: does not compile\n"}
{"ImportPath":"q","Action":"build-fail"}
{"Action":"fail","Package":"q","Elapsed":0,"FailedBuild":"q"}
`
	for _, tc := range []struct {
		name, in   string
		failOnSkip bool
		ok         bool
		has, lacks []string
	}{
		{"pass", events + pass, true, true, []string{"ok  \tp", "PASS: 1 passed, 0 failed, 0 skipped"}, []string{"noise of A"}},
		{"fail", events + fail, false, false, []string{"B broke", "FAIL\tp", "1 failed"}, []string{"noise of A"}},
		{"skip is loud", events + skipped + pass, false, true, []string{"NOT TESTED HERE: 1", "p TestC: c_test.go:3: no engine"}, nil},
		{"skip fails", events + skipped + pass, true, false, []string{"skipped tests are not allowed"}, nil},
		{"build failure", events + pass + build, false, false, []string{"does not compile", "FAIL\tq"}, nil},
		{"nothing ran", "", false, false, []string{"no package was tested"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := newSummary(&out, false)
			require.NoError(t, s.read(strings.NewReader(tc.in)))
			assert.Equal(t, tc.ok, s.finish(tc.failOnSkip))
			for _, h := range tc.has {
				assert.Contains(t, out.String(), h)
			}
			for _, l := range tc.lacks {
				assert.NotContains(t, out.String(), l)
			}
		})
	}
}

// Whoever has only the end of a log has to find what failed there, and why.
func TestSummaryEndsWithFailures(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	for i := range linesOfFailure + 7 {
		fmt.Fprintf(&in, `{"Action":"output","Package":"p","Test":"TestB","Output":"line %d of B\n"}`+"\n", i)
	}
	in.WriteString(`{"Action":"fail","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":0.1}
`)
	var out bytes.Buffer
	s := newSummary(&out, true)
	require.NoError(t, s.read(strings.NewReader(in.String()+events)))
	require.False(t, s.finish(false))
	_, end, found := strings.Cut(out.String(), "FAIL\tp\t0.100s\n")
	require.True(t, found, out.String())
	assert.Contains(t, end, "FAILED: p TestB\n(7 lines before these)\nline 7 of B\n")
	assert.Contains(t, end, fmt.Sprintf("line %d of B\nFAIL: ", linesOfFailure+6))
	assert.NotContains(t, end, "noise of A")
}

func TestSummaryVerbosePrintsEverything(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newSummary(&out, true)
	require.NoError(t, s.read(strings.NewReader(events+`{"Action":"pass","Package":"p","Elapsed":0.1}`+"\n")))
	assert.True(t, s.finish(true))
	assert.Contains(t, out.String(), "noise of A")
	assert.Contains(t, out.String(), "=== RUN   TestA")
}
