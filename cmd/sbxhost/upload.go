package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/sbxhost/sbxhost/host"
)

// upload is one local file or folder to be put into the sandbox.
type upload struct {
	local string
	path  string // relative to the sandbox's root
	dir   bool
	mode  fs.FileMode
}

// maxUploads bounds how many files --file copies in all.
const maxUploads = 10_000

// planUploads reads the --file flags and walks folders, so that whatever is
// wrong is said before a sandbox is made.
func planUploads(args []string) ([]upload, error) {
	var out []upload
	for _, arg := range args {
		local, target := arg, ""
		if i := strings.LastIndex(arg, ":"); i > 0 && !(i == 1 && len(arg) > 2 && arg[2] == '\\') {
			local, target = arg[:i], arg[i+1:]
		}
		if target == "" {
			target = filepath.Base(local)
		}
		target = path.Clean(filepath.ToSlash(target))
		if path.IsAbs(target) || target == "." || target == ".." || strings.HasPrefix(target, "../") {
			return nil, usageError("--file LOCAL[:PATH]: PATH must be relative to the sandbox's root and stay in it")
		}
		err := filepath.WalkDir(local, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(local, p)
			if err != nil {
				return err
			}
			info, err := d.Info()
			if p == local {
				info, err = os.Stat(p) // what the user named may be a link
			}
			if err != nil {
				return err
			}
			u := upload{local: p, path: path.Join(target, filepath.ToSlash(rel)), dir: info.IsDir(), mode: info.Mode().Perm()}
			if !u.dir && !info.Mode().IsRegular() {
				return fmt.Errorf("%s is neither a file nor a folder; symbolic links in folders are not copied", p)
			}
			if out = append(out, u); len(out) > maxUploads {
				return fmt.Errorf("more than %d files", maxUploads)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
	}
	return out, nil
}

// put copies the files into the session.
func put(ctx context.Context, s *host.Session, uploads []upload) error {
	for _, u := range uploads {
		if u.dir {
			if err := s.Mkdir(ctx, u.path, u.mode); err != nil {
				return fmt.Errorf("--file: %w", err)
			}
			continue
		}
		data, err := os.ReadFile(u.local)
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		// The file is the operator's own: what looks like our marker in it is not
		// the trace of a redacted read.
		opts := host.WriteOptions{Mode: u.mode, AllowMarkers: true}
		if err := s.WriteFile(ctx, u.path, data, opts); err != nil {
			return fmt.Errorf("--file: %w", err)
		}
	}
	return nil
}
