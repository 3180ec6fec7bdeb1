package local

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sbxhost/sbxhost/provider"
)

// Providers that are made at the same time find the same control groups.
func TestProvidersMadeAtOnce(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 || findCgroups() == nil {
		t.Skip("there are no control groups that could be found")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				assert.NotNil(t, findCgroups())
			}
		})
	}
	wg.Wait()
}

// To look whether a sandbox is held holds nothing, and a lock that was given back is
// free, also while processes are made elsewhere, which inherit every descriptor for a
// moment.
func TestLookingHoldsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	take := func() error {
		lock, err := lockDir(dir)
		if err == nil {
			unlock(lock)
		}
		return err
	}
	require.NoError(t, take())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				// As a jail is made: the child waits until its user is mapped.
				p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
					Cloneflags:  unix.CLONE_NEWUSER,
					UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
				}})
				if assert.NoError(t, err) {
					_, _ = p.Wait()
				}
			}
		})
	}
	for range 1000 {
		if !assert.False(t, heldElsewhere(dir)) || !assert.NoError(t, take()) {
			break
		}
	}
	close(stop)
	wg.Wait()
}

// Whether somebody holds a sandbox that cannot be looked at is not known, and then it
// is not nobody's.
func TestUnknownIsHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	assert.False(t, heldElsewhere(dir), "it has no lock")
	assert.False(t, heldElsewhere(dir+"/none"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, lockFile), 0o700))
	assert.True(t, heldElsewhere(dir))
}

// A file operation in a sandbox that is destroyed meanwhile fails, or does not; it
// never uses a descriptor that is closed and may be something else by now.
func TestFilesOfTheDestroyed(t *testing.T) {
	t.Parallel()
	p, err := New(Options{StateDir: t.TempDir(), Level: LevelNamespaces})
	require.NoError(t, err)
	for i := range 5 {
		id := strings.Repeat(strconv.Itoa(i), 32)
		sb, err := p.Create(t.Context(), provider.CreateRequest{
			SessionID: id, Name: provider.NamePrefix + id, Digest: "sha256:test", Root: "/workspace", Network: "none", Start: "idle",
			Labels: map[string]string{
				provider.LabelOwner: "owner", provider.LabelEpoch: "1", provider.LabelSession: id,
				provider.LabelAttempt: id, provider.LabelDigest: "sha256:test", provider.LabelProtected: "0",
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = sb.Files().Stat(ctx, ".")
				}
			})
		}
		assert.NoError(t, p.Destroy(t.Context(), sb.Ref()))
		cancel()
		wg.Wait()
	}
}
