package manifest

import "strings"

// CheckDurable refuses a manifest that names host paths (files with hostPath,
// pathGrants), for places where it may be used on another host or much later.
// The *Error names every such place by its path inside the sandbox and never
// shows a host path.
func CheckDurable(m Manifest) error {
	var bound []string
	for _, f := range sortedFiles(m.Files) {
		if f.HostPath != "" {
			bound = append(bound, f.path)
		}
	}
	for _, g := range m.PathGrants {
		bound = append(bound, g.Path)
	}
	if len(bound) == 0 {
		return nil
	}
	return errorAt(nil, "bound to this host by %s; give file content in the manifest, or write the files after the sandbox was made",
		strings.Join(bound, ", "))
}
