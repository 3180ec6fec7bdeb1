package daytona

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// input is a running command's standard input: a pipe in the sandbox, which
// scripts of ours write to, one after another.
type input struct {
	p      *process
	mu     sync.Mutex // one script at a time
	n      int
	closed atomic.Bool
}

func newInput(p *process) *input { return &input{p: p} }

const (
	inlineInput = 2 << 10 // bytes that are part of the script
	inputChunk  = 256 << 10
	// inputPatience is as good as none: a command may read late.
	inputPatience = 24 * time.Hour
)

// Write blocks until the command's pipe has taken the bytes.
func (in *input) Write(b []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 0
	for n < len(b) {
		if in.closed.Load() || in.p.over() {
			return n, io.ErrClosedPipe
		}
		part := b[n:min(len(b), n+inputChunk)]
		if err := in.send(part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func (in *input) send(part []byte) error {
	pipe := file(in.p.run.tag, "in")
	if len(part) <= inlineInput {
		return in.script(`printf ` + quote(printfFormat(part)) + ` >` + pipe)
	}
	chunk := file(in.p.run.tag, fmt.Sprintf("i%d", in.n))
	in.n++
	ctx, cancel := in.whileItRuns()
	defer cancel()
	if err := in.p.sb.box.Upload(ctx, chunk, part); err != nil {
		if in.p.over() {
			return io.ErrClosedPipe
		}
		return in.p.sb.explain(ctx, "stdin", in.p.sb.id, err, provider.AppliedUnknown)
	}
	return in.script(`cat ` + chunk + ` >` + pipe + `; rm -f ` + chunk)
}

// whileItRuns returns a context that ends with the command.
func (in *input) whileItRuns() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(in.p.ctx)
	go func() {
		select {
		case <-in.p.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// script runs a script that ends when the pipe has taken it, or with the command.
func (in *input) script(text string) error {
	ctx, cancel := context.WithCancel(in.p.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := in.p.sb.helper(ctx, helper{op: "stdin", subject: in.p.sb.id, script: text, timeout: inputPatience})
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-in.p.ended:
		cancel()
		if err := <-done; err == nil {
			return nil // taken just before the end
		}
		return io.ErrClosedPipe
	}
}

// Close is the command's end of file.
func (in *input) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed.Swap(true) {
		return nil
	}
	if in.p.over() {
		return nil
	}
	// The command's own end is the end of its input too.
	if err := in.script(`: >` + file(in.p.run.tag, "ctl")); err != nil && err != io.ErrClosedPipe {
		return err
	}
	return nil
}

// end is called when the command has ended. It waits for no Write.
func (in *input) end() { in.closed.Store(true) }

// printfFormat makes a format of printf that prints exactly b.
func printfFormat(b []byte) string {
	var out strings.Builder
	for _, c := range b {
		if c >= ' ' && c < 0x7f && c != '\\' && c != '%' && c != '\'' && c != '-' {
			out.WriteByte(c)
			continue
		}
		fmt.Fprintf(&out, `\%03o`, c)
	}
	return out.String()
}
