package host

import (
	"io/fs"

	"github.com/sbxhost/sbxhost/provider"
)

// FileInfo describes a file in the sandbox. Names are redacted.
type FileInfo = provider.FileInfo

// FileData is a file's redacted content.
type FileData struct {
	Data []byte `json:"data"`
	// Redactions counts what was replaced, by name. Empty: the data is exact.
	Redactions map[string]int64 `json:"redactions,omitempty"`
}

// Redacted reports whether anything was replaced.
func (d FileData) Redacted() bool { return len(d.Redactions) > 0 }

// WriteOptions for Session.WriteFile.
type WriteOptions struct {
	// Mode holds the permission bits. 0: 0644, or those of the existing file.
	Mode fs.FileMode
	// AllowMarkers permits data that contains this session's redaction markers.
	// Without it such data is refused: reading, editing and writing back a file
	// would replace the secret in it by the marker.
	AllowMarkers bool
}

// ExportOptions for Session.Export.
type ExportOptions struct {
	// Unredacted permits exporting the files of a session with protected or
	// request-scoped values. An archive cannot be redacted.
	Unredacted bool
}
