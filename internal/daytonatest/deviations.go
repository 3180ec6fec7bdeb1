package daytonatest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// problemAt names the place and the keyword of one problem.
func problemAt(v *jsonschema.ValidationError) string {
	at := "/" + strings.Join(v.InstanceLocation, "/")
	switch k := v.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		return at + ": properties that are not in the specification: " + strings.Join(k.Properties, ", ")
	case *kind.Required:
		return at + ": missing properties: " + strings.Join(k.Missing, ", ")
	case *kind.Type:
		return at + ": is " + k.Got + ", must be " + strings.Join(k.Want, " or ")
	}
	return at + ": breaks " + strings.Join(v.ErrorKind.KeywordPath(), "/")
}

// Deviation is a difference between what the service was measured to do and its
// specification, which the validator lets pass.
type Deviation struct {
	// Ops that it is seen on; nil means all of that part of the service.
	Ops []string
	// What differs.
	What string

	control bool // or the toolbox
	// accepts says that this answer is the deviation.
	accepts func(status int, h http.Header, body []byte) bool
	// nulls are properties that are null where the specification has no null.
	nulls []string
}

// Deviations lists them all.
func Deviations() []Deviation { return slices.Clone(deviations) }

// sandboxOps answer with sandboxes.
var sandboxOps = []string{"createSandbox", "getSandbox", "deleteSandbox", "listSandboxes", "listSandboxesPaginated_deprecated", "startSandbox",
	"stopSandbox", "archiveSandbox", "recoverSandbox", "resizeSandbox", "createBackup", "createSandboxSnapshot", "updatePublicStatus",
	"setAutostopInterval", "setAutoPauseInterval", "setAutoArchiveInterval", "setAutoDeleteInterval", "setTtl", "updateNetworkSettings"}

var deviations = []Deviation{
	{control: true, Ops: sandboxOps, What: "properties without a value are null, not absent (v0.190)",
		nulls: []string{"snapshot", "networkAllowList", "domainAllowList", "errorReason", "daemonVersion"}},
	{control: true, What: "errors are not specified: {path, timestamp, statusCode, error, message}",
		accepts: func(status int, _ http.Header, body []byte) bool {
			return status >= 400 && hasFields(body, "statusCode", "message")
		}},
	{control: true, What: "an empty body instead of an error: 502 from the proxy in front",
		accepts: func(status int, _ http.Header, body []byte) bool {
			return status == http.StatusBadGateway && len(body) == 0
		}},
	{control: true, What: "201 where 200 is specified",
		Ops: []string{"setAutostopInterval", "setAutoPauseInterval", "setAutoArchiveInterval", "setAutoDeleteInterval", "setTtl"},
		accepts: func(status int, _ http.Header, body []byte) bool {
			return status == http.StatusCreated && len(body) > 0
		}},
	{control: true, Ops: []string{"replaceLabels"}, What: "the whole sandbox where its labels are specified",
		accepts: func(status int, _ http.Header, body []byte) bool {
			return status == http.StatusOK && hasFields(body, "id", "labels", "state")
		}},
	{What: "an empty body instead of an error: 502 from the proxy, and file operations of v0.190",
		accepts: func(status int, _ http.Header, body []byte) bool { return status >= 400 && len(body) == 0 }},
	{What: "statuses of the proxy in front of the toolbox, which the toolbox's specification does not have",
		accepts: func(status int, _ http.Header, body []byte) bool {
			return slices.Contains([]int{400, 401, 404, 429, 500, 502, 503}, status) && hasFields(body, "statusCode", "message")
		}},
	{What: "404 page not found as plain text for a route that the daemon does not have",
		accepts: func(status int, h http.Header, _ []byte) bool {
			return status == http.StatusNotFound && strings.HasPrefix(h.Get("Content-Type"), "text/plain")
		}},
	{Ops: []string{"CreatePtySession", "GetPtySession", "DeletePtySession", "ResizePtySession", "ListPtySessions", "ConnectPtySession"},
		What: "terminal errors are {error} in v0.190",
		accepts: func(status int, _ http.Header, body []byte) bool {
			return status >= 400 && hasFields(body, "error")
		}},
	{Ops: []string{"UploadFiles"}, What: "a failed bulk upload answers {errors, files}",
		accepts: func(status int, _ http.Header, body []byte) bool {
			return status == http.StatusBadRequest && hasFields(body, "errors", "files")
		}},
	{Ops: []string{"SessionExecuteCommand"}, What: "an accepted command has null results",
		nulls: []string{"output", "stdout", "stderr", "exitCode"}},
	{Ops: []string{"GetSessionCommandLogs"}, What: "logs are plain text unless the client says that it is new enough",
		accepts: func(status int, h http.Header, _ []byte) bool {
			return status == http.StatusOK && strings.HasPrefix(h.Get("Content-Type"), "text/plain")
		}},
}

// deviates says whether an answer is a known difference, and which null
// properties are to be let pass.
func (o operation) deviates(status int, h http.Header, body []byte) (ok bool, nulls []string) {
	for _, d := range deviations {
		if d.control != o.inControl || d.Ops != nil && !slices.Contains(d.Ops, o.id) {
			continue
		}
		nulls = append(nulls, d.nulls...)
		ok = ok || d.accepts != nil && d.accepts(status, h, body)
	}
	return ok, nulls
}
