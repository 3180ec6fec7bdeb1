package docker

import (
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// Labels of this provider's own. Users cannot set labels with this prefix, and
// every one is set on every container, so that an image cannot.
const (
	labelOwn        = "sbxhost.docker."
	labelImage      = labelOwn + "image"      // as the manifest names it
	labelRoot       = labelOwn + "root"       // the manifest's
	labelUser       = labelOwn + "user"       // of commands
	labelStart      = labelOwn + "start"      // idle or image
	labelProtected  = labelOwn + "protected"  // names with the create transport, comma-separated
	labelUnenforced = labelOwn + "unenforced" // wishes, comma-separated
	labelKind       = labelOwn + "kind"       // of a volume or network: see below
	labelDigest     = labelOwn + "digest"     // of the supervisor
)

// Kinds.
const (
	kindWorkspace  = "workspace"
	kindMarker     = "marker"  // a sandbox on another one's workspace
	kindRetired    = "retired" // the sandbox that a workspace is named for is not its owner any more
	kindSupervisor = "supervisor"
	kindNetwork    = "network"
	kindSandbox    = "sandbox"
)

// sessionOf returns the session that a sandbox's name belongs to, "" for a name
// that is none.
func sessionOf(name string) string {
	rest, ok := strings.CutPrefix(name, provider.NamePrefix)
	if !ok || len(rest) < 32 {
		return ""
	}
	session, tail := rest[:32], rest[32:]
	if strings.Trim(session, "0123456789abcdef") != "" {
		return ""
	}
	if tail != "" && (tail[0] != '-' || len(tail) == 1) {
		return ""
	}
	return session
}

// proves reports whether labels and name together prove that a container or
// volume was made by us for the session in its name: all reserved labels are
// there, and the name is the one that they call for.
func proves(name, kind string, labels map[string]string) bool {
	for _, l := range []string{provider.LabelOwner, provider.LabelEpoch, provider.LabelSession, provider.LabelAttempt, provider.LabelDigest, provider.LabelProtected} {
		if labels[l] == "" {
			return false
		}
	}
	session := labels[provider.LabelSession]
	return labels[labelKind] == kind && session != "" && sessionOf(name) == session &&
		(name == provider.NamePrefix+session || name == provider.ReplacementName(session, labels[provider.LabelAttempt]))
}

// public are the labels that the host put there.
func public(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		if !strings.HasPrefix(k, labelOwn) {
			out[k] = v
		}
	}
	return out
}

func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
