package plugintest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/sbxhost/sbxhost/plugin/plugintest/fakevendor"
)

// fake is the stand-in for the vendor: where it is, and its control interface.
type fake struct {
	hello fakevendor.Hello
	cmd   *exec.Cmd
	stdin io.Closer
}

// startFake runs an executable fake and reads its greeting.
func startFake(ctx context.Context, argv []string) (*fake, error) {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // the fake that the caller named
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the fake: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the fake: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the fake %s: %w", argv[0], err)
	}
	f := &fake{cmd: cmd, stdin: stdin}
	type line struct {
		text []byte
		err  error
	}
	first := make(chan line, 1)
	go func() {
		r := bufio.NewReader(stdout)
		text, err := r.ReadBytes('\n')
		first <- line{text, err}
		_, _ = io.Copy(io.Discard, r) // a fake may go on talking
	}()
	var got line
	select {
	case got = <-first:
	case <-ctx.Done():
		got.err = ctx.Err()
	case <-time.After(2 * time.Minute): // "go run" may have to compile it
		got.err = errors.New("it said nothing for two minutes")
	}
	if got.err == nil {
		got.err = json.Unmarshal(got.text, &f.hello)
	}
	if got.err == nil && f.hello.Control == "" {
		got.err = errors.New("its greeting names no control interface; use fakevendor.Main")
	}
	if got.err != nil {
		f.stop()
		return nil, fmt.Errorf("start the fake %s: %w", argv[0], got.err)
	}
	return f, nil
}

// stop ends the fake by ending its input, and kills it when it does not heed
// that.
func (f *fake) stop() {
	if f.cmd == nil {
		return
	}
	_ = f.stdin.Close() // it may have ended
	t := time.AfterFunc(10*time.Second, func() { _ = f.cmd.Process.Kill() })
	_ = f.cmd.Wait() // how it ended does not matter
	t.Stop()
}

func (f *fake) ask(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		doc, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(doc)
	}
	req, err := http.NewRequestWithContext(ctx, method, f.hello.Control+path, body)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the fake's control interface: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the fake's control interface: %s", resp.Status)
	}
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

func (f *fake) inject(ctx context.Context, fault fakevendor.Fault) error {
	return f.ask(ctx, http.MethodPost, "/fault", fault, nil)
}

func (f *fake) heal(ctx context.Context) error {
	return f.ask(ctx, http.MethodPost, "/heal", nil, nil)
}

// sandboxes lists the ids of what the fake holds.
func (f *fake) sandboxes(ctx context.Context) ([]string, error) {
	var ids []string
	err := f.ask(ctx, http.MethodGet, "/sandboxes", nil, &ids)
	return ids, err
}

func (f *fake) requests(ctx context.Context) ([]fakevendor.Request, error) {
	var out []fakevendor.Request
	err := f.ask(ctx, http.MethodGet, "/requests", nil, &out)
	return out, err
}
