package local

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lowestFD keeps the program's descriptor out of the way of those that a child's
// are put at.
const lowestFD = 64

// program is the supervisor in a form that can be executed.
type program struct {
	path string
	file *os.File // a sealed file in memory, closed with the last Provider
}

// loadProgram puts the supervisor into a sealed file in memory, which nobody can
// change or find; where such a file cannot be executed, into a file of dir.
func loadProgram(bin []byte, dir string) (*program, error) {
	if fd, err := unix.MemfdCreate("sbx-shim", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC); err == nil {
		if p := memoryProgram(fd, bin); p != nil {
			return p, nil
		}
	} else if fd, err := unix.MemfdCreate("sbx-shim", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err == nil {
		if p := memoryProgram(fd, bin); p != nil { // before Linux 6.3
			return p, nil
		}
	}
	return fileProgram(bin, dir)
}

func memoryProgram(low int, bin []byte) *program {
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, lowestFD)
	_ = unix.Close(low)
	if err != nil {
		return nil
	}
	p := newProgram(fd)
	if _, err := p.file.Write(bin); err != nil {
		return nil
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil
	}
	if !p.runs() {
		return nil
	}
	return p
}

// newProgram takes fd over; it is closed when the program is not used any more.
func newProgram(fd int) *program {
	p := &program{path: "/proc/self/fd/" + strconv.Itoa(fd), file: os.NewFile(uintptr(fd), "sbx-shim")}
	runtime.AddCleanup(p, func(f *os.File) { _ = f.Close() }, p.file)
	return p
}

// runs tries the program: without arguments it ends at once with its own code.
func (p *program) runs() bool {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = null.Close() }()
	start := func() (*os.Process, error) {
		return os.StartProcess(p.path, []string{"sbx-shim"}, &os.ProcAttr{Files: []*os.File{null, null, null}, Env: []string{}})
	}
	proc, err := start()
	for i := 0; errors.Is(err, unix.ETXTBSY) && i < 50; i++ {
		// A child that is being made elsewhere still has the file open for
		// writing.
		time.Sleep(time.Millisecond)
		proc, err = start()
	}
	if err != nil {
		return false
	}
	st, err := proc.Wait()
	return err == nil && st.ExitCode() == 125
}

func fileProgram(bin []byte, dir string) (*program, error) {
	var r [8]byte
	_, _ = rand.Read(r[:])
	path := filepath.Join(dir, ".shim")
	tmp := path + "-" + hex.EncodeToString(r[:])
	// A child that is being made elsewhere would have it open for writing, too.
	syscall.ForkLock.RLock()
	err := os.WriteFile(tmp, bin, 0o555)
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, path); err != nil {
		_ = os.Remove(tmp)
		return nil, err
	}
	// By descriptor: root's jails are another user's, to whom the directory is
	// closed.
	low, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, lowestFD)
	_ = unix.Close(low)
	if err != nil {
		return nil, err
	}
	p := newProgram(fd)
	if !p.runs() {
		return nil, &os.PathError{Op: "exec", Path: path, Err: unix.EACCES}
	}
	return p, nil
}

// starter starts supervisors from one thread that lives as long as any of them:
// the kernel sends the parent-death signal when the thread that made the process
// ends, not when the process does.
type starter struct {
	mu    sync.Mutex
	users int
	work  chan func()
}

// hold keeps the thread alive until the returned function is called.
func (s *starter) hold() (do func(func()), release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		s.work = make(chan func())
		go func(work chan func()) {
			runtime.LockOSThread()
			for f := range work {
				f()
			}
		}(s.work)
	}
	s.users++
	work := s.work
	do = func(f func()) {
		done := make(chan struct{})
		work <- func() { defer close(done); f() }
		<-done
	}
	return do, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 {
			close(s.work)
		}
	})
}
