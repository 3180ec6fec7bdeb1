package daytona

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// Files implements provider.Sandbox. The service's own file calls follow links
// wherever they lead, so every path is walked by a script in the sandbox, as its
// user; only contents travel through the file calls.
func (sb *sandbox) Files() provider.FS { return &files{sb} }

type files struct{ sb *sandbox }

// walk is the beginning of every script: it goes to the root, and step goes one
// component further without leaving it. What fails is said by one word.
const walk = `
die() { [ -z "${tmp-}" ] || rm -f -- "$tmp"; printf 'E %s' "$1"; exit 0; }
inside() { case $PWD/ in "$r"/*) ;; *) die outside;; esac; }
step() {
  if [ -h "./$1" ] || [ -e "./$1" ]; then
    cd -P -- "./$1" || { [ -d "./$1" ] && die denied; [ -e "./$1" ] && die notdir; die noent; }
    inside
  elif [ -n "$mk" ]; then
    mkdir -- "./$1" || [ -d "./$1" ] || { [ -w . ] && die failed; die denied; }
    cd -P -- "./$1" || die denied
    inside
  else
    die noent
  fi
}
follow() {
  n=0
  while [ -h "./$c" ]; do
    n=$((n+1)); [ $n -le 40 ] || die loop
    t=$(readlink -n -- "./$c"; printf x); t=${t%x}
    case $t in
    /*) d=${t%/*}; c=${t##*/}; cd -P -- "$d/" || die noent;;
    */*) d=${t%/*}; c=${t##*/}; cd -P -- "./$d" || die noent;;
    *) c=$t;;
    esac
    case $c in ''|.) c=.;; ..) cd -P -- .. || die noent; c=.;; esac
    inside
  done
}
say() {
  stat -c '%f %s %Y' -- "$1" || die noent
  printf '\0%s\0' "$2"
  [ ! -h "$1" ] || readlink -n -- "$1"
  printf '\0'
}
mk= tmp=
`

// local makes a path relative to the root into its components; none is the root.
func (f *files) local(op, name string) ([]string, error) {
	if strings.ContainsRune(name, 0) {
		return nil, problem(provider.InvalidArgument, op, "", "a path holds a NUL")
	}
	if path.IsAbs(name) {
		return nil, problem(provider.PermissionDenied, op, name, "an absolute path is outside the root").remedy("use a path relative to the root")
	}
	clean := path.Clean(name)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return nil, problem(provider.PermissionDenied, op, name, "the path leads out of the root")
	}
	if clean == "." {
		return nil, nil
	}
	return strings.Split(clean, "/"), nil
}

// run runs a script after walk, and turns what it says into an error. steps are
// walked first; make says whether missing ones are made.
func (f *files) run(ctx context.Context, op, name string, steps []string, make bool, script string, again bool) (string, error) {
	var b strings.Builder
	b.WriteString(walk)
	b.WriteString("cd -P -- " + quote(f.sb.root) + " || die noroot\nr=$PWD\n")
	if make {
		b.WriteString("umask 022; mk=1\n")
	}
	for _, s := range steps {
		b.WriteString("step " + quote(s) + "\n")
	}
	b.WriteString("mk=\n" + script)
	out, err := f.sb.helper(ctx, helper{op: op, subject: name, script: b.String(), again: again})
	if err != nil {
		return "", err
	}
	word, ok := strings.CutPrefix(out, "E ")
	if !ok {
		return out, nil
	}
	p := func(code provider.Code, message string) error { return problem(code, op, name, message) }
	switch strings.TrimSpace(word) {
	case "noent":
		return "", p(provider.NotFound, "it is not there")
	case "outside":
		return "", p(provider.PermissionDenied, "a link leads out of the root")
	case "denied":
		return "", p(provider.PermissionDenied, "the sandbox's user may not")
	case "notdir":
		return "", p(provider.FailedPrecondition, "it, or something on the way, is not a directory")
	case "isdir":
		return "", p(provider.FailedPrecondition, "it is a directory")
	case "notfile":
		return "", p(provider.FailedPrecondition, "it is not a regular file")
	case "full":
		return "", p(provider.FailedPrecondition, "the directory is not empty")
	case "loop":
		return "", p(provider.FailedPrecondition, "there are too many links")
	case "noroot":
		return "", p(provider.FailedPrecondition, "the root is not there")
	case "short":
		return "", problem(provider.Unavailable, op, name, "the content did not arrive complete, and nothing was changed").remedy("try again; see whether the sandbox's disk is full")
	}
	return "", problem(provider.Internal, op, name, "the sandbox could not do it").applied(provider.AppliedUnknown)
}

// finish is run for a script that says done at its end: what ended it before left
// no word.
func (f *files) finish(ctx context.Context, op, name string, steps []string, make bool, script string, again bool) error {
	out, err := f.run(ctx, op, name, steps, make, script+"\nprintf done", again)
	if err == nil && !strings.HasSuffix(out, "done") {
		err = problem(provider.Unavailable, op, name, "the sandbox did not say that it was done").applied(provider.AppliedUnknown).remedy("look whether it was, and try again")
	}
	return err
}

// encoded decodes a script's output that went through base64, because the
// service cannot carry every byte.
func encoded(op, name, out string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, out))
	if err == nil {
		// A script whose part failed says so in the encoded text.
		return data, nil
	}
	return nil, problem(provider.Internal, op, name, "the sandbox's answer is malformed")
}

// infos reads records of say: "MODE SIZE TIME\n", name, target, each ended by NUL.
func infos(op, dir string, data []byte) ([]provider.FileInfo, error) {
	fields := bytes.Split(data, []byte{0})
	if len(fields)%3 != 1 || len(fields[len(fields)-1]) != 0 {
		return nil, problem(provider.Internal, op, dir, "the sandbox's answer is malformed")
	}
	var out []provider.FileInfo
	for i := 0; i+2 < len(fields); i += 3 {
		numbers := strings.Fields(string(fields[i]))
		if len(numbers) != 3 {
			return nil, problem(provider.Internal, op, dir, "the sandbox's answer is malformed")
		}
		mode, err1 := strconv.ParseUint(numbers[0], 16, 32)
		size, err2 := strconv.ParseInt(numbers[1], 10, 64)
		seconds, err3 := strconv.ParseInt(numbers[2], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, problem(provider.Internal, op, dir, "the sandbox's answer is malformed")
		}
		name := string(fields[i+1])
		info := provider.FileInfo{Name: name, Path: path.Join(dir, name), Size: size, Mode: fileMode(uint32(mode)), ModTime: time.Unix(seconds, 0), Target: string(fields[i+2])}
		if info.Mode.IsDir() {
			info.Size = 0
		}
		out = append(out, info)
	}
	return out, nil
}

// fileMode makes Go's mode of Linux's.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	switch m & 0o170000 {
	case 0o040000:
		mode |= fs.ModeDir
	case 0o120000:
		mode |= fs.ModeSymlink
	case 0o020000:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	case 0o060000:
		mode |= fs.ModeDevice
	case 0o010000:
		mode |= fs.ModeNamedPipe
	case 0o140000:
		mode |= fs.ModeSocket
	}
	for bit, f := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&bit != 0 {
			mode |= f
		}
	}
	return mode
}

// cut takes the last component off.
func cut(steps []string) (parents []string, last string) {
	if len(steps) == 0 {
		return nil, "."
	}
	return steps[:len(steps)-1], steps[len(steps)-1]
}

// Open implements provider.FS.
func (f *files) Open(ctx context.Context, name string) (io.ReadCloser, provider.FileInfo, error) {
	const op = "files.open"
	steps, err := f.local(op, name)
	if err != nil {
		return nil, provider.FileInfo{}, err
	}
	parents, last := cut(steps)
	for attempt := 0; ; attempt++ {
		out, err := f.run(ctx, op, name, parents, false, `c=`+quote(last)+`
[ -h "./$c" ] || [ -e "./$c" ] || die noent
follow
[ -d "./$c" ] && die isdir
[ -e "./$c" ] || die noent
[ -f "./$c" ] || die notfile
[ -r "./$c" ] || die denied
{ say "./$c" "$PWD/$c"; } | base64`, true)
		if err != nil {
			return nil, provider.FileInfo{}, err
		}
		data, err := encoded(op, name, out)
		if err != nil {
			return nil, provider.FileInfo{}, err
		}
		list, err := infos(op, "", data)
		if err != nil || len(list) != 1 {
			return nil, provider.FileInfo{}, problem(provider.Internal, op, name, "the sandbox's answer is malformed")
		}
		at, info := list[0].Name, list[0]
		info.Path = path.Clean(name)
		info.Name = path.Base(info.Path)
		d, err := f.sb.box.Download(ctx, at, -1)
		if err != nil {
			if statusOf(err) == 404 && attempt < 3 {
				continue // replaced meanwhile
			}
			return nil, provider.FileInfo{}, f.sb.explain(ctx, op, name, err, provider.AppliedNo)
		}
		if d.length >= 0 && d.length != info.Size && attempt < 3 {
			_ = d.Close()
			continue // replaced meanwhile
		}
		return &reader{ctx: ctx, d: d, want: info.Size, name: name}, info, nil
	}
}

// reader notices when less arrives than there is.
type reader struct {
	ctx     context.Context // the contract: ctx covers the whole read
	d       *download
	n, want int64
	name    string
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, ctxProblem("files.read", r.name, err, provider.AppliedNo)
	}
	n, err := r.d.Read(p)
	r.n += int64(n)
	switch {
	case err != nil && r.ctx.Err() != nil && (err != io.EOF || r.n < r.want):
		err = ctxProblem("files.read", r.name, r.ctx.Err(), provider.AppliedNo)
	case err == io.EOF && r.n < r.want:
		err = problem(provider.Unavailable, "files.read", r.name, fmt.Sprintf("only %d of %d bytes arrived", r.n, r.want)).remedy("read it again")
	case err != nil && err != io.EOF:
		err = problem(provider.Unavailable, "files.read", r.name, "the connection broke").cause(plain(err)).remedy("read it again")
	}
	return n, err
}

func (r *reader) Close() error { return r.d.Close() }

// Write implements provider.FS. The content is put beside the file first, and
// takes its name when it is complete.
func (f *files) Write(ctx context.Context, name string, content io.Reader, opts provider.WriteOptions) error {
	const op = "files.write"
	steps, err := f.local(op, name)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctxProblem(op, name, ctx.Err(), provider.AppliedNo)
	}
	if len(steps) == 0 {
		return problem(provider.FailedPrecondition, op, name, "it is a directory")
	}
	parents, last := cut(steps)
	tag := random()
	total := int64(0)
	defer f.sb.removeParts(ctx, tag)
	if err := f.sb.upload(ctx, op, tag, content, func(n int) { total += int64(n) }); err != nil {
		return err
	}
	mode := ""
	if opts.Mode != 0 {
		mode = fmt.Sprintf("%o", opts.Mode.Perm())
	}
	return f.finish(ctx, op, name, parents, true, `c=`+quote(last)+` mode=`+mode+`
follow
[ -d "./$c" ] && die isdir
tmp=./.sbxhost-`+tag+`
cat `+file(tag, "p")+`* >"$tmp" || { [ -w . ] && die short; die denied; }
[ "$(($(wc -c <"$tmp")))" = `+strconv.FormatInt(total, 10)+` ] || die short
if [ -z "$mode" ]; then mode=644; [ ! -f "./$c" ] || mode=$(stat -c %a -- "./$c"); fi
chmod "$mode" "$tmp" || die denied
mv -f -- "$tmp" "./$c" || die denied`, false)
}

// removeParts removes what an upload left.
func (sb *sandbox) removeParts(ctx context.Context, tag string) {
	patience := 10 * time.Second
	if ctx.Err() != nil {
		patience = 2 * time.Second // nobody is to wait for it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	_, _ = sb.helper(ctx, helper{op: "clean", again: true, timeout: 10 * time.Second, script: `rm -f -- ` + base + `/` + tag + `.*`})
}

// List implements provider.FS.
func (f *files) List(ctx context.Context, name string) ([]provider.FileInfo, error) {
	const op = "files.list"
	steps, err := f.local(op, name)
	if err != nil {
		return nil, err
	}
	// One process for all entries where find can print them, else a few for each.
	out, err := f.run(ctx, op, name, steps, false, `[ -r . ] || die denied
if [ "$(find . -maxdepth 0 -printf x)" = x ]; then
  find . -mindepth 1 -maxdepth 1 -printf '%y%m %s %T@\0%f\0%l\0'
else
  find . -mindepth 1 -maxdepth 1 -exec sh -c 'for f; do stat -c "%f %s %Y" -- "$f" && { printf "\0%s\0" "${f#./}"; [ ! -h "$f" ] || readlink -n -- "$f"; printf "\0"; }; done' sh {} +
fi | base64`, true)
	if err != nil {
		return nil, err
	}
	data, err := encoded(op, name, out)
	if err != nil {
		return nil, err
	}
	list, err := infos(op, strings.Join(steps, "/"), findModes(data))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b provider.FileInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// kinds of find, as bits of Linux's mode.
var kinds = map[byte]uint64{'f': 0o100000, 'd': 0o040000, 'l': 0o120000, 'c': 0o020000, 'b': 0o060000, 'p': 0o010000, 's': 0o140000}

// findModes turns find's records into those of stat.
func findModes(data []byte) []byte {
	fields := bytes.Split(data, []byte{0})
	for i := 0; i+2 < len(fields); i += 3 {
		f := strings.Fields(string(fields[i]))
		if len(f) != 3 || kinds[f[0][0]] == 0 {
			continue
		}
		// A hexadecimal mode may begin with these letters too, but never with
		// what find prints after them: an octal mode of at most four digits and
		// a time with a fraction.
		if !strings.Contains(f[2], ".") {
			continue
		}
		mode, err := strconv.ParseUint(f[0][1:], 8, 32)
		if err != nil {
			continue
		}
		seconds, _, _ := strings.Cut(f[2], ".")
		fields[i] = []byte(fmt.Sprintf("%x %s %s\n", kinds[f[0][0]]|mode, f[1], seconds))
	}
	return bytes.Join(fields, []byte{0})
}

// Stat implements provider.FS.
func (f *files) Stat(ctx context.Context, name string) (provider.FileInfo, error) {
	const op = "files.stat"
	steps, err := f.local(op, name)
	if err != nil {
		return provider.FileInfo{}, err
	}
	parents, last := cut(steps)
	out, err := f.run(ctx, op, name, parents, false, `c=`+quote(last)+`
[ -h "./$c" ] || [ -e "./$c" ] || die noent
{ say "./$c" "$c"; } | base64`, true)
	if err != nil {
		return provider.FileInfo{}, err
	}
	data, err := encoded(op, name, out)
	if err != nil {
		return provider.FileInfo{}, err
	}
	list, err := infos(op, strings.Join(parents, "/"), data)
	if err != nil || len(list) != 1 {
		return provider.FileInfo{}, problem(provider.Internal, op, name, "the sandbox's answer is malformed")
	}
	return list[0], nil
}

// Remove implements provider.FS.
func (f *files) Remove(ctx context.Context, name string, recursive bool) error {
	const op = "files.remove"
	steps, err := f.local(op, name)
	if err != nil {
		return err
	}
	if len(steps) == 0 {
		return problem(provider.InvalidArgument, op, name, "the root itself cannot be removed")
	}
	parents, last := cut(steps)
	all := ""
	if recursive {
		all = "1"
	}
	return f.finish(ctx, op, name, parents, false, `c=`+quote(last)+` all=`+all+`
[ -h "./$c" ] || [ -e "./$c" ] || die noent
if [ -d "./$c" ] && [ ! -h "./$c" ]; then
  if [ -n "$all" ]; then rm -rf -- "./$c"; else
    rmdir -- "./$c" || { [ -w . ] || die denied; die full; }
  fi
else
  rm -f -- "./$c"
fi
if [ -h "./$c" ] || [ -e "./$c" ]; then die denied; fi`, false)
}

// Mkdir implements provider.FS.
func (f *files) Mkdir(ctx context.Context, name string, mode fs.FileMode) error {
	const op = "files.mkdir"
	steps, err := f.local(op, name)
	if err != nil {
		return err
	}
	if len(steps) == 0 {
		return f.finish(ctx, op, name, nil, false, "", true)
	}
	parents, last := cut(steps)
	if mode.Perm() == 0 {
		mode = 0o755
	}
	return f.finish(ctx, op, name, parents, true, `c=`+quote(last)+`
if [ -h "./$c" ] || [ -e "./$c" ]; then
  step "$c"
else
  mkdir -m `+fmt.Sprintf("%o", mode.Perm())+` -- "./$c" || [ -d "./$c" ] || { [ -w . ] && die failed; die denied; }
fi`, true)
}
