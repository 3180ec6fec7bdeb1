package guest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/abi/guest"
	"github.com/sbxhost/sbxhost/abi/guest/guesttest"
)

// vendor is a small plugin that uses most of the kit.
type vendor struct{}

func (vendor) Create(c *guest.Call, r *abi.CreateRequest) (abi.CreateReply, error) {
	v, err := c.JSON("create sandbox", guest.Request{Route: "create", Free: guest.Free{}.String("/note", `a "b"`).Int("/n", 3).Bool("/x", true)})
	if err != nil {
		return abi.CreateReply{}, err
	}
	ref := abi.AppendString(nil, v.Get("id").Text())
	if err := c.Checkpoint(ref); err != nil {
		return abi.CreateReply{}, err
	}
	return abi.CreateReply{State: "pending", PollMs: 50, Ref: ref}, nil
}

func (vendor) Status(c *guest.Call, _ *abi.StatusRequest) (abi.StatusReply, error) {
	tries := 0
	err := c.Poll(100, func() (bool, error) { tries++; return tries == 3, nil })
	return abi.StatusReply{State: "running"}, err
}

func (vendor) Destroy(*guest.Call, *abi.StatusRequest) error { return errors.New("plain") }

func (vendor) List(c *guest.Call, _ *abi.ListRequest) (abi.ListReply, error) {
	resp, err := c.Do(guest.Request{Route: "list"})
	if err != nil {
		return abi.ListReply{}, err
	}
	defer resp.Close()
	var out abi.ListReply
	for {
		frame, err := resp.Next()
		if errors.Is(err, abi.ErrnoEnd) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, abi.Item{Sandbox: frame.Get("id").Text(), State: resp.Header("x-state")})
	}
}

func TestMain(m *testing.M) {
	guest.Serve(vendor{})
	m.Run()
}

func createRequest() *abi.CreateRequest {
	return &abi.CreateRequest{Session: "s", Config: abi.Raw("{}"), Name: "n", Network: "none", Env: abi.EnvHandle{Handle: "env_1", Names: []string{"TOKEN"}}}
}

func TestCreateSendsFreeFieldsAndCheckpoints(t *testing.T) {
	h := &guesttest.Host{HTTP: func(m abi.HTTPMeta, _ []byte) guesttest.Answer {
		assert.JSONEq(t, `{"/note":"a \"b\"","/n":3,"/x":true}`, string(m.Free))
		return guesttest.Answer{Status: 201, Body: `{"id":"sb-1"}`}
	}}
	reply, failure := h.Call(t, abi.OpCreate, createRequest())
	require.Nil(t, failure)
	assert.JSONEq(t, `{"state":"pending","pollMs":50,"ref":"sb-1"}`, string(reply))
	assert.Equal(t, []string{`"sb-1"`}, h.Checkpoints)
}

func TestVendorStatusesBecomeCodes(t *testing.T) {
	for status, code := range map[int]guest.Code{
		302: guest.Internal, 400: guest.InvalidArgument, 401: guest.PermissionDenied, 404: guest.NotFound, 408: guest.DeadlineExceeded,
		409: guest.Conflict, 418: guest.Internal, 422: guest.InvalidArgument, 429: guest.ResourceExhausted, 503: guest.Unavailable, 504: guest.DeadlineExceeded,
	} {
		h := &guesttest.Host{HTTP: func(abi.HTTPMeta, []byte) guesttest.Answer {
			return guesttest.Answer{Status: status, Body: "secret text"}
		}}
		_, failure := h.Call(t, abi.OpCreate, createRequest())
		require.NotNil(t, failure)
		assert.Equal(t, string(code), failure.Code, "%d", status)
		assert.NotContains(t, failure.Message, "secret text", "a vendor's body must not become an error message")
	}
}

func TestErrnosAndPlainErrorsBecomeCodes(t *testing.T) {
	h := &guesttest.Host{}
	_, failure := h.Call(t, abi.OpCreate, createRequest())
	require.NotNil(t, failure)
	assert.Equal(t, "Unavailable", failure.Code)
	_, failure = h.Call(t, abi.OpDestroy, &abi.StatusRequest{Session: "s", Config: abi.Raw("{}")})
	require.NotNil(t, failure)
	assert.Equal(t, "Internal", failure.Code)
	_, failure = h.Call(t, abi.OpExec, &abi.ExecRequest{Session: "s", Config: abi.Raw("{}"), Exec: abi.Exec{ID: "e"}})
	require.NotNil(t, failure)
	assert.Equal(t, "Unsupported", failure.Code)
	assert.Contains(t, failure.Message, "exec")
}

func TestPollObeysCancellation(t *testing.T) {
	h := &guesttest.Host{Cancel: true}
	_, failure := h.Call(t, abi.OpStatus, &abi.StatusRequest{Session: "s", Config: abi.Raw("{}")})
	require.NotNil(t, failure)
	assert.Equal(t, "Canceled", failure.Code)
}

func TestFramesEndProperlyOrAreLost(t *testing.T) {
	for _, broken := range []bool{false, true} {
		h := &guesttest.Host{HTTP: func(abi.HTTPMeta, []byte) guesttest.Answer {
			return guesttest.Answer{Status: 200, Header: map[string]string{"X-State": "running"}, Frames: []string{`{"id":"a"}`, `{"id":"b"}`}, Broken: broken}
		}}
		reply, failure := h.Call(t, abi.OpList, &abi.ListRequest{Config: abi.Raw("{}")})
		if broken {
			require.NotNil(t, failure)
			assert.Equal(t, "Lost", failure.Code)
			continue
		}
		require.Nil(t, failure)
		assert.JSONEq(t, `{"items":[{"sandbox":"a","state":"running"},{"sandbox":"b","state":"running"}]}`, string(reply))
	}
}
