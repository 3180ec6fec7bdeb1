package wire

import "encoding/binary"

// File operations are one conversation over a stream: after Setup and FileReady, one
// request after another, each answered by exactly one FileDone or FileFailed, which
// data may precede. Cancel asks for the end of the operation in progress; its
// answer is still awaited, and a Cancel that crosses an answer means nothing.

// Frames from the host for file operations, besides Setup. A path is relative to
// the setup's Root, without a NUL.
const (
	FileOpen   Type = 'o' // path → FileInfo, FileData…, FileDone
	FileWrite  Type = 'w' // mode (32 bits, 0: as it is), path; then FileChunk… and FileEnd → FileDone
	FileList   Type = 'l' // path → FileInfo… (names), FileDone
	FileStat   Type = 's' // path → FileInfo, FileDone
	FileRemove Type = 'r' // one byte: 1 is recursive; path → FileDone
	FileMkdir  Type = 'm' // mode, path → FileDone
	FileExport Type = 'x' // → (FileInfo, FileData…)…, FileDone
	FileImport Type = 'i' // then (FileEntry, FileChunk…)… and FileEnd → FileDone
	FileEntry  Type = 'e' // see Info
	FileChunk  Type = 'I' // content
	FileEnd    Type = 'Z' // the end of what FileWrite or FileImport began
	FileCancel Type = 'c'
)

// Frames to the host for file operations.
const (
	FileReady  Type = 'R' // the setup is in force
	FileInfo   Type = 'f' // see Info
	FileData   Type = '1'
	FileDone   Type = 'd'
	FileFailed Type = 'F' // see FileFault
)

// MaxPath is the longest path: as deep as an exported tree may be.
const MaxPath = 128 << 10

// maxInfo is the largest encoded Info.
const maxInfo = infoFixed + 2*MaxPath

func fileLimit(d Direction, t Type) (minimum, maximum int, ok bool) {
	if d == FilesFromHost {
		switch t {
		case Setup:
			return 1, MaxSetup, true
		case FileOpen, FileList, FileStat:
			return 0, MaxPath, true
		case FileWrite, FileMkdir:
			return 4, 4 + MaxPath, true
		case FileRemove:
			return 1, 1 + MaxPath, true
		case FileEntry:
			return infoFixed, maxInfo, true
		case FileChunk:
			return 1, MaxChunk, true
		case FileExport, FileImport, FileEnd, FileCancel:
			return 0, 0, true
		}
		return 0, 0, false
	}
	switch t {
	case FileReady, FileDone:
		return 0, 0, true
	case FileInfo:
		return infoFixed, maxInfo, true
	case FileData:
		return 1, MaxChunk, true
	case FileFailed:
		return 5, 5 + MaxPath, true
	}
	return 0, 0, false
}

// Info describes a file: what a host gets to know of one, and what it wants one to
// be that is imported.
type Info struct {
	// Mode is st_mode, type and permission bits. In an import only regular
	// files, directories and links, and permission bits alone. A regular file with
	// a Target is a hard link to it.
	Mode uint32
	// Size of the content in bytes; the content that follows is exactly as long.
	Size  uint64
	Sec   int64 // modified: seconds since 1970
	Nsec  uint32
	Final bool // in an import, of a directory: set mode and time, it is complete
	Name  string
	// Target of a link.
	Target string
}

const infoFixed = 4 + 8 + 8 + 4 + 1 + 4 + 4

// AppendInfo appends a frame with i.
func AppendInfo(dst []byte, t Type, i Info) []byte {
	e := enc{make([]byte, 0, infoFixed+len(i.Name)+len(i.Target))}
	e.u32(i.Mode)
	e.u64(i.Size)
	e.u64(uint64(i.Sec))
	e.u32(i.Nsec)
	e.bool(i.Final)
	e.str(i.Name)
	e.str(i.Target)
	return Append(dst, t, e.b)
}

// ParseInfo reads such a frame's payload.
func ParseInfo(p []byte) (Info, error) {
	d := dec{b: p}
	i := Info{Mode: d.u32(), Size: d.u64(), Sec: int64(d.u64()), Nsec: d.u32(), Final: d.bool(), Name: d.str(), Target: d.str()}
	if d.bad || len(d.b) != 0 || i.Size > 1<<62 || i.Nsec >= 1e9 || len(i.Name) > MaxPath || len(i.Target) > MaxPath || hasNUL(i.Name) || hasNUL(i.Target) {
		return Info{}, ErrProtocol
	}
	return i, nil
}

func hasNUL(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return true
		}
	}
	return false
}

// FaultKind is why a file operation failed.
type FaultKind byte

// The kinds.
const (
	FaultErrno     FaultKind = iota + 1 // the kernel said so
	FaultDirectory                      // is a directory
	FaultSpecial                        // is neither a regular file nor a directory
	FaultAbsolute                       // the path is absolute
	FaultOutside                        // the path leads out of the root
	FaultNUL                            // the path contains a NUL byte
	FaultRoot                           // not with the root itself
	FaultDepth                          // the tree is too deep
	FaultCanceled                       // by a Cancel
	FaultSetup                          // the user or the root is not there; Errno says more
	faultEnd
)

// FileFault is the payload of FileFailed.
type FileFault struct {
	Kind  FaultKind
	Errno uint32
	// Path it is about, when it is another than the request's.
	Path string
}

// AppendFault appends a failure.
func AppendFault(dst []byte, f FileFault) []byte {
	if len(f.Path) > MaxPath {
		f.Path = f.Path[:MaxPath]
	}
	p := binary.BigEndian.AppendUint32([]byte{byte(f.Kind)}, f.Errno)
	return Append(dst, FileFailed, append(p, f.Path...))
}

// ParseFault reads a failure's payload.
func ParseFault(p []byte) (FileFault, error) {
	if len(p) < 5 || p[0] == 0 || FaultKind(p[0]) >= faultEnd {
		return FileFault{}, ErrProtocol
	}
	return FileFault{Kind: FaultKind(p[0]), Errno: binary.BigEndian.Uint32(p[1:5]), Path: string(p[5:])}, nil
}
