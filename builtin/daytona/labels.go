package daytona

import (
	"strconv"
	"strings"

	"github.com/sbxhost/sbxhost/provider"
)

// Labels of this provider's own. Users cannot set labels with this prefix.
const (
	labelOwn        = "sbxhost.daytona."
	labelRoot       = labelOwn + "root"       // the manifest's
	labelPorts      = labelOwn + "ports"      // the manifest's, comma-separated
	labelCreate     = labelOwn + "create"     // names with the create transport, comma-separated
	labelUnenforced = labelOwn + "unenforced" // wishes, semicolon-separated
)

// deletedName is what the service makes of the name of a sandbox that it deletes:
// DESTROYED_NAME_MILLISECONDS.
func originalName(name string) string {
	if rest, ok := strings.CutPrefix(name, "DESTROYED_"); ok {
		if i := strings.LastIndexByte(rest, '_'); i > 0 {
			return rest[:i]
		}
	}
	return name
}

// proves reports whether labels and name together prove that a sandbox was made
// by us for the session in its labels: all reserved labels are there, and the
// name is the one that they call for.
func proves(sb sandboxInfo) bool {
	for _, l := range []string{provider.LabelOwner, provider.LabelEpoch, provider.LabelSession, provider.LabelAttempt, provider.LabelDigest, provider.LabelProtected, labelRoot} {
		if sb.Labels[l] == "" {
			return false
		}
	}
	session, name := sb.Labels[provider.LabelSession], originalName(sb.Name)
	return len(session) == 32 && strings.Trim(session, "0123456789abcdef") == "" &&
		(name == provider.NamePrefix+session || name == provider.ReplacementName(session, sb.Labels[provider.LabelAttempt]))
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

func splitList(s, sep string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, sep)
}

func portList(ports []int) string {
	var out []string
	for _, p := range ports {
		out = append(out, strconv.Itoa(p))
	}
	return strings.Join(out, ",")
}

// stateOf maps the service's states. One that is not known is not a terminal
// one.
func stateOf(state string) provider.State {
	switch state {
	case "started":
		return provider.StateRunning
	case "creating", "restoring", "starting", "pending_build", "building_snapshot", "pulling_snapshot", "resuming",
		"stopping", "pausing", "archiving", "resizing", "snapshotting", "forking", "destroying":
		return provider.StatePending
	case "stopped", "paused", "archived":
		return provider.StatePaused // it can be started, with its files
	case "error", "build_failed":
		return provider.StateStopped
	case "destroyed":
		return provider.StateGone
	}
	return provider.StateUnknown
}

// failed reports whether a sandbox will never start.
func failed(state string) bool { return state == "error" || state == "build_failed" }

// dying reports whether a sandbox is being deleted.
func dying(state string) bool { return state == "destroying" || state == "destroyed" }

// minEnvs is the first daemon that takes the field envs of an execute request.
var minEnvs = [2]int{0, 167}

// tooOld reports whether a daemon says that it has a version without envs. One
// that does not say is asked by the first script.
func tooOld(version *string) bool {
	if version == nil {
		return false
	}
	var got [2]int
	for i, part := range strings.SplitN(strings.TrimPrefix(*version, "v"), ".", 3) {
		if i > 1 {
			break
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			return false
		}
		got[i] = n
	}
	return *version != "" && (got[0] < minEnvs[0] || got[0] == minEnvs[0] && got[1] < minEnvs[1])
}
