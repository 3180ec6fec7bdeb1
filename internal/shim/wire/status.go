package wire

import "encoding/binary"

// ExitStatus is the payload of the exit frame.
type ExitStatus struct {
	// Signal that ended the command, 0 when it exited by itself.
	Signal byte
	// Code it exited with; 0 when a signal ended it.
	Code byte
	// ByUs: the supervisor or the host had it killed or signalled.
	ByUs bool
	// Left is the number of processes of the exec that still run.
	Left uint32
}

const exitSize = 7

// AppendExit appends an exit frame.
func AppendExit(dst []byte, s ExitStatus) []byte {
	var p [exitSize]byte
	p[0], p[1] = s.Signal, s.Code
	if s.ByUs {
		p[2] = 1
	}
	binary.BigEndian.PutUint32(p[3:], s.Left)
	return Append(dst, Exit, p[:])
}

// ParseExit reads an exit frame's payload.
func ParseExit(p []byte) (ExitStatus, error) {
	if len(p) != exitSize || p[2] > 1 || p[0] > 127 || (p[0] != 0 && p[1] != 0) {
		return ExitStatus{}, ErrProtocol
	}
	return ExitStatus{Signal: p[0], Code: p[1], ByUs: p[2] == 1, Left: binary.BigEndian.Uint32(p[3:])}, nil
}

// Stage is where a start failed.
type Stage byte

// Stages of a start.
const (
	StageProtocol Stage = iota + 1 // the request was malformed
	StageJail                      // the jail could not be set up
	StageTerminal                  // no terminal could be made
	StageFork                      // no process could be made
	StageConfine                   // the process could not be confined
	StageDir                       // the working directory cannot be entered
	StageExec                      // the program cannot be executed
	StageUser                      // the user or group is not known (ENOENT), or the files that say so cannot be read
	stageEnd
)

const maxDetail = 256

// Failure is the payload of a failure frame.
type Failure struct {
	Stage Stage
	Errno uint32
	// Detail names the step; it never holds anything of the request.
	Detail string
}

// AppendFailure appends a failure frame. A long detail is cut.
func AppendFailure(dst []byte, f Failure) []byte {
	if len(f.Detail) > maxDetail {
		f.Detail = f.Detail[:maxDetail]
	}
	p := make([]byte, 5, 5+len(f.Detail))
	p[0] = byte(f.Stage)
	binary.BigEndian.PutUint32(p[1:], f.Errno)
	return Append(dst, Failed, append(p, f.Detail...))
}

// ParseFailure reads a failure frame's payload.
func ParseFailure(p []byte) (Failure, error) {
	if len(p) < 5 || p[0] == 0 || Stage(p[0]) >= stageEnd {
		return Failure{}, ErrProtocol
	}
	return Failure{Stage: Stage(p[0]), Errno: binary.BigEndian.Uint32(p[1:]), Detail: string(p[5:])}, nil
}
