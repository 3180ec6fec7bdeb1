package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
)

// hijacked is the stream of an attach or exec: what is written goes to standard
// input, what is read is standard output alone. Standard error is kept, up to a
// limit, for explanations. Close closes both directions.
type hijacked struct {
	resp types.HijackedResponse
	left uint32 // of the current chunk
	kind byte
	once sync.Once
	cerr error

	mu    sync.Mutex
	notes []byte
	began []byte // the first bytes of standard output
}

// maxNotes is how much of standard error and of the beginning is kept.
const maxNotes = 4 << 10

var errStreamKind = errors.New("docker: the engine's stream is malformed")

// hijack calls open, which may take its time however its context ends.
func hijack(ctx context.Context, open func() (types.HijackedResponse, error)) (*hijacked, error) {
	type result struct {
		resp types.HijackedResponse
		err  error
	}
	ch := make(chan result, 1)
	go func() {
		resp, err := open()
		ch <- result{resp, err}
	}()
	select {
	case r := <-ch:
		if r.err != nil {
			return nil, r.err
		}
		return &hijacked{resp: r.resp}, nil
	case <-ctx.Done():
		go func() {
			if r := <-ch; r.err == nil {
				r.resp.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// Read implements io.Reader. It is called from one goroutine at a time.
func (h *hijacked) Read(p []byte) (int, error) {
	for {
		for h.left == 0 {
			var header [8]byte
			if _, err := io.ReadFull(h.resp.Reader, header[:]); err != nil {
				return 0, err
			}
			h.kind, h.left = header[0], binary.BigEndian.Uint32(header[4:])
			if h.kind > 3 {
				return 0, errStreamKind
			}
		}
		if h.kind == 1 {
			n, err := h.resp.Reader.Read(p[:min(len(p), int(h.left))])
			h.left -= uint32(n) //nolint:gosec // n is not above left
			h.note(&h.began, p[:n])
			return n, h.torn(err)
		}
		var other [1024]byte
		n, err := h.resp.Reader.Read(other[:min(len(other), int(h.left))])
		h.left -= uint32(n) //nolint:gosec // n is not above left
		h.note(&h.notes, other[:n])
		if err != nil {
			return 0, h.torn(err)
		}
	}
}

// torn tells an end within a chunk from the stream's end.
func (h *hijacked) torn(err error) error {
	if errors.Is(err, io.EOF) && h.left > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (h *hijacked) note(to *[]byte, b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if room := maxNotes - len(*to); room > 0 {
		*to = append(*to, b[:min(room, len(b))]...)
	}
}

// explanation returns what standard error said, and what standard output began
// with: an engine that cannot start an exec says so there.
func (h *hijacked) explanation() (stderr, began string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.notes), string(h.began)
}

// Write implements io.Writer.
func (h *hijacked) Write(p []byte) (int, error) { return h.resp.Conn.Write(p) }

// Close implements io.Closer.
func (h *hijacked) Close() error {
	h.once.Do(func() { h.cerr = h.resp.Conn.Close() })
	return h.cerr
}

// attach attaches to a container's PID 1.
func (p *Provider) attach(ctx context.Context, id string) (*hijacked, error) {
	return hijack(ctx, func() (types.HijackedResponse, error) {
		return p.e.ContainerAttach(ctx, id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	})
}
