package egress

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
)

// maxFrame is the largest frame that is kept whole.
const maxFrame = abi.MaxHTTPResponse

// frameReader yields the documents of a framed body. io.EOF is its proper end;
// every other error means that the stream broke.
type frameReader interface {
	next() (any, error)
}

func newFrameReader(kind string, r *bufio.Reader) frameReader {
	switch kind {
	case spec.BodyConnect:
		return &connectFrames{r: r}
	case spec.BodySSE:
		return &sseFrames{r: r}
	default:
		return &lineFrames{r: r}
	}
}

// connectFrames reads Connect streaming envelopes: a flags byte, a big-endian
// length, a JSON message. Flag 1 is compression, flag 2 marks the end of the
// stream.
type connectFrames struct {
	r    *bufio.Reader
	done bool
}

func (f *connectFrames) next() (any, error) {
	if f.done {
		return nil, io.EOF
	}
	var head [5]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return nil, failure(abi.ErrnoTruncated, "the stream ended without its end message")
	}
	if head[0]&^3 != 0 {
		return nil, failure(abi.ErrnoInvalid, "an envelope has unknown flags")
	}
	if head[0]&1 != 0 {
		return nil, &Denied{Rule: "an envelope is compressed, which was not asked for"}
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return nil, failure(abi.ErrnoTooLarge, "an envelope is too large")
	}
	msg := make([]byte, 0, min(n, 64<<10))
	buf := bytes.NewBuffer(msg)
	if _, err := io.CopyN(buf, f.r, int64(n)); err != nil {
		return nil, failure(abi.ErrnoTruncated, "the stream ended inside an envelope")
	}
	doc, err := decodeJSON(buf.Bytes())
	if err != nil {
		return nil, failure(abi.ErrnoInvalid, "an envelope does not hold JSON")
	}
	if head[0]&2 != 0 {
		f.done = true
		if m, ok := doc.(map[string]any); ok && m["error"] != nil {
			return map[string]any{"end": doc}, nil
		}
		return nil, io.EOF
	}
	return doc, nil
}

// lineFrames reads newline-delimited JSON.
type lineFrames struct{ r *bufio.Reader }

func (f *lineFrames) next() (any, error) {
	for {
		line, err := readLine(f.r)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			if err != nil {
				return nil, io.EOF
			}
			continue
		}
		doc, derr := decodeJSON(line)
		if derr != nil {
			if err != nil {
				return nil, failure(abi.ErrnoTruncated, "the stream ended inside a line")
			}
			return nil, failure(abi.ErrnoInvalid, "a line does not hold JSON")
		}
		return doc, nil
	}
}

// readLine reads up to a newline; io.EOF comes with the last, unended line.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxFrame {
			return nil, failure(abi.ErrnoTooLarge, "a line is too long")
		}
		switch {
		case err == nil, errors.Is(err, io.EOF):
			return line, err
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, failure(abi.ErrnoTruncated, "the stream broke")
		}
	}
}

// sseFrames reads server-sent events (HTML living standard, section 9.2). A
// frame is {event, id, data}; data is parsed where it is JSON.
type sseFrames struct{ r *bufio.Reader }

func (f *sseFrames) next() (any, error) {
	var data []string
	event, id := "", ""
	for {
		line, err := readLine(f.r)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		ended := err != nil
		s := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		if s == "" {
			if len(data) > 0 || event != "" {
				if ended {
					// The blank line that completes an event never came.
					return nil, failure(abi.ErrnoTruncated, "the stream ended inside an event")
				}
				return sseDocument(event, id, strings.Join(data, "\n")), nil
			}
			if ended {
				return nil, io.EOF
			}
			continue
		}
		if ended {
			return nil, failure(abi.ErrnoTruncated, "the stream ended inside an event")
		}
		field, value, _ := strings.Cut(s, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			event = value
		case "id":
			id = value
		}
	}
}

func sseDocument(event, id, data string) any {
	out := map[string]any{"data": data}
	if event != "" {
		out["event"] = event
	}
	if id != "" {
		out["id"] = id
	}
	if doc, err := decodeJSON([]byte(data)); err == nil {
		out["data"] = doc
	}
	return out
}
