// Package hostcall is the seam between the guest kit and the host's imports: the
// real ones in a plugin, a fake in native tests.
package hostcall

// API is the host as a guest sees it. Every method follows the import of the
// same name in the wire contract: results below zero are errnos.
type API interface {
	InLen() int32
	InRead(dst []byte, off int32) int32
	OutWrite(src []byte) int32
	ErrWrite(src []byte) int32
	Checkpoint(kind int32, src []byte) int32
	HTTPOpen(meta, body []byte) int64
	HTTPStatus(h int64) int32
	HTTPHeader(h int64, name string, dst []byte) int32
	HTTPRead(h int64, dst []byte) int32
	HTTPNext(h int64, dst []byte) int32
	HTTPClose(h int64) int32
	Emit(stream int32, src []byte) int32
	Log(level int32, src []byte) int32
	SleepMs(ms int32) int32
	NowMs() int64
	Random(dst []byte) int32
	Canceled() int32
}
