package archtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// machinePath matches folders of the machines people work on, which mean nothing
// to anyone else. The pattern is spelled so that it does not match itself.
var machinePath = regexp.MustCompile(`(^|[^A-Za-z0-9_.])/(wor[k]|far[m]|roo[t]/go)/`)

// unfinished matches marks of work left for later.
var unfinished = regexp.MustCompile(`\b(TOD[O]|FIXM[E]|XX[X])\b`)

// Tree checks the text of every file under dir: no machine's paths, no marks of
// unfinished work. In a git checkout it reads what git knows or would add.
func Tree(dir string) ([]Violation, error) {
	files, err := tracked(dir)
	if err != nil {
		return nil, err
	}
	var out []Violation
	for _, name := range files {
		if filepath.Base(name) == "go.sum" || filepath.Base(name) == "LICENSE" {
			continue
		}
		p := filepath.Join(dir, filepath.FromSlash(name))
		info, err := os.Lstat(p)
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted but still in the index, or a link
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("read the tree: %w", err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue // binary
		}
		for i, line := range strings.Split(string(text), "\n") {
			where := fmt.Sprintf("%s:%d", name, i+1)
			if machinePath.MatchString(line) {
				out = append(out, Violation{where, "a machine's path"})
			}
			if unfinished.MatchString(line) {
				out = append(out, Violation{where, "unfinished work"})
			}
		}
	}
	return out, nil
}

func tracked(dir string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		cmd.Dir = dir
		if list, err := cmd.Output(); err == nil {
			return strings.FieldsFunc(string(list), func(r rune) bool { return r == 0 }), nil
		}
	}
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		files = append(files, filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the tree: %w", err)
	}
	return files, nil
}
