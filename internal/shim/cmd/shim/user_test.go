//go:build linux

package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sbxhost/sbxhost/internal/shim/wire"
)

func source(b []byte, step int) lineSource {
	return func(each func([]byte) bool) error {
		rest := b
		return split(func(p []byte) (int, error) {
			n := copy(p, rest[:min(len(rest), step)])
			rest = rest[n:]
			return n, nil
		}, make([]byte, 64), each)
	}
}

// FuzzLines: the lines are those that a plain split finds, but for those that are
// too long, however the file is read.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), 1)
	f.Add(append(bytes.Repeat([]byte("x"), 200), "\nend\n"...), 7)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		step = max(1, step%100)
		var got, want [][]byte
		if err := source(in, step)(func(l []byte) bool { got = append(got, bytes.Clone(l)); return true }); err != nil {
			t.Fatal(err)
		}
		all := bytes.Split(in, []byte{'\n'})
		if len(all[len(all)-1]) == 0 {
			all = all[:len(all)-1]
		}
		for _, l := range all {
			if len(l) < 64 {
				want = append(want, l)
			}
		}
		if !slices.EqualFunc(got, want, bytes.Equal) {
			t.Fatalf("%q instead of %q", got, want)
		}
	})
}

// FuzzResolve: whatever the image's files say, a number keeps its id, nobody becomes
// root by a name that is not root's, and ids stay in range.
func FuzzResolve(f *testing.F) {
	f.Add("app:staff", []byte("root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home:/bin/sh\n"), []byte("staff:x:50:app\n"))
	f.Add("1000", []byte("app:x:99999999999:4294967295::rel:/bin/sh\n"), []byte("::\n:::\n"))
	f.Fuzz(func(t *testing.T, spec string, passwd, group []byte) {
		a, err := resolve(spec, source(passwd, 50), source(group, 50))
		if err != nil {
			return
		}
		if a.uid > maxAccountID || a.gid > maxAccountID || len(a.groups) > maxGroups || a.home == "" || a.home[0] != '/' {
			t.Fatalf("%+v", a)
		}
		user, _, _ := bytes.Cut([]byte(spec), []byte{':'})
		if id, ok := number(user); ok && a.uid != id {
			t.Fatalf("%q is %d", spec, a.uid)
		}
		if a.uid == 0 && len(user) > 0 && !bytes.Equal(user, []byte("root")) {
			if id, ok := number(user); (!ok || id != 0) && !bytes.Contains(passwd, append(bytes.Clone(user), ':')) {
				t.Fatalf("%q is root", spec)
			}
		}
	})
}

// FuzzStartRequest: what PID 1 hands on is setup, arguments, environment, perhaps a
// directory, and go, in this order and nothing behind it.
func FuzzStartRequest(f *testing.F) {
	good := wire.Append(wire.Append(wire.Append(wire.Append(nil, wire.Setup, []byte{1}), wire.Args, nil), wire.Env, nil), wire.Go, nil)
	f.Add(good)
	f.Add(append(bytes.Clone(good), wire.Append(nil, wire.Kill, []byte{0, 0, 0, 0})...))
	f.Add(wire.Append(nil, wire.Go, nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		if !startRequest(bytes.Clone(in)) {
			return
		}
		d := wire.Decoder{From: wire.FromHost}
		d.Feed(in)
		var types []byte
		for {
			fr, ok, err := d.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if fr.Type != wire.Dir {
				types = append(types, byte(fr.Type))
			}
		}
		if string(types) != "JAEG" || d.Buffered() != 0 {
			t.Fatalf("%q", types)
		}
	})
}
