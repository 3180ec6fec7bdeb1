//go:build linux

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func mountinfo(points ...string) lineSource {
	return func(each func([]byte) bool) error {
		for _, p := range append([]string{"/"}, points...) {
			if !each([]byte("36 35 98:0 /source " + p + " rw,noatime master:1 - ext4 /dev/root rw")) {
				break
			}
		}
		return nil
	}
}

func TestFillEmpty(t *testing.T) {
	t.Parallel()
	write := func(content string) func(string) error {
		return func(p string) error { return os.WriteFile(p, []byte(content), 0o644) }
	}
	broken := func(func([]byte) bool) error { return syscall.EIO }
	for _, tc := range []struct {
		name   string
		make   func(path string) error
		mounts func(path string) lineSource
		want   string
	}{
		{name: "empty", make: write(""), want: "ours\n"},
		{name: "with content", make: write("theirs\n"), want: "theirs\n"},
		{name: "mounted", make: write(""), mounts: func(p string) lineSource { return mountinfo(p) }},
		{name: "mounted above", make: write(""), mounts: func(p string) lineSource { return mountinfo(filepath.Dir(p)) }},
		{name: "beside a mount", make: write(""), mounts: func(p string) lineSource { return mountinfo(p+"name", "/") }, want: "ours\n"},
		{name: "mounts that cannot be read", make: write(""), mounts: func(string) lineSource { return broken }},
		{name: "no mounts at all", make: write(""), mounts: func(string) lineSource { return func(func([]byte) bool) error { return nil } }},
		{name: "malformed mounts", make: write(""), mounts: func(string) lineSource {
			return func(each func([]byte) bool) error { each([]byte("x y")); return nil }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "hosts")
			if err := tc.make(path); err != nil {
				t.Fatal(err)
			}
			mounts := mountinfo()
			if tc.mounts != nil {
				mounts = tc.mounts(path)
			}
			fillEmpty(path, "ours\n", mounts)
			got, err := os.ReadFile(path)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// What is no regular file is left alone, and nothing waits for a reader.
func TestFillEmptyLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim, link, fifo := filepath.Join(dir, "victim"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	for _, err := range []error{os.WriteFile(victim, nil, 0o644), os.Symlink(victim, link), syscall.Mkfifo(fifo, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{link, fifo, dir, filepath.Join(dir, "none")} {
		fillEmpty(p, "ours\n", mountinfo())
	}
	if got, err := os.ReadFile(victim); err != nil || len(got) > 0 {
		t.Errorf("a link was followed: %q, %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Error("a file was made")
	}
}
