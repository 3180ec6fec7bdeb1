package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// deadline bounds every wait of these tests.
const deadline = 2 * time.Minute

// screen collects what a terminal program shows.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// wait waits until the text has been shown.
func (s *screen) wait(t *testing.T, text string) {
	t.Helper()
	end := time.Now().Add(deadline)
	for !strings.Contains(s.String(), text) {
		if time.Now().After(end) {
			t.Fatalf("%q was never shown, but:\n%s", text, s.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}
