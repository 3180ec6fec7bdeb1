package local_test

import (
	"context"
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sbxhost/sbxhost/builtin/local"
	"github.com/sbxhost/sbxhost/provider"
	"github.com/stretchr/testify/require"
)

// medians runs each step in turn, so that all see the same machine, and reports
// the median of each in microseconds, and ratios to the first.
func medians(b *testing.B, names []string, steps ...func()) {
	b.Helper()
	times := make([][]time.Duration, len(steps))
	for b.Loop() {
		for i, f := range steps {
			t := time.Now()
			f()
			times[i] = append(times[i], time.Since(t))
		}
	}
	var first time.Duration
	for i, t := range times {
		slices.Sort(t)
		m := t[len(t)/2]
		if i == 0 {
			first = m
		}
		b.ReportMetric(float64(m.Nanoseconds())/1e3, names[i]+"-µs")
		if i > 0 && first > 0 {
			b.ReportMetric(float64(m)/float64(first), names[i]+"/"+names[0])
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkExec runs true by os/exec, in a sandbox of each level, and in a fresh
// bubblewrap where it is installed.
func BenchmarkExec(b *testing.B) {
	path, err := exec.LookPath("true")
	require.NoError(b, err)
	names := []string{"os-exec"}
	steps := []func(){func() {
		if err := exec.Command(path).Run(); err != nil {
			b.Fatal(err)
		}
	}}
	for _, level := range []local.Level{local.LevelNamespaces, local.LevelLandlock} {
		p, err := local.New(local.Options{StateDir: b.TempDir(), Level: level})
		if err != nil {
			b.Logf("%s: %v", level, err)
			continue
		}
		sb, err := p.Create(b.Context(), request(session()))
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, p.Destroy(context.Background(), sb.Ref())) })
		names = append(names, string(level))
		steps = append(steps, func() { runTrue(b, sb, path) })
	}
	if bwrap, err := exec.LookPath("bwrap"); err == nil {
		names = append(names, "bwrap")
		steps = append(steps, func() {
			if err := exec.Command(bwrap, "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib",
				"--symlink", "usr/lib64", "/lib64", "--symlink", "usr/bin", "/bin", "--proc", "/proc", "--dev", "/dev", path).Run(); err != nil {
				b.Fatal(err)
			}
		})
	}
	medians(b, names, steps...)
}

// BenchmarkLifecycle measures create and destroy of a sandbox.
func BenchmarkLifecycle(b *testing.B) {
	for _, level := range []local.Level{local.LevelNamespaces, local.LevelLandlock} {
		b.Run(string(level), func(b *testing.B) {
			p, err := local.New(local.Options{StateDir: b.TempDir(), Level: level})
			require.NoError(b, err)
			var sb provider.Sandbox
			medians(b, []string{"create", "destroy"},
				func() {
					if sb, err = p.Create(b.Context(), request(session())); err != nil {
						b.Fatal(err)
					}
				},
				func() {
					if err := p.Destroy(b.Context(), sb.Ref()); err != nil {
						b.Fatal(err)
					}
				})
		})
	}
}

func runTrue(tb testing.TB, sb provider.Sandbox, path string) {
	p, err := sb.Exec(tb.Context(), provider.ExecRequest{ID: "bench", Args: []string{path}, Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		tb.Fatal(err)
	}
	if exit, err := p.Wait(tb.Context()); err != nil || exit.Kind != provider.ExitExited || exit.Code != 0 {
		tb.Fatal(exit, err)
	}
}
