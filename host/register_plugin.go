package host

import (
	"github.com/sbxhost/sbxhost/plugin"
)

// RegisterPlugin registers a loaded plugin. A plugin is never trusted: it is
// given references only through a protected transport of its approved manifest,
// which the plugin runtime carries out without the plugin seeing a value. One
// whose description offers no transport, because the manifest has none or
// because it is plugin-driven and the operator did not allow that, is refused
// references before any of its code has run. The caller closes p after the
// host. AlreadyExists when the name is taken.
func (h *Host) RegisterPlugin(name string, p *plugin.Plugin) error {
	if p == nil {
		return invalid("register", "plugin "+shown(name)+" is nil", "")
	}
	return h.register(registration{name: name, plugin: true}, p)
}

// receives reports whether a provider may be given protected values: a trusted
// one, and a plugin that has a protected transport.
func (r *registration) receives() bool {
	return r.trusted || r.plugin && len(r.desc.Transports) > 0
}
