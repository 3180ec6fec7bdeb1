package daytona

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sbxhost/sbxhost/provider"
)

const typeJSON = "application/json"

// CreateSandbox is never repeated after an answer that was lost.
func (c *client) CreateSandbox(ctx context.Context, in createSandbox) (sandboxInfo, error) {
	body := map[string]any{"name": in.name, "labels": in.labels, "public": false,
		"networkBlockAll": in.blockAll, "autoStopInterval": in.autoStop}
	for k, v := range map[string]string{"target": in.target, "snapshot": in.snapshot} {
		if v != "" {
			body[k] = v
		}
	}
	for k, v := range map[string]int{"ttlMinutes": in.ttl, "autoDeleteInterval": in.autoDelete} {
		if v > 0 {
			body[k] = v
		}
	}
	if in.image != "" {
		body["buildInfo"] = map[string]any{"dockerfileContent": "FROM " + in.image + "\n"}
		for k, v := range map[string]int64{"cpu": in.cpu, "memory": in.memory, "disk": in.disk} {
			if v > 0 {
				body[k] = v
			}
		}
	}
	env := map[string]string{}
	for k, v := range in.env.All() {
		env[k] = string(v.Reveal())
	}
	if len(env) > 0 {
		body["env"] = env
	}
	var out sandboxInfo
	err := c.json(ctx, request{method: http.MethodPost, url: c.control("sandbox"), kind: typeJSON, body: jsonBody(body), quiet: len(env) > 0}, &out)
	return out, err
}

func (c *client) GetSandbox(ctx context.Context, idOrName string) (sandboxInfo, error) {
	var out sandboxInfo
	err := c.json(ctx, request{method: http.MethodGet, url: c.control("sandbox", idOrName), safe: true, quiet: true}, &out)
	if err == nil && out.ID == "" {
		err = &callError{status: http.StatusOK, what: "the answer is no sandbox"}
	}
	return out, err
}

func (c *client) ListSandboxes(ctx context.Context, labels map[string]string, cursor string) ([]sandboxInfo, string, error) {
	q := url.Values{"limit": {"200"}}
	if len(labels) > 0 {
		data, err := json.Marshal(labels)
		if err != nil {
			return nil, "", &callError{what: "the labels cannot be encoded", unsent: true}
		}
		q.Set("labels", string(data))
	}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	var out struct {
		Items      *[]sandboxInfo `json:"items"`
		NextCursor *string        `json:"nextCursor"`
	}
	err := c.json(ctx, request{method: http.MethodGet, url: c.control("sandbox") + "?" + q.Encode(), safe: true}, &out)
	if err == nil && out.Items == nil {
		err = &callError{status: http.StatusOK, what: "the answer is no list"}
	}
	if err != nil {
		return nil, "", err
	}
	next := ""
	if out.NextCursor != nil {
		next = *out.NextCursor
	}
	return *out.Items, next, nil
}

// DeleteSandbox may be repeated: what is gone cannot be deleted twice.
func (c *client) DeleteSandbox(ctx context.Context, id string) error {
	return c.json(ctx, request{method: http.MethodDelete, url: c.control("sandbox", id), once: true}, nil)
}

func (c *client) StartSandbox(ctx context.Context, id string) error {
	return c.json(ctx, request{method: http.MethodPost, url: c.control("sandbox", id, "start")}, nil)
}

func (c *client) StopSandbox(ctx context.Context, id string) error {
	return c.json(ctx, request{method: http.MethodPost, url: c.control("sandbox", id, "stop")}, nil)
}

func (c *client) UpdateLastActivity(ctx context.Context, id string) error {
	return c.json(ctx, request{method: http.MethodPost, url: c.control("sandbox", id, "last-activity"), safe: true}, nil)
}

func (c *client) SignedPreviewURL(ctx context.Context, id string, port int, ttl time.Duration) (string, error) {
	q := "?expiresInSeconds=" + strconv.Itoa(int(ttl/time.Second))
	var out struct {
		URL string `json:"url"`
	}
	err := c.json(ctx, request{method: http.MethodGet, url: c.control("sandbox", id, "ports", strconv.Itoa(port), "signed-preview-url") + q, safe: true, quiet: true}, &out)
	if err == nil && out.URL == "" {
		err = &callError{status: http.StatusOK, what: "the answer has no address"}
	}
	return out.URL, err
}

func (c *client) ToolboxURL(ctx context.Context, id string) (string, error) {
	var out struct {
		URL string `json:"url"`
	}
	err := c.json(ctx, request{method: http.MethodGet, url: c.control("sandbox", id, "toolbox-proxy-url"), safe: true}, &out)
	return out.URL, err
}

func (c *client) CurrentKey(ctx context.Context) (keyInfo, error) {
	var out keyInfo
	err := c.json(ctx, request{method: http.MethodGet, url: c.control("api-keys", "current"), safe: true}, &out)
	return out, err
}

// maxBuildLog bounds what is read of a build's log.
const maxBuildLog = 16 << 20

func (c *client) BuildLog(ctx context.Context, id string, w io.Writer) error {
	var out struct {
		URL string `json:"url"`
	}
	if err := c.json(ctx, request{method: http.MethodGet, url: c.control("sandbox", id, "build-logs-url"), safe: true}, &out); err != nil {
		return err
	}
	u, err := url.Parse(out.URL)
	if err != nil || !c.belongs(u) {
		return problem(provider.PermissionDenied, "create", id, "the address of the build's log does not belong to the configured endpoint")
	}
	q := u.Query()
	q.Set("follow", "true")
	u.RawQuery = q.Encode()
	p, err := c.do(ctx, request{method: http.MethodGet, url: u.String(), long: true})
	if err != nil {
		return err
	}
	defer func() { _ = p.Body.Close() }()
	_, err = io.Copy(w, io.LimitReader(p.Body, maxBuildLog))
	return plain(err)
}

// lines calls f with each line that is written.
type lines struct {
	f    func(string)
	rest []byte
}

// maxLine bounds what is kept of a line.
const maxLine = 4 << 10

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		if room := maxLine - len(l.rest); room > 0 {
			l.rest = append(l.rest, part[:min(room, len(part))]...)
		}
		if i < 0 {
			break
		}
		l.f(string(l.rest))
		l.rest, p = l.rest[:0], p[i+1:]
	}
	return n, nil
}
