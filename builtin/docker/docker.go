// Package docker makes sandboxes out of containers of a Docker Engine: one
// container per session, with the in-sandbox supervisor as its PID 1, and the
// manifest's root on a named volume.
//
// # Values
//
// With the exec transport, protected values and request secrets travel to the
// supervisor as frames on the input of an engine exec whose arguments are
// always the same, and from there into the environment of the one command they
// are for. The engine never sees them: they are in no argument, in no inspect
// result, in no file of the engine's, in no event and in no committed image.
//
// With the create transport they are part of the container's configuration, as
// with docker run -e: an image's own entrypoint sees them, and so does whoever
// can use the engine's API or read its files, one of which may keep them longer than
// the container lives. Every command that is not the workload has them removed.
//
// # What the engine holds
//
// Containers and volumes carry the session's labels, and are touched only when
// their labels prove them ours; names come from the engine. Besides them, an
// engine gets one read-only volume with the supervisor, named by its digest, and
// one bridge network per owner with networking, on which containers cannot
// reach each other; it goes with the last container on it.
//
// # Trust
//
// Whoever can use the engine's API is root on the engine's machine, and in every
// sandbox. The kernel is shared with that machine.
package docker

import "time"

// Options configure a Provider. The zero value uses the engine that the docker
// command would use.
type Options struct {
	// Host is the engine's address, such as unix:///run/docker.sock or
	// tcp://10.0.0.5:2376. Default: that of Context; else $DOCKER_HOST; else
	// that of $DOCKER_CONTEXT or the docker command's current context; else the
	// system's default socket. ssh addresses are refused.
	Host string
	// Context names a context of the docker command. Default: see Host.
	Context string
	// ConfigDir is the docker command's configuration directory. Default:
	// $DOCKER_CONFIG, else ~/.docker.
	ConfigDir string
	// Image is used for manifests that name none. Default: such a manifest is
	// refused.
	Image string
	// Pull says when an image is pulled. Default: PullMissing.
	Pull PullPolicy
	// PIDs is the limit of processes and threads for a manifest that names none.
	// Default: 512. The supervisors' own are not counted.
	PIDs int64
	// ShimPath is a supervisor for an architecture of the engine's for which
	// none is embedded: a static Linux program built from this module's
	// internal/shim/cmd/shim. Default: the embedded one.
	ShimPath string
	// AllowEngineEnv allows an engine for which there is no supervisor. Values
	// then travel in the engine's exec environment, and commands can be killed
	// as far as a shell in the image can do it; Describe says so. Default: such
	// an engine is refused.
	AllowEngineEnv bool
	// ConnectTimeout bounds how long New waits for the engine. Default: 10 s.
	ConnectTimeout time.Duration
}

// PullPolicy says when an image is pulled.
type PullPolicy string

// The policies.
const (
	PullMissing PullPolicy = "missing" // when the engine does not have it
	PullAlways  PullPolicy = "always"
	PullNever   PullPolicy = "never"
)

// Settings as they are spelled in the command's configuration; errors name them.
const (
	SettingHost      = "docker.host"
	SettingImage     = "docker.image"
	SettingEngineEnv = "docker.allowEngineEnv"
	SettingShimPath  = "docker.shimPath"
)
