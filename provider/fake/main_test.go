package fake_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// patient waits for goroutines that end by themselves, longer than goleak does: on a
// busy machine that takes its time.
type patient struct{ *testing.M }

func (p patient) Run() int {
	code := p.M.Run()
	for until := time.Now().Add(30 * time.Second); code == 0 && goleak.Find() != nil && time.Now().Before(until); {
	}
	return code
}
