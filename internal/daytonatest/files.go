package daytonatest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fileTarget resolves the named query parameter; it answers when it cannot.
func (c *call) fileTarget(name string, follow bool) (d *daemon, inSandbox, onHost string, ok bool) {
	d = c.daemon()
	if d == nil {
		return nil, "", "", false
	}
	if !c.r.URL.Query().Has(name) || c.query(name) == "" && name != "path" {
		c.failFile(http.StatusBadRequest, "", name+" is required")
		return nil, "", "", false
	}
	p, err := d.jail.resolve(d.absolute(c.query(name)), follow)
	if err != nil {
		c.fileProblem(err)
		return nil, "", "", false
	}
	return d, p, d.jail.root() + p, true
}

// fileProblem answers with the status of a file error.
func (c *call) fileProblem(err error) {
	text := reasonOf(err)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		c.failFile(http.StatusNotFound, "FILE_NOT_FOUND", text)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		c.failFile(http.StatusForbidden, "FILE_ACCESS_DENIED", text)
	default:
		c.failFile(http.StatusBadRequest, "", text)
	}
}

// describe is a file as the daemon shows it; links are followed.
func describe(info os.FileInfo) map[string]any {
	var uid, gid uint32
	uid, gid = owner(info)
	return map[string]any{"name": info.Name(), "size": info.Size(), "mode": info.Mode().String(),
		"modTime": info.ModTime().String(), "modifiedAt": info.ModTime().UTC().Format(time.RFC3339), "isDir": info.IsDir(),
		"owner": strconv.Itoa(int(uid)), "group": strconv.Itoa(int(gid)), "permissions": fmt.Sprintf("%04o", info.Mode().Perm())}
}

func (c *call) listFiles() {
	d := c.daemon()
	if d == nil {
		return
	}
	name := c.query("path")
	p, err := d.jail.resolve(d.absolute(name), true)
	if err != nil {
		c.fileProblem(err)
		return
	}
	root := d.jail.root()
	entries, err := os.ReadDir(root + p)
	if errors.Is(err, syscall.ENOTDIR) {
		c.failFile(http.StatusBadRequest, "", "not a directory") // a missing parent is 404
		return
	}
	if err != nil {
		c.fileProblem(err)
		return
	}
	out := []any{}
	for _, e := range entries {
		at, err := d.jail.resolve(path.Join(p, e.Name()), true)
		if err != nil {
			continue
		}
		info, err := os.Lstat(root + at)
		if err != nil {
			continue // a dangling link is left out
		}
		o := describe(info)
		o["name"] = e.Name()
		out = append(out, o)
	}
	c.json(http.StatusOK, out)
}

func (c *call) fileInfo() {
	_, _, file, ok := c.fileTarget("path", true)
	if !ok {
		return
	}
	info, err := os.Lstat(file)
	if err != nil {
		c.fileProblem(err)
		return
	}
	c.json(http.StatusOK, describe(info))
}

func (c *call) deleteFile() {
	_, p, file, ok := c.fileTarget("path", false)
	if !ok {
		return
	}
	info, err := os.Lstat(file)
	switch {
	case err != nil:
		c.fileProblem(err)
		return
	case p == "/":
		c.failFile(http.StatusBadRequest, "", "cannot delete the root directory")
		return
	case info.IsDir() && c.query("recursive") != "true":
		c.failFile(http.StatusBadRequest, "", "cannot delete directory without recursive flag")
		return
	}
	if err := os.RemoveAll(file); err != nil {
		c.fileProblem(err)
		return
	}
	c.empty(http.StatusNoContent)
}

func (c *call) download() {
	_, p, file, ok := c.fileTarget("path", true)
	if !ok {
		return
	}
	f, err := os.Open(file)
	if err != nil {
		c.fileProblem(err)
		return
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		c.fileProblem(err)
		return
	}
	if info.IsDir() {
		c.failFile(http.StatusBadRequest, "", "path is a directory")
		return
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(p)}))
	if _, short := c.s.faults.is(ShortDownload, c.op, c.sb); short {
		_, _ = io.CopyN(c.w, f, info.Size()/2) // without a length: nothing tells
		return
	}
	http.ServeContent(c.w, c.r, path.Base(p), info.ModTime(), f)
}

func (c *call) bulkDownload() {
	var in struct {
		Paths []string `json:"paths"`
	}
	d := c.daemon()
	if d == nil || !c.decode(&in) {
		return
	}
	if len(in.Paths) == 0 {
		c.failFile(http.StatusBadRequest, "", "request body must be {\"paths\": [ ... ]} and non-empty")
		return
	}
	w := multipart.NewWriter(c.w)
	c.w.Header().Set("Content-Type", "multipart/form-data; boundary="+w.Boundary())
	c.w.WriteHeader(http.StatusOK)
	_, short := c.s.faults.is(ShortDownload, c.op, c.sb)
	for _, name := range in.Paths {
		c.downloadPart(d, w, name, short)
	}
	if _, open := c.s.faults.is(NoBoundary, c.op, c.sb); open {
		return
	}
	_ = w.Close()
}

func (c *call) downloadPart(d *daemon, w *multipart.Writer, name string, short bool) {
	fail := func(status int, code, text string) {
		h := textproto.MIMEHeader{}
		h.Set("Content-Type", "application/json")
		h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": "error", "filename": name}))
		part, err := w.CreatePart(h)
		if err == nil {
			_, _ = fmt.Fprintf(part, `{"statusCode":%d,"code":%q,"message":%q}`, status, code, text)
		}
	}
	p, err := d.jail.resolve(d.absolute(name), true)
	if err != nil {
		fail(http.StatusBadRequest, "INVALID_PATH", reasonOf(err))
		return
	}
	f, err := os.Open(d.jail.root() + p)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		fail(http.StatusNotFound, "FILE_NOT_FOUND", "file not found")
		return
	case err != nil:
		fail(http.StatusForbidden, "FILE_ACCESS_DENIED", reasonOf(err))
		return
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		fail(http.StatusBadRequest, "INVALID_PATH", "path is a directory")
		return
	}
	h := textproto.MIMEHeader{}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": name}))
	h.Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	part, err := w.CreatePart(h)
	if err != nil {
		return
	}
	if short {
		_, _ = io.CopyN(part, f, info.Size()/2)
		return
	}
	_, _ = io.Copy(part, f)
}

// write puts one uploaded file in place, parents included.
func (c *call) write(d *daemon, name string, content io.Reader) (string, int64, error) {
	p, err := d.jail.resolve(d.absolute(name), true)
	if err != nil {
		return "", 0, err
	}
	if err := d.mkdirs(path.Dir(p), 0o755); err != nil {
		return "", 0, err
	}
	file := d.jail.root() + p
	_, statErr := os.Lstat(file)
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return "", 0, err
	}
	if statErr != nil {
		d.own(file)
	}
	if _, half := c.s.faults.is(PartialUpload, c.op, c.sb); half {
		data, _ := io.ReadAll(content)
		content = bytes.NewReader(data[:len(data)/2])
	}
	n, err := io.Copy(f, content)
	return p, n, errors.Join(err, f.Close())
}

// own gives a new file to the sandbox's user.
func (d *daemon) own(file string) { _ = os.Lchown(file, int(d.jail.uid), int(d.jail.gid)) }

// mkdirs makes a directory, given without symbolic links, and its parents.
func (d *daemon) mkdirs(dir string, mode fs.FileMode) error {
	at := ""
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if part == "" {
			continue
		}
		at += "/" + part
		file := d.jail.root() + at
		info, err := os.Stat(file)
		if err == nil {
			if !info.IsDir() {
				return &fs.PathError{Op: "mkdir", Path: at, Err: syscall.ENOTDIR}
			}
			continue
		}
		if err := os.Mkdir(file, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		d.own(file)
	}
	return nil
}

// upload is the single upload: files/upload of v0.190 and files/upload-v2.
func (c *call) upload() {
	d := c.daemon()
	if d == nil {
		return
	}
	r, err := c.r.MultipartReader()
	if err != nil || c.query("path") == "" {
		c.failFile(http.StatusBadRequest, "", "a path and a multipart body are required")
		return
	}
	for {
		part, err := r.NextPart()
		if err != nil {
			c.failFile(http.StatusBadRequest, "", "the body has no field file")
			return
		}
		if part.FormName() != "file" {
			continue
		}
		p, _, err := c.write(d, c.query("path"), part)
		if err != nil {
			c.fileProblem(err)
			return
		}
		if c.s.current() {
			c.json(http.StatusOK, map[string]any{"name": path.Base(p), "path": p, "type": "file"})
			return
		}
		c.empty(http.StatusOK)
		return
	}
}

var uploadField = regexp.MustCompile(`^files\[(\d+)\]\.(path|file)$`)

// bulkUpload writes files as they arrive; each path comes before its file.
func (c *call) bulkUpload() {
	d := c.daemon()
	if d == nil {
		return
	}
	r, err := c.r.MultipartReader()
	if err != nil {
		c.failFile(http.StatusBadRequest, "", "invalid multipart form")
		return
	}
	paths := map[string]string{}
	files, problems := []any{}, []any{}
	for {
		part, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			problems = append(problems, "reading part: "+err.Error())
			break
		}
		m := uploadField.FindStringSubmatch(part.FormName())
		switch {
		case m == nil:
			continue
		case m[2] == "path":
			data, err := io.ReadAll(io.LimitReader(part, 4096))
			if err != nil {
				problems = append(problems, fmt.Sprintf("path[%s]: %v", m[1], err))
			}
			paths[m[1]] = string(data)
			continue
		}
		name, ok := paths[m[1]]
		if !ok || name == "" {
			problems = append(problems, fmt.Sprintf("file[%s]: missing .path metadata", m[1]))
			continue
		}
		p, n, err := c.write(d, name, part)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s", name, reasonOf(err)))
			continue
		}
		files = append(files, map[string]any{"path": p, "bytes": n})
	}
	if len(problems) > 0 {
		c.json(http.StatusBadRequest, map[string]any{"errors": problems, "files": files})
		return
	}
	c.json(http.StatusOK, map[string]any{"files": files})
}

func parseMode(text string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o7777 {
		return 0, errors.New("invalid mode: " + text)
	}
	m := fs.FileMode(n & 0o777)
	for bit, f := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if n&bit != 0 {
			m |= f
		}
	}
	return m, nil
}

func (c *call) folder() {
	d, p, _, ok := c.fileTarget("path", true)
	if !ok {
		return
	}
	mode := fs.FileMode(0o755)
	if text := c.query("mode"); text != "" {
		m, err := parseMode(text)
		if err != nil {
			c.failFile(http.StatusBadRequest, "", err.Error())
			return
		}
		mode = m
	}
	if err := d.mkdirs(p, mode); err != nil {
		c.failFile(http.StatusBadRequest, "", reasonOf(err))
		return
	}
	c.empty(http.StatusCreated)
}

func (c *call) moveFile() {
	_, _, from, ok := c.fileTarget("source", false)
	if !ok {
		return
	}
	d, p, to, ok := c.fileTarget("destination", false)
	if !ok {
		return
	}
	if _, err := os.Lstat(from); err != nil {
		c.fileProblem(err)
		return
	}
	if _, err := os.Lstat(to); err == nil {
		c.failFile(http.StatusConflict, "", "destination already exists")
		return
	}
	if err := d.mkdirs(path.Dir(p), 0o755); err != nil {
		c.fileProblem(err)
		return
	}
	if err := os.Rename(from, to); err != nil {
		c.fileProblem(err)
		return
	}
	c.empty(http.StatusOK)
}

func (c *call) permissions() {
	_, _, file, ok := c.fileTarget("path", true)
	if !ok {
		return
	}
	if text := c.query("mode"); text != "" {
		m, err := parseMode(text)
		if err != nil {
			c.failFile(http.StatusBadRequest, "", err.Error())
			return
		}
		if err := os.Chmod(file, m); err != nil {
			c.fileProblem(err)
			return
		}
	}
	uid, gid := -1, -1
	for name, to := range map[string]*int{"owner": &uid, "group": &gid} {
		text := c.query(name)
		if text == "" {
			continue
		}
		id, ok := c.accountID(name, text)
		if !ok {
			c.failFile(http.StatusBadRequest, "", "unknown "+name+": "+text)
			return
		}
		*to = id
	}
	if uid >= 0 || gid >= 0 {
		if err := os.Chown(file, uid, gid); err != nil {
			c.fileProblem(err)
			return
		}
	}
	if _, err := os.Lstat(file); err != nil {
		c.fileProblem(err)
		return
	}
	c.empty(http.StatusOK)
}

// accountID looks a name or number up in the sandbox's own database.
func (c *call) accountID(kind, name string) (int, bool) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, n >= 0
	}
	d := c.sb.running()
	if d == nil {
		return 0, false
	}
	data, _ := os.ReadFile(d.jail.root() + map[string]string{"owner": "/etc/passwd", "group": "/etc/group"}[kind])
	for line := range strings.Lines(string(data)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) > 2 && f[0] == name {
			n, err := strconv.Atoi(f[2])
			return n, err == nil
		}
	}
	return 0, false
}

// walk calls f for each file under a directory of the sandbox; links are not
// followed.
func (c *call) walk(f func(inSandbox, onHost string, e fs.DirEntry)) bool {
	_, p, dir, ok := c.fileTarget("path", true)
	if !ok {
		return false
	}
	if c.query("pattern") == "" {
		c.failFile(http.StatusBadRequest, "", "pattern is required")
		return false
	}
	if _, err := os.Stat(dir); err != nil {
		c.failFile(http.StatusBadRequest, "", reasonOf(err))
		return false
	}
	_ = filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		if err == nil {
			f(path.Join(p, strings.TrimPrefix(at, dir)), at, e)
		}
		return nil
	})
	return true
}

func (c *call) searchFiles() {
	files := []string{}
	if c.walk(func(p, _ string, e fs.DirEntry) {
		if ok, err := path.Match(c.query("pattern"), e.Name()); err == nil && ok {
			files = append(files, p)
		}
	}) {
		c.json(http.StatusOK, map[string]any{"files": files})
	}
}

func (c *call) findInFiles() {
	matches := []any{}
	if c.walk(func(p, host string, e fs.DirEntry) {
		if !e.Type().IsRegular() {
			return
		}
		data, err := os.ReadFile(host)
		if err != nil || bytes.IndexByte(data, 0) >= 0 {
			return
		}
		n := 0
		for line := range strings.Lines(string(data)) {
			if n++; strings.Contains(line, c.query("pattern")) {
				matches = append(matches, map[string]any{"file": p, "line": n, "content": strings.TrimRight(line, "\r\n")})
			}
		}
	}) {
		c.json(http.StatusOK, matches)
	}
}

func (c *call) replaceInFiles() {
	var in struct {
		Files    []string `json:"files"`
		Pattern  string   `json:"pattern"`
		NewValue *string  `json:"newValue"`
	}
	d := c.daemon()
	if d == nil || !c.decode(&in) {
		return
	}
	if in.Pattern == "" || in.NewValue == nil || in.Files == nil {
		c.failFile(http.StatusBadRequest, "", "files, pattern and newValue are required")
		return
	}
	out := []any{}
	for _, name := range in.Files {
		result := map[string]any{"file": name, "success": true}
		if err := replaceIn(d, name, in.Pattern, *in.NewValue); err != nil {
			result["success"], result["error"] = false, reasonOf(err)
		}
		out = append(out, result)
	}
	c.json(http.StatusOK, out)
}

func replaceIn(d *daemon, name, pattern, value string) error {
	p, err := d.jail.resolve(d.absolute(name), true)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(d.jail.root() + p)
	if err != nil {
		return err
	}
	return os.WriteFile(d.jail.root()+p, []byte(strings.ReplaceAll(string(data), pattern, value)), 0o644)
}

// ReadFile reads a file of a sandbox (id or name, running or stopped) by its
// absolute path in it, past the toolbox.
func (s *Server) ReadFile(sandbox, name string) ([]byte, error) {
	s.mu.Lock()
	sb := s.find(sandbox)
	var j *jail
	if sb != nil {
		j = sb.jail
	}
	s.mu.Unlock()
	switch {
	case sb == nil:
		return nil, fmt.Errorf("there is no sandbox %s", sandbox)
	case j == nil:
		return os.ReadFile(filepath.Join(sb.dir, "root", path.Clean("/"+name)))
	}
	p, err := j.resolve(name, true)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(j.root() + p)
}
