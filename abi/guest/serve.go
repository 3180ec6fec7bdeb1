package guest

import (
	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest/internal/hostcall"
)

// replyDocument is a reply that can encode itself.
type replyDocument interface{ AppendJSON([]byte) []byte }

// requestDocument is a request that can decode itself.
type requestDocument[T any] interface {
	*T
	DecodeJSON(data []byte, strict bool) error
}

// Requests and replies go through two buffers made before the first call: they
// are in the snapshot that calls start from, so that a call allocates for larger
// documents only. Decoding copies, so nothing refers to them afterwards.
var (
	inBuffer  = make([]byte, 4<<10)
	outBuffer = make([]byte, 0, 4<<10)
)

// run reads the request, dispatches it, and writes the reply or the error
// document. It returns what sbx_v1_call returns.
func run(op abi.Op) int32 {
	in := inBuffer
	if n := int(hostcall.Current.InLen()); n <= len(in) {
		in = in[:max(n, 0)]
	} else {
		in = make([]byte, n)
	}
	for off := 0; off < len(in); {
		n := hostcall.Current.InRead(in[off:], int32(off))
		if n <= 0 {
			return fail(Fail(Internal, "the host cut the request short"))
		}
		off += int(n)
	}
	if served == nil {
		return fail(Fail(Internal, "guest.Serve was not called from init"))
	}
	reply, err := dispatch(&Call{Op: op}, in)
	if err != nil {
		return fail(err)
	}
	if err := errno(hostcall.Current.OutWrite(reply.AppendJSON(outBuffer))); err != nil {
		return fail(err)
	}
	return 0
}

func fail(err error) int32 {
	doc := document(err)
	hostcall.Current.ErrWrite(doc.AppendJSON(nil))
	return 1
}

func dispatch(c *Call, in []byte) (replyDocument, error) {
	switch c.Op {
	case abi.OpCreate:
		return with(c, in, served.Create)
	case abi.OpStatus:
		return with(c, in, served.Status)
	case abi.OpDestroy:
		return quiet(c, in, served.Destroy)
	case abi.OpList:
		return with(c, in, served.List)
	case abi.OpExec:
		if p, ok := served.(Execer); ok {
			return with(c, in, p.Exec)
		}
	case abi.OpInput:
		if p, ok := served.(Inputter); ok {
			return quiet(c, in, p.Input)
		}
	case abi.OpResize:
		if p, ok := served.(Resizer); ok {
			return quiet(c, in, p.Resize)
		}
	case abi.OpSignal:
		if p, ok := served.(Signaler); ok {
			return quiet(c, in, p.Signal)
		}
	case abi.OpRead:
		if p, ok := served.(FileReader); ok {
			return with(c, in, p.Read)
		}
	case abi.OpWrite:
		if p, ok := served.(FileWriter); ok {
			return quiet(c, in, p.Write)
		}
	case abi.OpListDir:
		if p, ok := served.(DirLister); ok {
			return with(c, in, p.ListDir)
		}
	case abi.OpStat:
		if p, ok := served.(Stater); ok {
			return with(c, in, p.Stat)
		}
	case abi.OpRemove:
		if p, ok := served.(Remover); ok {
			return quiet(c, in, p.Remove)
		}
	case abi.OpMkdir:
		if p, ok := served.(DirMaker); ok {
			return quiet(c, in, p.Mkdir)
		}
	case abi.OpPause:
		if p, ok := served.(Pauser); ok {
			return quiet(c, in, p.Pause)
		}
	case abi.OpResume:
		if p, ok := served.(Pauser); ok {
			return quiet(c, in, p.Resume)
		}
	case abi.OpPort:
		if p, ok := served.(Porter); ok {
			return with(c, in, p.Port)
		}
	}
	return nil, Fail(Unsupported, "this plugin does not implement "+c.Op.String())
}

func with[Q, R any, PQ requestDocument[Q], PR interface {
	*R
	replyDocument
}](c *Call, in []byte, f func(*Call, PQ) (R, error)) (replyDocument, error) {
	var q Q
	// Lenient: a newer host may send fields this plugin does not know.
	if err := PQ(&q).DecodeJSON(in, false); err != nil {
		return nil, Fail(Internal, "request: "+err.Error())
	}
	r, err := f(c, PQ(&q))
	if err != nil {
		return nil, err
	}
	return PR(&r), nil
}

func quiet[Q any, PQ requestDocument[Q]](c *Call, in []byte, f func(*Call, PQ) error) (replyDocument, error) {
	return with(c, in, func(c *Call, q PQ) (abi.Empty, error) { return abi.Empty{}, f(c, q) })
}
