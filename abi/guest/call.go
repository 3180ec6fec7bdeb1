package guest

import (
	"strconv"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest/internal/hostcall"
)

// Call is one operation in progress. It is valid until the method it was given
// to returns, and belongs to the one goroutine that runs it.
type Call struct {
	Op abi.Op
}

// Checkpoint stores the sandbox's reference, a JSON document of at most
// abi.MaxRef bytes. It is durable when Checkpoint returns and is given back as
// req.Ref with every later call.
func (c *Call) Checkpoint(ref []byte) error { return errno(hostcall.Current.Checkpoint(0, ref)) }

// CheckpointExec stores the reference of the running exec, which Input, Resize
// and Signal get as req.Exec.Ref.
func (c *Call) CheckpointExec(ref []byte) error { return errno(hostcall.Current.Checkpoint(1, ref)) }

// Sleep waits. It returns abi.ErrnoCanceled or abi.ErrnoDeadline when the call
// ends first; return that error then.
func (c *Call) Sleep(ms int) error { return errno(hostcall.Current.SleepMs(int32(ms))) }

// Now returns Unix milliseconds.
func (c *Call) Now() int64 { return hostcall.Current.NowMs() }

// Random fills b from the host's random source.
func (c *Call) Random(b []byte) error { return errno(hostcall.Current.Random(b)) }

// Canceled reports whether the operation should stop.
func (c *Call) Canceled() bool { return hostcall.Current.Canceled() == 1 }

// Emit delivers output or file content; plugin-driven plugins only. stream is
// Stdout, Stderr or Content. It blocks while the caller is slower.
func (c *Call) Emit(stream int32, data []byte) error {
	return errno(hostcall.Current.Emit(stream, data))
}

// Streams for Emit.
const (
	Stdout  int32 = 1
	Stderr  int32 = 2
	Content int32 = 3
)

// Debugf-like logging is left to the caller's own formatting: fmt would double
// the size of a plugin.

// Debug writes a log line.
func (c *Call) Debug(line string) { hostcall.Current.Log(0, []byte(line)) }

// Info writes a log line.
func (c *Call) Info(line string) { hostcall.Current.Log(1, []byte(line)) }

// Warn writes a log line.
func (c *Call) Warn(line string) { hostcall.Current.Log(2, []byte(line)) }

// Poll calls step until it reports done, sleeping ms between calls.
func (c *Call) Poll(ms int, step func() (done bool, err error)) error {
	for {
		done, err := step()
		if err != nil || done {
			return err
		}
		if err := c.Sleep(ms); err != nil {
			return err
		}
	}
}

// errno turns an import's result into an error.
func errno(n int32) error {
	if n < 0 {
		return abi.Errno(n)
	}
	return nil
}

// Request names an approved route and what the plugin may choose of it.
type Request struct {
	Route  string
	Params map[string]string // path parameters the manifest leaves to the plugin
	Query  map[string]string // free query fields
	Free   Free              // free body fields
	Body   []byte            // plugin-driven routes only
	Env    string            // plugin-driven routes only: the environment handle
}

// Free holds free body fields: JSON pointer to value. The zero Free is empty.
type Free struct{ doc []byte }

// String returns f with a text field added.
func (f Free) String(pointer, value string) Free {
	return f.add(pointer, abi.AppendString(nil, value))
}

// Int returns f with an integer field added.
func (f Free) Int(pointer string, value int64) Free {
	return f.add(pointer, strconv.AppendInt(nil, value, 10))
}

// Bool returns f with a boolean field added.
func (f Free) Bool(pointer string, value bool) Free {
	return f.add(pointer, strconv.AppendBool(nil, value))
}

func (f Free) add(pointer string, value []byte) Free {
	doc := append([]byte(nil), f.doc...)
	if len(doc) == 0 {
		doc = append(doc, '{')
	} else {
		doc[len(doc)-1] = ','
	}
	doc = abi.AppendString(doc, pointer)
	doc = append(doc, ':')
	doc = append(doc, value...)
	return Free{doc: append(doc, '}')}
}

// Response is the answer to a Request. Close it.
type Response struct {
	handle int64
	Status int
}

// Do sends a request and returns when the answer's header has arrived. An HTTP
// status of any kind is not an error: see StatusError. The error is an
// abi.Errno.
func (c *Call) Do(r Request) (*Response, error) {
	meta := abi.HTTPMeta{Route: r.Route, Params: r.Params, Query: r.Query, Free: abi.Raw(r.Free.doc), Env: r.Env}
	h := hostcall.Current.HTTPOpen(meta.AppendJSON(outBuffer), r.Body)
	if h < 0 {
		return nil, abi.Errno(h)
	}
	status := hostcall.Current.HTTPStatus(h)
	if status < 0 {
		hostcall.Current.HTTPClose(h)
		return nil, abi.Errno(status)
	}
	return &Response{handle: h, Status: int(status)}, nil
}

// JSON sends a request and returns the parsed body of a 2xx answer. what names
// the action in errors.
func (c *Call) JSON(what string, r Request) (Value, error) {
	resp, err := c.Do(r)
	if err != nil {
		return Value{}, err
	}
	defer resp.Close()
	if err := StatusError(what, resp.Status); err != nil {
		return Value{}, err
	}
	body, err := resp.Body()
	if err != nil {
		return Value{}, err
	}
	if len(body) == 0 {
		return Value{}, nil
	}
	return Parse(body)
}

// Header returns a response header that the route's manifest entry names.
func (r *Response) Header(name string) string {
	buf := make([]byte, 512)
	for {
		n := hostcall.Current.HTTPHeader(r.handle, name, buf)
		switch {
		case n < 0:
			return ""
		case int(n) <= len(buf):
			return string(buf[:n])
		}
		buf = make([]byte, n)
	}
}

// Body reads what of the body the plugin may see, to its end.
func (r *Response) Body() ([]byte, error) {
	buf := make([]byte, 0, 2048)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n := hostcall.Current.HTTPRead(r.handle, buf[len(buf):cap(buf)])
		if n < 0 {
			return nil, abi.Errno(n)
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+int(n)]
	}
}

// Next returns the next decoded frame of a framed body, abi.ErrnoEnd after the
// last, abi.ErrnoTruncated when the stream broke. Payloads were taken out by the
// host.
func (r *Response) Next() (Value, error) {
	buf := make([]byte, 4096)
	for {
		n := hostcall.Current.HTTPNext(r.handle, buf)
		switch {
		case n == int32(abi.ErrnoTooLarge) && len(buf) < abi.MaxHTTPResponse:
			buf = make([]byte, len(buf)*4)
		case n < 0:
			return Value{}, abi.Errno(n)
		default:
			return Parse(buf[:n])
		}
	}
}

// Close releases the response.
func (r *Response) Close() { hostcall.Current.HTTPClose(r.handle) }
