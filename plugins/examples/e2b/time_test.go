package main

import (
	"testing"
	"time"
)

func TestUnix(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"1970-01-01T00:00:00Z", "2000-02-29T23:59:59Z", "2024-12-31T12:00:00.123456Z", "2026-03-01T00:00:01Z", "2100-02-28T00:00:00Z"} {
		want, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := unix(s); got != want.Unix() {
			t.Errorf("unix(%q) = %d, want %d", s, got, want.Unix())
		}
	}
	for _, s := range []string{"", "yesterday", "2024-12-31T12:00:00+01:00", "20x4-12-31T12:00:00Z"} {
		if got := unix(s); got != 0 {
			t.Errorf("unix(%q) = %d, want 0", s, got)
		}
	}
}
