package local

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cgroups are the control groups below our own that we may write. They are used
// only for what no resource limit can do: memory and CPU of a whole sandbox.
// Putting a process into one costs more than the rest of a create.
type cgroups struct {
	unified     string            // version 2, with memory and cpu enabled for children
	controllers map[string]string // version 1: memory, cpu → our own group
}

// findCgroups returns nil when there is no group we may make children in.
func findCgroups() *cgroups {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	c := &cgroups{controllers: map[string]string{}}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		part := strings.SplitN(line, ":", 3)
		if len(part) != 3 {
			continue
		}
		if part[1] == "" {
			dir := filepath.Join("/sys/fs/cgroup", part[2])
			if has(filepath.Join(dir, "cgroup.subtree_control"), "memory", "cpu") {
				c.unified = dir
			}
			continue
		}
		for _, name := range strings.Split(part[1], ",") {
			if name == "memory" || name == "cpu" {
				dir := filepath.Join("/sys/fs/cgroup", name, part[2])
				if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil { //nolint:gosec // the kernel says where our own group is
					continue
				}
				c.controllers[name] = dir
			}
		}
	}
	if c.unified == "" && (c.controllers["memory"] == "" || c.controllers["cpu"] == "") {
		return nil
	}
	// A name of its own: two Providers that are made at once must not take each
	// other's group away.
	g, err := c.make("sbxhost-probe-"+strconv.Itoa(os.Getpid())+"-"+rand.Text(), 64<<20, 1)
	if err != nil {
		return nil
	}
	if g.remove() != nil {
		return nil
	}
	return c
}

func has(file string, words ...string) bool {
	b, err := os.ReadFile(file) //nolint:gosec // the kernel says where our own group is
	if err != nil {
		return false
	}
	f := strings.Fields(string(b))
	for _, w := range words {
		found := false
		for _, x := range f {
			found = found || x == w
		}
		if !found {
			return false
		}
	}
	return true
}

// cgroup is the group of one sandbox.
type cgroup struct{ dirs []string }

const cpuPeriod = 100000 // microseconds

// make creates a group with the limits that are not zero.
func (c *cgroups) make(name string, memory int64, cpus float64) (*cgroup, error) {
	g := &cgroup{}
	fail := func(err error) (*cgroup, error) {
		_ = g.remove()
		return nil, err
	}
	quota := strconv.FormatInt(int64(cpus*cpuPeriod), 10)
	if c.unified != "" {
		dir := filepath.Join(c.unified, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return nil, err
		}
		g.dirs = append(g.dirs, dir)
		if memory > 0 {
			if err := set(dir, "memory.max", strconv.FormatInt(memory, 10)); err != nil {
				return fail(err)
			}
			_ = set(dir, "memory.swap.max", "0")
		}
		if cpus > 0 {
			if err := set(dir, "cpu.max", quota+" "+strconv.Itoa(cpuPeriod)); err != nil {
				return fail(err)
			}
		}
		return g, nil
	}
	if memory > 0 {
		dir := filepath.Join(c.controllers["memory"], name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return fail(err)
		}
		g.dirs = append(g.dirs, dir)
		if err := set(dir, "memory.limit_in_bytes", strconv.FormatInt(memory, 10)); err != nil {
			return fail(err)
		}
		_ = set(dir, "memory.memsw.limit_in_bytes", strconv.FormatInt(memory, 10))
	}
	if cpus > 0 {
		dir := filepath.Join(c.controllers["cpu"], name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return fail(err)
		}
		g.dirs = append(g.dirs, dir)
		if err := set(dir, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod)); err != nil {
			return fail(err)
		}
		if err := set(dir, "cpu.cfs_quota_us", quota); err != nil {
			return fail(err)
		}
	}
	return g, nil
}

// enter puts a process into the group; what it starts is in it too.
func (g *cgroup) enter(pid int) error {
	for _, d := range g.dirs {
		if err := set(d, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// ranOut reports whether the kernel has killed something of the group for its memory.
func (g *cgroup) ranOut() bool {
	for _, d := range g.dirs {
		for _, file := range []string{"memory.events", "memory.oom_control"} { // of version 2, and 1
			b, err := os.ReadFile(filepath.Join(d, file))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(b)) {
				if n, is := strings.CutPrefix(line, "oom_kill "); is && strings.TrimSpace(n) != "0" {
					return true
				}
			}
		}
	}
	return false
}

// remove removes the group. Its last process may still be on its way out.
func (g *cgroup) remove() error {
	var first error
	for _, d := range g.dirs {
		err := os.Remove(d)
		for i := 0; err != nil && !os.IsNotExist(err) && i < 50; i++ {
			time.Sleep(2 * time.Millisecond)
			err = os.Remove(d)
		}
		if err != nil && !os.IsNotExist(err) && first == nil {
			first = err
		}
	}
	return first
}

func set(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
