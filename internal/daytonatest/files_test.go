//go:build linux

package daytonatest_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/internal/daytonatest"
)

// field is one part of a form.
type field struct{ name, value string }

// form makes a multipart body.
func form(t *testing.T, fields ...field) ([]byte, option) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, f := range fields {
		var part io.Writer
		var err error
		if strings.HasSuffix(f.name, "file") {
			part, err = w.CreateFormFile(f.name, "x")
		} else {
			part, err = w.CreateFormField(f.name)
		}
		require.NoError(t, err)
		_, err = io.WriteString(part, f.value)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes(), header("Content-Type", w.FormDataContentType())
}

// upload puts one file in place.
func (c *client) upload(id, path, content string) reply {
	c.t.Helper()
	body, kind := form(c.t, field{"files[0].path", path}, field{"files[0].file", content})
	return c.box(id, "POST", "files/bulk-upload", body, kind, chunked)
}

func at(op, path string, more ...string) string {
	q := url.Values{"path": {path}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return op + "?" + q.Encode()
}

func TestBulkUploadAndDownload(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	body, kind := form(t, field{"files[0].path", "deep/er/bin"}, field{"files[0].file", string(data)}, field{"files[1].path", "/tmp/two"}, field{"files[1].file", "2"})
	r := c.box(id, "POST", "files/bulk-upload", body, kind)
	require.Equal(t, 200, r.status, r.text)
	assert.JSONEq(t, `{"files":[{"path":"/home/daytona/deep/er/bin","bytes":1048576},{"path":"/tmp/two","bytes":1}]}`, r.text)
	r = c.box(id, "GET", at("files/download", "deep/er/bin"), nil)
	assert.Equal(t, "application/octet-stream", r.header.Get("Content-Type"))
	assert.Equal(t, "1048576", r.header.Get("Content-Length"))
	assert.True(t, r.text == string(data))
	r = c.box(id, "GET", at("files/download", "deep/er/bin"), nil, header("Range", "bytes=10-19"))
	assert.Equal(t, 206, r.status)
	assert.Equal(t, string(data[10:20]), r.text)

	r = c.box(id, "POST", "files/bulk-download", object{"paths": []string{"/tmp/two", "/tmp/none", "/tmp", "deep/er/bin"}})
	require.Equal(t, 200, r.status)
	_, params, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	require.NoError(t, err)
	m := multipart.NewReader(strings.NewReader(r.text), params["boundary"])
	var got []string
	for {
		part, err := m.NextPart()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(part)
		require.NoError(t, err)
		if part.FormName() == "file" {
			assert.NotEmpty(t, part.Header.Get("Content-Length"))
			got = append(got, part.FileName())
			continue
		}
		got = append(got, part.FormName()+": "+string(content))
	}
	require.Len(t, got, 4)
	assert.Contains(t, got[1], "FILE_NOT_FOUND")
	assert.Contains(t, got[2], "INVALID_PATH")

	// What can be written is written; the whole is a 400.
	body, kind = form(t, field{"files[0].file", "no path"}, field{"files[1].path", "/tmp/good"}, field{"files[1].file", "g"}, field{"files[2].path", "/tmp/two/x"}, field{"files[2].file", "x"})
	r = c.box(id, "POST", "files/bulk-upload", body, kind)
	assert.Equal(t, 400, r.status)
	assert.Len(t, r.object(t)["errors"], 2)
	got2, err := c.s.ReadFile(id, "/tmp/good")
	require.NoError(t, err)
	assert.Equal(t, "g", string(got2))
	assert.Equal(t, 400, c.box(id, "POST", "files/bulk-download", object{"paths": []string{}}).status)
}

func TestSingleUpload(t *testing.T) {
	t.Parallel()
	for release, path := range map[daytonatest.Release]string{daytonatest.ReleaseMeasured: "files/upload", daytonatest.ReleaseCurrent: "files/upload-v2"} {
		c := fake(t, daytonatest.Options{Release: release})
		id := c.create()
		body, kind := form(t, field{"file", "content"})
		r := c.box(id, "POST", at(path, "a/b"), body, kind)
		assert.Equal(t, 200, r.status)
		assert.Equal(t, release == daytonatest.ReleaseMeasured, r.text == "")
		_, text := c.exec(id, "cat a/b")
		assert.Equal(t, "content", text)
	}
}

// In v0.190 an error of a file operation has a status and nothing else.
func TestFileErrors(t *testing.T) {
	t.Parallel()
	for _, release := range []daytonatest.Release{daytonatest.ReleaseMeasured, daytonatest.ReleaseCurrent} {
		c := fake(t, daytonatest.Options{Release: release})
		id := c.create()
		c.exec(id, "mkdir -p full/sub; echo x >file; echo y >other; ln -s nowhere dangling; ln -s loop loop")
		for _, x := range []struct {
			method, path string
			status       int
		}{
			{"GET", at("files/download", "none"), 404},
			{"GET", at("files/download", "full"), 400},
			{"GET", at("files/download", "file/below"), 404},
			{"GET", at("files/download", "loop"), 400},
			{"GET", at("files/info", "none"), 404},
			{"GET", at("files", "none"), 404},
			{"GET", at("files", "file"), 400},
			{"DELETE", at("files", "none"), 404},
			{"DELETE", at("files", "full"), 400},
			{"DELETE", at("files", "/", "recursive", "true"), 400},
			{"POST", "files/move?source=none&destination=x", 404},
			{"POST", "files/move?source=file&destination=other", 409},
			{"POST", at("files/folder", "file/below", "mode", "755"), 400},
			{"POST", at("files/folder", "d", "mode", "9x"), 400},
			{"POST", at("files/permissions", "none", "mode", "600"), 404},
			{"POST", at("files/permissions", "file", "mode", "x"), 400},
			{"POST", at("files/permissions", "file", "owner", "stranger"), 400},
			{"GET", at("files/search", "none", "pattern", "*"), 400},
		} {
			r := c.box(id, x.method, x.path, nil)
			assert.Equal(t, x.status, r.status, "%s %s", x.method, x.path)
			if release == daytonatest.ReleaseMeasured {
				assert.Empty(t, r.text, "%s %s", x.method, x.path)
				assert.Empty(t, r.header.Get("Content-Type"))
			} else {
				assert.NotEmpty(t, r.object(t)["code"])
			}
		}
		if release == daytonatest.ReleaseCurrent {
			assert.Equal(t, "FILE_NOT_FOUND", c.box(id, "GET", at("files/info", "none"), nil).object(t)["code"])
		}
	}
}

func TestFileOperations(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	assert.Equal(t, 201, c.box(id, "POST", at("files/folder", "a/b/c", "mode", "700"), nil).status)
	c.upload(id, "a/one.txt", "first needle\nsecond\nthird needle\n")
	c.exec(id, "ln -s a link; ln -s nowhere a/dangling; ln -s one.txt a/good")
	var names []string
	r := c.box(id, "GET", at("files", "link"), nil)
	for _, v := range strings.Split(r.text, `"name":"`)[1:] {
		names = append(names, v[:strings.IndexByte(v, '"')])
	}
	assert.Equal(t, []string{"b", "good", "one.txt"}, names, "links are followed and dangling ones left out")
	o := c.box(id, "GET", at("files/info", "link/one.txt"), nil).object(t)
	assert.EqualValues(t, 33, o["size"])
	assert.Equal(t, "0", o["owner"])
	assert.Equal(t, "0644", o["permissions"])
	assert.Equal(t, false, o["isDir"])
	assert.Equal(t, 200, c.box(id, "POST", at("files/permissions", "a/one.txt", "mode", "4750", "owner", "daytona", "group", "daytona"), nil).status)
	_, text := c.exec(id, "stat -c '%a %U %G' a/one.txt")
	assert.Contains(t, text, "750 daytona daytona")
	assert.Contains(t, c.box(id, "GET", at("files/search", "a", "pattern", "*.txt"), nil).text, "/home/daytona/a/one.txt")
	assert.JSONEq(t, `[{"file":"/home/daytona/a/one.txt","line":1,"content":"first needle"},{"file":"/home/daytona/a/one.txt","line":3,"content":"third needle"}]`,
		c.box(id, "GET", at("files/find", "a", "pattern", "needle"), nil).text)
	r = c.box(id, "POST", "files/replace", object{"files": []string{"a/one.txt", "a/none"}, "pattern": "needle", "newValue": "pin"})
	assert.Contains(t, r.text, `"success":true`)
	assert.Contains(t, r.text, `"success":false`)
	assert.Equal(t, 200, c.box(id, "POST", "files/move?source=a/one.txt&destination=moved/there", nil).status)
	_, text = c.exec(id, "cat moved/there")
	assert.Equal(t, "first pin\nsecond\nthird pin\n", text)
	assert.Equal(t, 204, c.box(id, "DELETE", at("files", "link"), nil).status)
	assert.Equal(t, 204, c.box(id, "DELETE", at("files", "a", "recursive", "true"), nil).status)
	code, _ := c.exec(id, "test -e a || test -L link")
	assert.Equal(t, 1, code)
	c.upload(id, "~/x", "tilde")
	_, err := c.s.ReadFile(id, "/home/daytona/~/x")
	require.NoError(t, err, "~ is a name like any other")
	log, err := c.s.ReadFile(id, "/tmp/daytona-daemon.log")
	require.NoError(t, err)
	assert.Contains(t, string(log), "files/info?path=link%2Fone.txt", "paths are logged in the sandbox")
	assert.NotContains(t, string(log), "tilde", "and bodies are not")
}

// Paths lead nowhere but into the sandbox.
func TestFilesStayInside(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	secret := t.TempDir() + "/outside"
	c.exec(id, "ln -s / up; ln -s ../../../../../../../.. far; ln -s /proc/1/root root")
	for _, path := range []string{secret, "up" + secret, "far" + secret, "../../../.." + secret} {
		r := c.upload(id, path, "inside")
		assert.Equal(t, 200, r.status)
		got, err := c.s.ReadFile(id, secret)
		require.NoError(t, err)
		assert.Equal(t, "inside", string(got))
		assert.NoFileExists(t, secret)
		c.box(id, "DELETE", at("files", path), nil)
	}
}

func TestReadFileOfAStoppedSandbox(t *testing.T) {
	t.Parallel()
	c := fake(t, daytonatest.Options{})
	id := c.create()
	c.upload(id, "/tmp/f", "kept")
	c.api("POST", "sandbox/"+id+"/stop", nil)
	c.state(id, "stopped")
	got, err := c.s.ReadFile(id, "/tmp/f")
	require.NoError(t, err)
	assert.Equal(t, "kept", string(got))
	_, err = c.s.ReadFile("nobody", "/tmp/f")
	require.Error(t, err)
}
