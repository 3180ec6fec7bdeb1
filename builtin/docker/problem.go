package docker

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/sbxhost/sbxhost/provider"
)

const providerName = "docker"

// detail gives the embedded field a name that does not hide the Error method.
type detail = provider.Error

// fault builds a *provider.Error.
type fault struct{ detail }

// problem starts an error of this provider. Until applied says otherwise nothing
// was done.
func problem(code provider.Code, op, subject, message string) *fault {
	return &fault{detail{Code: code, Op: op, Provider: providerName, Subject: subject, Message: message, Applied: provider.AppliedNo}}
}

func (f *fault) cause(err error) *fault            { f.Err = err; return f }
func (f *fault) remedy(text string) *fault         { f.Remedy = text; return f }
func (f *fault) applied(a provider.Applied) *fault { f.Applied = a; return f }

// Unwrap hands out the provider.Error, which is what callers look for.
func (f *fault) Unwrap() error { return &f.detail }
func (f *fault) Error() string { return f.detail.Error() }

// ours puts this provider's name on a general error.
func ours(err error) error {
	var pe *provider.Error
	if errors.As(err, &pe) {
		pe.Provider = providerName
	}
	return err
}

func ctxProblem(op, subject string, err error, a provider.Applied) *fault {
	code := provider.Canceled
	if errors.Is(err, context.DeadlineExceeded) {
		code = provider.DeadlineExceeded
	}
	return problem(code, op, subject, "the caller gave up").applied(a)
}

// symptom is a text by which the engine's errors say what their status does not.
type symptom struct {
	text    string
	code    provider.Code
	message string
	remedy  string
}

// symptoms, the more particular first. They are looked for in lower case.
var symptoms = []symptom{
	{"no space left on device", provider.ResourceExhausted, "the engine's disk is full", "free space there: docker system df shows what uses it"},
	{"disk quota exceeded", provider.ResourceExhausted, "the engine's disk quota is used up", "free space there"},
	{"port is already allocated", provider.ResourceExhausted, "a port on the engine's machine is taken", "try again, or free the port"},
	{"address already in use", provider.ResourceExhausted, "a port on the engine's machine is taken", "try again, or free the port"},
	{"available, non-overlapping", provider.ResourceExhausted, "the engine has no address range left for another network", "remove networks that nobody uses (docker network prune), or enlarge default-address-pools in the engine's daemon.json"},
	{"could not find an available", provider.ResourceExhausted, "the engine has no address range left for another network", "remove networks that nobody uses (docker network prune), or enlarge default-address-pools in the engine's daemon.json"},
	{"minimum memory limit", provider.InvalidArgument, "resources.memoryMiB is less than the engine allows", "ask for 6 MiB or more"},
	{"range of cpus", provider.InvalidArgument, "resources.cpus is more than the engine's machine has", "ask for fewer"},
	{"bind source path does not exist", provider.InvalidArgument, "a granted host path is not on the engine's machine", "grant a path that exists there"},
	{"pull access denied", provider.NotFound, "the image is not at its registry, or needs a login", "check the name; docker pull it first where it needs a login"},
	{"manifest unknown", provider.NotFound, "the image has no such tag at its registry", "check the tag"},
	{"invalid reference format", provider.InvalidArgument, "the image's name is malformed", "use NAME, NAME:TAG or NAME@DIGEST"},
	{"unable to find user", provider.InvalidArgument, "the image has no such user", "use a user of the image, or a numeric id"},
	{"no matching entries in passwd file", provider.InvalidArgument, "the image has no such user", "use a user of the image, or a numeric id"},
	{"unable to find group", provider.InvalidArgument, "the image has no such group", "use a group of the image, or a numeric id"},
	{"no matching entries in group file", provider.InvalidArgument, "the image has no such group", "use a group of the image, or a numeric id"},
	{"is paused", provider.FailedPrecondition, "the sandbox is paused", "resume it first"},
	{"is not running", provider.FailedPrecondition, "the sandbox is stopped", "create another"},
	{"cannot allocate memory", provider.ResourceExhausted, "the engine's machine has no memory left", "try again later"},
	{"too many open files", provider.ResourceExhausted, "the engine has no descriptors left", "raise its limit, or try again later"},
}

// engineProblem turns an error of the engine's client into ours. done says
// whether the action may have happened when the answer was lost; an error that
// the engine itself answered with did not happen.
func engineProblem(ctx context.Context, op, subject string, err error, lost provider.Applied) *fault {
	if ctx.Err() != nil {
		return ctxProblem(op, subject, ctx.Err(), lost)
	}
	var pe *provider.Error
	if errors.As(err, &pe) {
		f := &fault{*pe}
		f.Provider = providerName
		return f
	}
	if errors.Is(err, fs.ErrPermission) {
		return problem(provider.PermissionDenied, op, subject, "the engine's socket may not be used by this user").cause(err).
			remedy("run as a member of the socket's group (docker), or set " + SettingHost + " to an engine of your own")
	}
	if client.IsErrConnectionFailed(err) {
		return problem(provider.Unavailable, op, subject, "the engine cannot be reached").cause(err).applied(lost).
			remedy("start it (systemctl start docker, or dockerd), or set DOCKER_HOST or " + SettingHost + " to where it listens")
	}
	text := strings.ToLower(err.Error())
	for _, s := range symptoms {
		if strings.Contains(text, s.text) {
			return problem(s.code, op, subject, s.message).cause(err).remedy(s.remedy)
		}
	}
	code := provider.Internal
	switch {
	case cerrdefs.IsNotFound(err):
		code = provider.NotFound
	case cerrdefs.IsInvalidArgument(err):
		code = provider.InvalidArgument
	case cerrdefs.IsConflict(err):
		code = provider.Conflict
	case cerrdefs.IsAlreadyExists(err):
		code = provider.AlreadyExists
	case cerrdefs.IsPermissionDenied(err), cerrdefs.IsUnauthorized(err):
		code = provider.PermissionDenied
	case cerrdefs.IsNotImplemented(err):
		code = provider.Unsupported
	case cerrdefs.IsUnavailable(err):
		code = provider.Unavailable
	case cerrdefs.IsInternal(err):
		// The engine tried; what it did before it failed is not known.
		return problem(code, op, subject, "the engine failed").cause(err).applied(lost).remedy("the engine's own log may say more")
	default:
		// No answer that we understand: the connection broke.
		return problem(provider.Unavailable, op, subject, "the engine's answer was lost").cause(err).applied(lost).
			remedy("see whether the engine still runs")
	}
	return problem(code, op, subject, "the engine refused").cause(err).remedy("the engine's own log may say more")
}

// gone reports whether the engine says that the thing does not exist.
func gone(err error) bool { return cerrdefs.IsNotFound(err) }
