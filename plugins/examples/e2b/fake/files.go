package fake

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

// fsProblem answers as Connect does.
func fsProblem(w http.ResponseWriter, err error) {
	code, status := "internal", http.StatusInternalServerError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code, status = "not_found", http.StatusNotFound
	case errors.Is(err, fs.ErrExist):
		code, status = "already_exists", http.StatusConflict
	case errors.Is(err, fs.ErrInvalid):
		code, status = "invalid_argument", http.StatusBadRequest
	}
	fakevendor.WriteJSON(w, status, map[string]any{"code": code, "message": "the file operation failed"})
}

func entryInfo(name string) (map[string]any, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	e := map[string]any{
		"name": info.Name(), "type": "FILE_TYPE_FILE", "size": strconv.FormatInt(info.Size(), 10), "mode": info.Mode().Perm(),
		"modifiedTime": info.ModTime().UTC().Format(time.RFC3339Nano),
	}
	switch {
	case info.IsDir():
		e["type"] = "FILE_TYPE_DIRECTORY"
	case info.Mode()&fs.ModeSymlink != 0:
		e["type"] = "FILE_TYPE_SYMLINK" // it leads nowhere
		if to, err := os.Stat(name); err == nil {
			e["type"] = "FILE_TYPE_FILE"
			if to.IsDir() {
				e["type"] = "FILE_TYPE_DIRECTORY"
			}
		}
		target, err := os.Readlink(name)
		if err != nil {
			return nil, err
		}
		e["symlinkTarget"] = target
	}
	return e, nil
}

func stat(w http.ResponseWriter, name string) {
	e, err := entryInfo(name)
	if err != nil {
		fsProblem(w, err)
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{"entry": e})
}

func listDir(w http.ResponseWriter, name string) {
	list, err := os.ReadDir(name)
	if errors.Is(err, syscall.ENOTDIR) {
		err = fs.ErrInvalid
	}
	if err != nil {
		fsProblem(w, err)
		return
	}
	entries := []any{}
	for _, d := range list {
		if e, err := entryInfo(name + "/" + d.Name()); err == nil {
			entries = append(entries, e)
		}
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{"entries": entries})
}

func remove(w http.ResponseWriter, name string) {
	if err := os.RemoveAll(name); err != nil {
		fsProblem(w, err)
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
}

func makeDir(w http.ResponseWriter, name string) {
	if info, err := os.Stat(name); err == nil {
		err = fs.ErrExist
		if !info.IsDir() {
			err = fs.ErrInvalid
		}
		fsProblem(w, err)
		return
	}
	if err := os.MkdirAll(name, 0o755); err != nil { //nolint:gosec // a sandbox's own folder
		fsProblem(w, err)
		return
	}
	fakevendor.WriteJSON(w, http.StatusOK, map[string]any{})
}
