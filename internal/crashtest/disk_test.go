//go:build linux

package crashtest

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// disk is a provider whose sandboxes are directories, so that they outlive every
// process, as those of an engine or a service do. A command is a file operation.
// Between the parts of what it does it takes a step, where a test may kill it.
type disk struct {
	dir    string
	shared bool // replacements use the storage of what they replace
	step   func(string)
}

// box is what is kept of a sandbox.
type box struct {
	ID, Name, Digest, Volume string
	Labels                   map[string]string
	State                    provider.State
	CreatedAt                time.Time
}

func newDisk(dir string, shared bool, step func(string)) (*disk, error) {
	d := &disk{dir: dir, shared: shared, step: step}
	for _, sub := range []string{"boxes", "volumes", "trash"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *disk) box(id string) string     { return filepath.Join(d.dir, "boxes", id+".json") }
func (d *disk) volume(v string) string   { return filepath.Join(d.dir, "volumes", v) }
func (d *disk) trash(name string) string { return filepath.Join(d.dir, "trash", name) }

func (d *disk) Describe() provider.Description {
	return provider.Description{
		Name:       "disk",
		Transports: []provider.TransportInfo{{Transport: provider.TransportExec}},
		Exec: provider.ExecCapabilities{Stream: true, Stdin: provider.StdinNone, Stderr: provider.StderrSeparate,
			Kill: provider.KillTree, PartialOnTimeout: true, BackgroundSafe: true},
		Features: provider.Features{NetworkNone: provider.SupportEnforced, WorkspaceMove: provider.SupportEnforced,
			SharedWorkspace: d.shared},
		DefaultNetwork: "none", Survives: true, IsolatesExecs: true,
	}
}

// put stores a box, whole or not at all.
func (d *disk) put(b box) error {
	doc, err := json.Marshal(b)
	if err != nil {
		return err
	}
	tmp := d.trash("new-" + b.ID)
	if err := os.WriteFile(tmp, doc, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, d.box(b.ID))
}

func (d *disk) all() ([]box, error) {
	names, err := filepath.Glob(d.box("*"))
	if err != nil {
		return nil, err
	}
	var out []box
	for _, name := range names {
		doc, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var b box
		if err == nil {
			err = json.Unmarshal(doc, &b)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func (d *disk) Create(_ context.Context, req provider.CreateRequest) (provider.Sandbox, error) {
	if err := provider.ValidateCreate(req); err != nil {
		return nil, err
	}
	boxes, err := d.all()
	if err != nil {
		return nil, err
	}
	attempt := req.Labels[provider.LabelAttempt]
	for _, b := range boxes {
		if b.Labels[provider.LabelSession] == req.SessionID && (req.Replaces == nil || b.Labels[provider.LabelAttempt] == attempt) {
			if b.Digest != req.Digest {
				return nil, provider.Errorf(provider.Conflict, "create", "another one is there")
			}
			return diskSandbox{d, b.ID}, nil
		}
	}
	b := box{ID: "box-" + attempt[:16], Name: req.Name, Digest: req.Digest, Volume: "vol-" + attempt[:16], Labels: req.Labels,
		State: provider.StateRunning, CreatedAt: time.Now()}
	d.step("create: asked")
	if d.shared && req.Replaces != nil {
		old, err := d.find("create", req.Replaces.ID)
		if err != nil {
			return nil, err
		}
		b.Volume = old.Volume
	}
	if err := d.put(b); err != nil {
		return nil, err
	}
	d.step("create: there")
	if req.Checkpoint != nil {
		if err := req.Checkpoint(provider.Ref{ID: b.ID}); err != nil {
			_ = d.Destroy(context.Background(), provider.Ref{ID: b.ID})
			return nil, err
		}
	}
	if err := os.MkdirAll(d.volume(b.Volume), 0o700); err != nil {
		return nil, err
	}
	d.step("create: complete")
	return diskSandbox{d, b.ID}, nil
}

func (d *disk) find(op, id string) (box, error) {
	doc, err := os.ReadFile(d.box(id))
	if err != nil {
		return box{}, &provider.Error{Code: provider.NotFound, Op: op, Message: "no such sandbox", Applied: provider.AppliedNo}
	}
	var b box
	return b, json.Unmarshal(doc, &b)
}

func (d *disk) Open(_ context.Context, ref provider.Ref) (provider.Sandbox, error) {
	if _, err := d.find("open", ref.ID); err != nil {
		return nil, err
	}
	return diskSandbox{d, ref.ID}, nil
}

func (d *disk) List(_ context.Context, q provider.Query) ([]provider.Resource, error) {
	boxes, err := d.all()
	out := []provider.Resource{}
	for _, b := range boxes {
		if (q.Owner == "" || b.Labels[provider.LabelOwner] == q.Owner) && (q.Session == "" || b.Labels[provider.LabelSession] == q.Session) {
			out = append(out, provider.Resource{Ref: provider.Ref{ID: b.ID}, Name: b.Name, Labels: b.Labels, State: b.State, CreatedAt: b.CreatedAt})
		}
	}
	return out, err
}

func (d *disk) Destroy(_ context.Context, ref provider.Ref) error {
	b, err := d.find("destroy", ref.ID)
	if provider.CodeOf(err) == provider.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	d.step("destroy: asked")
	boxes, err := d.all()
	if err != nil {
		return err
	}
	used := slices.ContainsFunc(boxes, func(o box) bool { return o.ID != b.ID && o.Volume == b.Volume })
	if !used {
		// While the box is there, what is left of its storage can be found.
		if err := os.RemoveAll(d.volume(b.Volume)); err != nil {
			return err
		}
		d.step("destroy: storage gone")
	}
	if err := os.Remove(d.box(b.ID)); err != nil {
		return err
	}
	d.step("destroy: gone")
	return nil
}

// diskSandbox is one of disk's.
type diskSandbox struct {
	d  *disk
	id string
}

func (s diskSandbox) Ref() provider.Ref { return provider.Ref{ID: s.id} }

func (s diskSandbox) Status(context.Context) (provider.Status, error) {
	b, err := s.d.find("status", s.id)
	return provider.Status{State: b.State}, err
}

func (s diskSandbox) set(op string, state provider.State) error {
	b, err := s.d.find(op, s.id)
	if err != nil {
		return err
	}
	b.State = state
	s.d.step(op)
	return s.d.put(b)
}

func (s diskSandbox) Pause(context.Context) error  { return s.set("pause", provider.StatePaused) }
func (s diskSandbox) Resume(context.Context) error { return s.set("unpause", provider.StateRunning) }

// root is where the files are.
func (s diskSandbox) root(op string) (string, error) {
	b, err := s.d.find(op, s.id)
	return s.d.volume(b.Volume), err
}

// Exec knows "write FILE TEXT" and "reveal FILE NAME", which writes a variable.
func (s diskSandbox) Exec(_ context.Context, req provider.ExecRequest) (provider.Process, error) {
	if st, err := s.Status(context.Background()); err != nil || st.State != provider.StateRunning {
		return nil, provider.Errorf(provider.FailedPrecondition, "exec", "it does not run")
	}
	root, err := s.root("exec")
	if err != nil {
		return nil, err
	}
	text := []byte(req.Args[2])
	if req.Args[0] == "reveal" {
		v, _ := req.Protected.Get(req.Args[2])
		text = v.Reveal()
	}
	if err := os.WriteFile(filepath.Join(root, req.Args[1]), text, 0o600); err != nil {
		return nil, err
	}
	s.d.step("exec: done")
	return ended{}, nil
}

// ended is a command that has run.
type ended struct{}

func (ended) Stdin() io.WriteCloser                     { return nil }
func (ended) Signal(context.Context, string) error      { return nil }
func (ended) Kill(context.Context, time.Duration) error { return nil }
func (ended) Wait(context.Context) (provider.Exit, error) {
	return provider.Exit{Kind: provider.ExitExited, TreeDead: true}, nil
}

func (s diskSandbox) Files() provider.FS { return diskFiles{s} }

// diskFiles are a sandbox's files.
type diskFiles struct{ s diskSandbox }

func (f diskFiles) at(op, path string) (string, error) {
	root, err := f.s.root(op)
	return filepath.Join(root, filepath.Clean("/"+path)), err
}

func (f diskFiles) Open(_ context.Context, path string) (io.ReadCloser, provider.FileInfo, error) {
	at, err := f.at("files.open", path)
	if err != nil {
		return nil, provider.FileInfo{}, err
	}
	r, err := os.Open(at)
	if err != nil {
		return nil, provider.FileInfo{}, &provider.Error{Code: provider.NotFound, Op: "files.open", Applied: provider.AppliedNo}
	}
	return r, provider.FileInfo{Name: filepath.Base(path), Path: path}, nil
}

func (f diskFiles) Write(_ context.Context, path string, content io.Reader, _ provider.WriteOptions) error {
	at, err := f.at("files.write", path)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	tmp := f.s.d.trash("file-" + f.s.id)
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, at)
}

var errUnused = provider.Errorf(provider.Unsupported, "files", "not needed here")

func (f diskFiles) List(context.Context, string) ([]provider.FileInfo, error) { return nil, errUnused }
func (f diskFiles) Stat(context.Context, string) (provider.FileInfo, error) {
	return provider.FileInfo{}, errUnused
}
func (f diskFiles) Remove(context.Context, string, bool) error       { return errUnused }
func (f diskFiles) Mkdir(context.Context, string, fs.FileMode) error { return errUnused }

func (s diskSandbox) Export(_ context.Context, w io.Writer) error {
	root, err := s.root("export")
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	if err := tw.AddFS(os.DirFS(root)); err != nil {
		return err
	}
	return tw.Close()
}

func (s diskSandbox) Import(_ context.Context, r io.Reader) error {
	root, err := s.root("import")
	if err != nil {
		return err
	}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || strings.Contains(h.Name, "..") {
			continue
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, h.Name), data, 0o600); err != nil {
			return err
		}
		s.d.step("import: one file")
	}
}
