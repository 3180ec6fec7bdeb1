package shim

import (
	"context"
	"errors"
	"strconv"

	"github.com/sbxhost/sbxhost/internal/shim/beneath"
	"github.com/sbxhost/sbxhost/internal/shim/wire"
	"github.com/sbxhost/sbxhost/provider"
)

// LinuxErrno is an error number of Linux, wherever the host runs.
type LinuxErrno uint32

func (e LinuxErrno) Error() string { return "Linux error " + strconv.Itoa(int(e)) }

// Error numbers that mean something to a caller.
const (
	ePERM, eNOENT, eNOMEM, eACCES, eBUSY, eEXIST, eXDEV          = 1, 2, 12, 13, 16, 17, 18
	eNOTDIR, eISDIR, eINVAL, eNFILE, eMFILE, eTXTBSY             = 20, 21, 22, 23, 24, 26
	eNOSPC, eROFS, eMLINK, eNAMETOOLONG, eNOTEMPTY, eLOOP        = 28, 30, 31, 36, 39, 40
	eILSEQ, eDQUOT                                        uint32 = 84, 122
)

// filesProblem makes the errors of one operation.
type filesProblem struct {
	provider, op, name string
	read               bool // it changes nothing
}

func (p filesProblem) new(code provider.Code, what string, applied provider.Applied) *provider.Error {
	if p.read {
		applied = provider.AppliedNo
	}
	return &provider.Error{Code: code, Op: p.op, Provider: p.provider, Subject: p.name, Message: what, Applied: applied}
}

// of classifies an error of a stream.
func (p filesProblem) of(err error) error {
	var pe *provider.Error
	var fault *faultError
	var source *sourceError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &pe):
		return err
	case errors.As(err, &fault):
		return p.fault(fault.FileFault)
	case errors.As(err, &source):
		e := p.new(provider.Internal, "reading or writing failed", provider.AppliedUnknown)
		e.Err = source.err
		return e
	}
	e := p.new(provider.Lost, "the connection to the sandbox's files broke", provider.AppliedUnknown)
	e.Remedy = "see whether the sandbox still runs"
	return e
}

func (p filesProblem) context(ctx context.Context) error {
	code := provider.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = provider.DeadlineExceeded
	}
	return p.new(code, "the caller gave up", provider.AppliedUnknown)
}

func (p filesProblem) dial(err error) error {
	var pe *provider.Error
	if errors.As(err, &pe) {
		return err
	}
	e := p.new(provider.Unavailable, "the sandbox's files cannot be reached", provider.AppliedNo)
	e.Err = err
	return e
}

// path says what is wrong with a path as such.
func (p filesProblem) path(err error) error {
	switch {
	case errors.Is(err, beneath.ErrNUL):
		p.name = ""
		return p.fault(wire.FileFault{Kind: wire.FaultNUL})
	case errors.Is(err, beneath.ErrAbsolute):
		return p.fault(wire.FileFault{Kind: wire.FaultAbsolute})
	}
	return p.fault(wire.FileFault{Kind: wire.FaultOutside})
}

// fault explains a failure that the program, or a check before it, found.
func (p filesProblem) fault(f wire.FileFault) error {
	if f.Path != "" && f.Kind != wire.FaultSetup {
		p.name = f.Path
	}
	no, unknown := provider.AppliedNo, provider.AppliedUnknown
	switch f.Kind {
	case wire.FaultDirectory:
		return p.new(provider.FailedPrecondition, "is a directory", no)
	case wire.FaultSpecial:
		return p.new(provider.FailedPrecondition, "is neither a regular file nor a directory", no)
	case wire.FaultAbsolute:
		e := p.new(provider.PermissionDenied, "the path is absolute", no)
		e.Remedy = "give it relative to the root"
		return e
	case wire.FaultOutside:
		return p.new(provider.PermissionDenied, "the path leads out of the root", no)
	case wire.FaultNUL:
		return p.new(provider.InvalidArgument, "a path contains a NUL byte", no)
	case wire.FaultRoot:
		return p.new(provider.InvalidArgument, "not with the root itself", no)
	case wire.FaultDepth:
		e := p.new(provider.ResourceExhausted, "the tree is too deep, or a directory too large", unknown)
		e.Remedy = "remove what nests deeper than 256 directories, or directories with more than a million files"
		return e
	case wire.FaultCanceled:
		return p.new(provider.Canceled, "the operation was called off", unknown)
	case wire.FaultSetup:
		return p.setup(f)
	}
	code, what := errnoCode(f.Errno)
	e := p.new(code, what, unknown)
	e.Err = LinuxErrno(f.Errno)
	if f.Errno == eNOSPC || f.Errno == eDQUOT {
		e.Remedy = "remove files of the sandbox, or free space on the disk that holds them"
	}
	return e
}

// setup explains why no operation is possible at all.
func (p filesProblem) setup(f wire.FileFault) error {
	var e *provider.Error
	switch {
	case f.Path == "root" && (f.Errno == eNOENT || f.Errno == eNOTDIR):
		e = p.new(provider.FailedPrecondition, "the sandbox's root directory is not there", provider.AppliedNo)
	case f.Path == "root":
		e = p.new(provider.PermissionDenied, "the sandbox's root directory cannot be entered by its user", provider.AppliedNo)
	case (f.Path == "user" || f.Path == "group") && f.Errno == eNOENT:
		e = p.new(provider.InvalidArgument, "the image knows no such "+f.Path, provider.AppliedNo)
		e.Remedy = "give a number, or a name that the image's /etc/passwd and /etc/group hold"
	default:
		e = p.new(provider.Internal, "the sandbox's user cannot be taken on ("+f.Path+")", provider.AppliedNo)
	}
	e.Err = LinuxErrno(f.Errno)
	return e
}

func errnoCode(errno uint32) (provider.Code, string) {
	switch errno {
	case eNOENT:
		return provider.NotFound, "not found"
	case eXDEV:
		return provider.PermissionDenied, "leads out of the root"
	case eLOOP:
		return provider.PermissionDenied, "leads through too many, or forbidden, links"
	case eACCES, ePERM, eROFS:
		return provider.PermissionDenied, "permission denied"
	case eNOTDIR:
		return provider.FailedPrecondition, "a part of the path is not a directory"
	case eISDIR:
		return provider.FailedPrecondition, "is a directory"
	case eNOTEMPTY, eEXIST:
		return provider.FailedPrecondition, "the directory is not empty"
	case eBUSY, eTXTBSY:
		return provider.FailedPrecondition, "is in use"
	case eNOSPC, eDQUOT:
		return provider.ResourceExhausted, "no space left"
	case eMFILE, eNFILE, eNOMEM, eMLINK:
		return provider.ResourceExhausted, "no memory, descriptors or links left"
	case eNAMETOOLONG, eINVAL, eILSEQ:
		return provider.InvalidArgument, "not a usable name"
	}
	return provider.Internal, "the file system failed"
}
