package daytona

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/coder/websocket"
)

// ptyConn is the connection to a terminal.
type ptyConn interface {
	// Read returns the next output. When the terminal's shell has ended, the
	// error is a *ptyEnd; any other means that how it ended is not known.
	Read(ctx context.Context) ([]byte, error)
	Write(ctx context.Context, data []byte) error
	Close()
}

// ptyEnd is how a terminal's shell ended.
type ptyEnd struct {
	Code   *int   `json:"exitCode"`
	Reason string `json:"exitReason"`
}

func (e *ptyEnd) Error() string { return "the terminal has ended" }

type ptySocket struct{ ws *websocket.Conn }

// maxFrame bounds one message of a terminal.
const maxFrame = 1 << 20

// ConnectPTY attaches to a terminal: what it prints while nobody is attached is
// lost. The form with one request for both would put the environment into a
// header, which is logged.
func (b *box) ConnectPTY(ctx context.Context, id string) (ptyConn, error) {
	ctx, cancel := context.WithTimeout(ctx, b.c.timeout)
	defer cancel()
	h := http.Header{}
	b.c.authorize(h)
	ws, p, err := websocket.Dial(ctx, b.base+"/process/pty/"+url.PathEscape(id)+"/connect", &websocket.DialOptions{HTTPClient: b.c.http, HTTPHeader: h})
	if err != nil {
		if p != nil && p.Body != nil {
			_ = p.Body.Close()
		}
		if p != nil && p.StatusCode >= 300 {
			return nil, &callError{status: p.StatusCode}
		}
		return nil, &callError{what: "the terminal cannot be connected to"} // the error holds the address
	}
	ws.SetReadLimit(maxFrame)
	s := &ptySocket{ws: ws}
	for {
		kind, data, err := ws.Read(ctx)
		if err != nil {
			s.Close()
			return nil, &callError{what: "the terminal cannot be connected to"}
		}
		if kind != websocket.MessageText {
			continue
		}
		var c struct {
			Type, Status string
		}
		if json.Unmarshal(data, &c) != nil || c.Type != "control" {
			continue
		}
		if c.Status != "connected" { // failures come after the connection
			s.Close()
			return nil, &callError{what: "the terminal refused the connection"}
		}
		return s, nil
	}
}

func (s *ptySocket) Read(ctx context.Context) ([]byte, error) {
	for {
		kind, data, err := s.ws.Read(ctx)
		if err != nil {
			return nil, endOf(err)
		}
		if kind == websocket.MessageBinary {
			return data, nil
		}
		// Newer daemons tell the end in a frame of its own too.
		var c struct {
			Type, Status string
			ptyEnd
		}
		if json.Unmarshal(data, &c) == nil && c.Type == "control" && c.Status == "exited" && c.Code != nil {
			return nil, &c.ptyEnd
		}
	}
}

// endOf reads the end out of a close frame: 1000 for exit code 0, 1011 for the
// others. A close without an exit code is no end.
func endOf(err error) error {
	var ce websocket.CloseError
	if !errors.As(err, &ce) || ce.Code != websocket.StatusNormalClosure && ce.Code != websocket.StatusInternalError {
		return &callError{what: "the connection to the terminal broke"}
	}
	var end ptyEnd
	if json.Unmarshal([]byte(ce.Reason), &end) != nil || end.Code == nil {
		return &callError{what: "the terminal ended without an exit code"}
	}
	return &end
}

func (s *ptySocket) Write(ctx context.Context, data []byte) error {
	return s.ws.Write(ctx, websocket.MessageBinary, data)
}

func (s *ptySocket) Close() { _ = s.ws.CloseNow() }
