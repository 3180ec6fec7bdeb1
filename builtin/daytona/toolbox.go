package daytona

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

// box is the toolbox of one sandbox.
type box struct {
	c    *client
	base string
}

// Toolbox accepts an address that the service gave only if it belongs to the
// configured endpoint: the API key goes there.
func (c *client) Toolbox(address, id string) (toolbox, error) {
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.Fragment != "" || !c.belongs(u) {
		return nil, problem(provider.PermissionDenied, "toolbox", id, "the address of the sandbox's toolbox does not belong to the configured endpoint, and was not used").
			remedy("if it is right all the same, set " + SettingToolboxURL + " to it")
	}
	return &box{c: c, base: strings.TrimRight(u.String(), "/") + "/" + url.PathEscape(id)}, nil
}

// Execute: the body is chunked, and sent once unless it was refused.
func (b *box) Execute(ctx context.Context, in executeRequest) (executeResult, error) {
	body := func() io.Reader {
		env := map[string]string{}
		for k, v := range in.env {
			env[k] = v
		}
		for _, e := range in.values {
			for k, v := range e.All() {
				env[k] = string(v.Reveal())
			}
		}
		doc := map[string]any{"command": in.script}
		if len(env) > 0 {
			doc["envs"] = env
		}
		if in.timeout > 0 {
			doc["timeout"] = int64((in.timeout + time.Second - 1) / time.Second)
		}
		return jsonBody(doc)()
	}
	var out struct {
		ExitCode *int   `json:"exitCode"`
		Result   string `json:"result"`
	}
	err := b.c.json(ctx, request{method: http.MethodPost, url: b.base + "/process/execute", kind: typeJSON, body: body, quiet: true, long: true, safe: in.again}, &out)
	if err != nil {
		return executeResult{}, err
	}
	res := executeResult{output: out.Result}
	if out.ExitCode != nil {
		res.exited, res.code = true, *out.ExitCode
	}
	return res, nil
}

// Upload uses the bulk form, which every release has; the path comes before the
// file. It may be repeated.
func (b *box) Upload(ctx context.Context, path string, data []byte) error {
	var doc bytes.Buffer
	w := multipart.NewWriter(&doc)
	err := w.WriteField("files[0].path", path)
	if err == nil {
		var part io.Writer
		if part, err = w.CreateFormFile("files[0].file", "file"); err == nil {
			_, err = part.Write(data)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return &callError{what: "the upload cannot be encoded", unsent: true}
	}
	var out struct {
		Files []struct {
			Bytes *int64 `json:"bytes"`
		} `json:"files"`
	}
	err = b.c.json(ctx, request{method: http.MethodPost, url: b.base + "/files/bulk-upload", kind: w.FormDataContentType(), long: true,
		safe: true, body: func() io.Reader { return bytes.NewReader(doc.Bytes()) }}, &out)
	if err == nil && len(out.Files) == 1 && out.Files[0].Bytes != nil && *out.Files[0].Bytes != int64(len(data)) {
		err = &callError{status: http.StatusOK, what: fmt.Sprintf("%d bytes were sent and %d written", len(data), *out.Files[0].Bytes)}
	}
	return err
}

// Download asks for a range, and bears a service that ignores it: the answer to a
// range says how large the file is, which a length does not when the answer was
// cut short on its way. The range begins one byte early, so that there mostly is
// something to send: what the service answers to an empty range is not specified.
func (b *box) Download(ctx context.Context, path string, offset int64) (*download, error) {
	h := http.Header{}
	// Compressed by nobody: the lengths are those of the file.
	h.Set("Accept-Encoding", "identity")
	ranged := offset >= 0
	offset = max(0, offset)
	from := max(0, offset-1)
	if ranged {
		h.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
	}
	p, err := b.c.do(ctx, request{method: http.MethodGet, url: b.base + "/files/download?path=" + url.QueryEscape(path), header: h, long: true, safe: true})
	if err != nil {
		return nil, err
	}
	d := &download{ReadCloser: p.Body, length: p.ContentLength, total: -1}
	skip := offset
	if p.StatusCode == http.StatusPartialContent {
		skip = offset - from
		span, text, _ := strings.Cut(p.Header.Get("Content-Range"), "/")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			d.total = n
		}
		if !strings.HasPrefix(span, "bytes "+strconv.FormatInt(from, 10)+"-") {
			_ = p.Body.Close()
			return nil, &callError{status: p.StatusCode, what: "another range was sent than was asked for"}
		}
	}
	n, err := io.CopyN(io.Discard, p.Body, skip)
	if err != nil && err != io.EOF {
		_ = p.Body.Close()
		return nil, &callError{what: "the answer broke off", err: plain(err)}
	}
	if d.length >= 0 {
		d.length = max(0, d.length-n)
	}
	return d, nil
}

func (b *box) CreatePTY(ctx context.Context, id, dir string, cols, rows uint16) error {
	body := map[string]any{"id": id, "cwd": dir, "cols": cols, "rows": rows}
	return b.c.json(ctx, request{method: http.MethodPost, url: b.base + "/process/pty", kind: typeJSON, body: jsonBody(body)}, nil)
}

func (b *box) ResizePTY(ctx context.Context, id string, cols, rows uint16) error {
	body := map[string]any{"cols": cols, "rows": rows}
	return b.c.json(ctx, request{method: http.MethodPost, url: b.base + "/process/pty/" + url.PathEscape(id) + "/resize", kind: typeJSON, body: jsonBody(body), safe: true}, nil)
}

func (b *box) DeletePTY(ctx context.Context, id string) error {
	return b.c.json(ctx, request{method: http.MethodDelete, url: b.base + "/process/pty/" + url.PathEscape(id), safe: true}, nil)
}
