package main

import (
	"strconv"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
)

// Read fetches a file; its content goes to the caller.
func (e2b) Read(c *guest.Call, _ *abi.PathRequest) (abi.ReadReply, error) {
	entry, err := stat(c)
	if err != nil {
		return abi.ReadReply{}, err
	}
	if entry.Type == "dir" {
		return abi.ReadReply{}, guest.Fail(guest.FailedPrecondition, "read file: it is a directory")
	}
	return abi.ReadReply{Size: entry.Size, Mode: entry.Mode}, transfer(c, "read file", "download")
}

// Write sends a file; the host fills in its content.
func (e2b) Write(c *guest.Call, _ *abi.WriteRequest) error {
	return transfer(c, "write file", "upload")
}

func transfer(c *guest.Call, what, route string) error {
	return withToken(c, func() error {
		resp, err := c.Do(guest.Request{Route: route})
		if err != nil {
			return err
		}
		defer resp.Close()
		return fileError(what, resp.Status)
	})
}

// fileError: a 400 of the file service says that a path is of the wrong kind.
func fileError(what string, status int) error {
	if status == 400 {
		return guest.Fail(guest.FailedPrecondition, what+": the path is not of the right kind")
	}
	return guest.StatusError(what, status)
}

// ListDir lists a directory.
func (e2b) ListDir(c *guest.Call, _ *abi.PathRequest) (abi.ListDirReply, error) {
	out := abi.ListDirReply{Entries: []abi.Entry{}}
	v, err := ask(c, "list directory", "listdir")
	for _, e := range v.Get("entries").Items() {
		out.Entries = append(out.Entries, entry(e))
	}
	return out, err
}

// Stat describes a file.
func (e2b) Stat(c *guest.Call, _ *abi.PathRequest) (abi.StatReply, error) {
	e, err := stat(c)
	return abi.StatReply{Entry: e}, err
}

// Remove removes a file. E2B removes whole trees without asking, so a directory
// with something in it is refused here unless the caller wants that.
func (e2b) Remove(c *guest.Call, req *abi.RemoveRequest) error {
	e, err := stat(c)
	if err != nil {
		return err
	}
	if e.Type == "dir" && !req.Recursive {
		v, err := ask(c, "list directory", "listdir")
		if err != nil {
			return err
		}
		if len(v.Get("entries").Items()) > 0 {
			return guest.Fail(guest.FailedPrecondition, "the directory is not empty")
		}
	}
	_, err = ask(c, "remove file", "remove")
	return err
}

// Mkdir makes a directory; one that is there is success.
func (e2b) Mkdir(c *guest.Call, _ *abi.MkdirRequest) error {
	return withToken(c, func() error {
		resp, err := c.Do(guest.Request{Route: "makedir"})
		if err != nil {
			return err
		}
		defer resp.Close()
		// 409 is Connect's already_exists, for a directory; 400 its
		// invalid_argument, for anything else that has the name.
		if resp.Status == 409 || resp.Status == 400 {
			switch e, err := stat(c); {
			case err == nil && (e.Type == "dir" || resp.Status == 409 && e.Type == "symlink"):
				return nil
			case err == nil:
				return guest.Fail(guest.AlreadyExists, "make directory: something else has that name")
			}
		}
		return guest.StatusError("make directory", resp.Status)
	})
}

func stat(c *guest.Call) (abi.Entry, error) {
	v, err := ask(c, "stat file", "stat")
	return entry(v.Get("entry")), err
}

// ask makes a unary call of the file service.
func ask(c *guest.Call, what, route string) (guest.Value, error) {
	var v guest.Value
	err := withToken(c, func() error {
		resp, err := c.Do(guest.Request{Route: route})
		if err != nil {
			return err
		}
		defer resp.Close()
		if err := fileError(what, resp.Status); err != nil {
			return err
		}
		body, err := resp.Body()
		if err != nil {
			return err
		}
		v, err = guest.Parse(body)
		return err
	})
	return v, err
}

// entry maps an EntryInfo. Protocol Buffers write 64-bit integers as text. A link
// has the type of what it leads to.
func entry(v guest.Value) abi.Entry {
	e := abi.Entry{Name: v.Get("name").Text(), Type: "other", Mode: v.Get("mode").Int(), Target: v.Get("symlinkTarget").Text(), ModTime: unix(v.Get("modifiedTime").Text())}
	e.Size, _ = strconv.ParseInt(v.Get("size").Text(), 10, 64) // left out when it is 0
	switch v.Get("type").Text() {
	case "FILE_TYPE_FILE":
		e.Type = "file"
	case "FILE_TYPE_DIRECTORY":
		e.Type = "dir"
	case "FILE_TYPE_SYMLINK":
		e.Type = "symlink"
	}
	if e.Target != "" {
		e.Type = "symlink"
	}
	return e
}
