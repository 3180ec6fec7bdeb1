// Package config is the command's configuration file: strict YAML (or JSON, which
// is YAML too), located errors, no expansion of any kind. It holds names of
// variables, never values.
package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/sbxhost/sbxhost/grants"
)

// Config is a configuration file. The zero Config is valid: nothing is granted
// and every default is in force. The JSON tags are the spelling in the file, and
// config.schema.json at the module's root describes the same.
type Config struct {
	// AllowedProcessEnvironmentKeys grants each name K the pair K → K.
	AllowedProcessEnvironmentKeys []string `json:"allowedProcessEnvironmentKeys"`
	// ProcessEnvironmentBindings grants the pairs destination → source.
	ProcessEnvironmentBindings map[string]string `json:"processEnvironmentBindings"`
	// HostPathRoots are directories that a manifest's hostPath may lie under.
	// Relative ones are relative to the file.
	HostPathRoots []string `json:"hostPathRoots"`
	Local         Local    `json:"local"`
	Docker        Docker   `json:"docker"`
	Daytona       Daytona  `json:"daytona"`
	Redact        Redact   `json:"redact"`
	Limits        Limits   `json:"limits"`
	Log           Log      `json:"log"`
	// Plugins are provider plugins by name, which is the name in their manifest
	// and what --provider takes.
	Plugins map[string]Plugin `json:"plugins"`
	// PluginsLock is the file with the approvals; "" is plugins.lock beside the
	// configuration.
	PluginsLock string `json:"pluginsLock"`
	// PluginsCache keeps compiled plugins; "" is
	// $XDG_CACHE_HOME/sbxhost/plugins.
	PluginsCache string `json:"pluginsCache"`
}

// Plugin configures one provider plugin. It is used only if its file is the
// approved one.
type Plugin struct {
	// Path is the .wasm file. A relative one is relative to the configuration.
	Path string `json:"path"`
	// Credentials say where each of the plugin's credentials comes from. The
	// plugin never sees them.
	Credentials map[string]Source `json:"credentials"`
	// Settings are values for the manifest's config fields, as text.
	Settings map[string]string `json:"settings"`
	// Origins set or replace where the plugin's requests go.
	Origins map[string]Origin `json:"origins"`
	// AllowPluginDriven lets a plugin-driven plugin be given references. It
	// could obtain their values.
	AllowPluginDriven bool `json:"allowPluginDriven"`
}

// Source names where a value comes from. It holds none.
type Source struct {
	Type string `json:"type"` // process_env
	Name string `json:"name"` // of the variable
}

// SourceProcessEnv is the one type of Source: a variable of sbxhost's own
// environment.
const SourceProcessEnv = "process_env"

// Origin is what the operator says about one origin of a plugin.
type Origin struct {
	URL string `json:"url"`
	// AllowPrivate permits loopback, private and link-local addresses, and plain
	// HTTP to them.
	AllowPrivate bool `json:"allowPrivate"`
}

// Local configures the local provider.
type Local struct {
	// StateDir holds sandboxes' workspaces; "" is the provider's default.
	StateDir string `json:"stateDir"`
	// AllowNetwork lets manifests ask for network: default.
	AllowNetwork bool `json:"allowNetwork"`
	// InheritEnv names host variables that sandboxes inherit beside the
	// built-in allow-list. Names that look like credentials are refused anyway.
	InheritEnv []string `json:"inheritEnv"`
	// ReadOnlyPaths are host directories, besides /usr and its like, that
	// sandboxes can read and execute. Relative ones are relative to the file.
	ReadOnlyPaths []string `json:"readOnlyPaths"`
	// PIDs limits processes and threads where a manifest does not; 0 is the
	// default, 256.
	PIDs int64 `json:"pids"`
	// Unsafe runs commands without isolation: they can do whatever the user of
	// this process can.
	Unsafe bool `json:"unsafe"`
	// KillLeftovers stops what an exec with request secrets left running when it
	// ends, since such processes could read other execs' secrets. nil is true;
	// false says that everything in a sandbox shares trust.
	KillLeftovers *bool `json:"killLeftovers"`
}

// Docker configures the docker provider.
type Docker struct {
	// Host is the engine's address; "" is the one that the docker command would
	// use.
	Host string `json:"host"`
	// Context names a context of the docker command; it excludes Host.
	Context string `json:"context"`
	// Image is for manifests that name none; "" refuses those.
	Image string `json:"image"`
	// Pull says when images are pulled: missing, always or never; "" is missing.
	Pull string `json:"pull"`
	// PIDs limits processes and threads where a manifest does not; 0 is the
	// default, 512.
	PIDs int64 `json:"pids"`
	// ShimPath is a supervisor for an engine's architecture that none is embedded
	// for. A relative one is relative to the file.
	ShimPath string `json:"shimPath"`
	// AllowEngineEnv allows such an engine to go without: values then pass
	// through the engine, and commands are killed as far as possible.
	AllowEngineEnv bool `json:"allowEngineEnv"`
}

// PullPolicies are the values Docker.Pull takes.
var PullPolicies = []string{"missing", "always", "never"}

// Daytona configures the daytona provider.
type Daytona struct {
	// APIURL is the control API's address; "" is the hosted service's.
	APIURL string `json:"apiUrl"`
	// APIKey says where the key comes from; the zero value is the variable
	// DAYTONA_API_KEY.
	APIKey Source `json:"apiKey"`
	// Target is the region of new sandboxes; "" is the organization's default.
	Target string `json:"target"`
	// OrganizationID is needed when the key is a JWT.
	OrganizationID string `json:"organizationId"`
	// ToolboxURL is where toolboxes are reached, when their host is neither that
	// of APIURL nor below it.
	ToolboxURL string `json:"toolboxUrl"`
	// Snapshot is for manifests that name no image; "" is the service's default.
	Snapshot string `json:"snapshot"`
	// AutoStop is how long a sandbox may be unused before the service stops it; 0
	// is the default, 1 h.
	AutoStop time.Duration `json:"autoStop"`
}

// Redact configures redaction.
type Redact struct {
	// MinLength is the length from which a value is masked wherever it stands; 0
	// is the default, 8. Shorter ones, of 6 bytes or more, are masked as words of
	// their own; others are reported as unmaskable.
	MinLength int `json:"minLength"`
	// Idle is how long the start of a possible secret is held back while the
	// command is silent; 0 is the default, 20 ms.
	Idle time.Duration `json:"idle"`
}

// Limits bound what one host does; zero fields take the documented defaults.
type Limits struct {
	Live           int           `json:"live"`           // sandboxes at a time
	Pending        int           `json:"pending"`        // creates at a time
	Execs          int           `json:"execs"`          // commands at a time, in all sandboxes
	RequestSecrets int           `json:"requestSecrets"` // per session, over its life
	ExecTimeout    time.Duration `json:"execTimeout"`    // of a command that asks for none
	MaxOutput      int64         `json:"maxOutput"`      // bytes kept per stream
}

// Log configures diagnostics on stderr.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn, error
	Format string `json:"format"` // text, json
}

// LogLevels and LogFormats are the values Log takes.
var (
	LogLevels  = []string{"debug", "info", "warn", "error"}
	LogFormats = []string{"text", "json"}
)

// Grants returns the host-scoped grant set.
func (c Config) Grants() grants.Set {
	return grants.Set{
		AllowedProcessEnvironmentKeys: c.AllowedProcessEnvironmentKeys,
		ProcessEnvironmentBindings:    c.ProcessEnvironmentBindings,
	}.Clone()
}

// validate checks what types alone cannot say. at locates a key for messages.
func (c Config) validate(at func(pointer string) Position) error {
	fail := func(pointer, format string, args ...any) error {
		return &Error{Position: at(pointer), Path: pointer, Message: fmt.Sprintf(format, args...)}
	}
	if err := c.Grants().Validate(); err != nil {
		pointer := "/processEnvironmentBindings"
		if len(c.ProcessEnvironmentBindings) == 0 {
			pointer = "/allowedProcessEnvironmentKeys"
		}
		return &Error{Position: at(pointer), Path: pointer, Message: err.Error(), Err: err}
	}
	for list, dirs := range map[string][]string{"/hostPathRoots": c.HostPathRoots, "/local/readOnlyPaths": c.Local.ReadOnlyPaths} {
		for i, dir := range dirs {
			if dir == "" {
				return fail(fmt.Sprintf("%s/%d", list, i), "must name a directory")
			}
		}
	}
	if err := c.validatePlugins(fail); err != nil {
		return err
	}
	if err := c.validateDaytona(fail); err != nil {
		return err
	}
	switch {
	case c.Log.Level != "" && !slices.Contains(LogLevels, c.Log.Level):
		return fail("/log/level", "must be one of %v", LogLevels)
	case c.Log.Format != "" && !slices.Contains(LogFormats, c.Log.Format):
		return fail("/log/format", "must be one of %v", LogFormats)
	case c.Docker.Pull != "" && !slices.Contains(PullPolicies, c.Docker.Pull):
		return fail("/docker/pull", "must be one of %v", PullPolicies)
	case c.Docker.Host != "" && c.Docker.Context != "":
		return fail("/docker/context", "excludes host: a context has its own")
	case c.Redact.MinLength != 0 && (c.Redact.MinLength < 4 || c.Redact.MinLength > 64):
		return fail("/redact/minLength", "must be between 4 and 64")
	}
	for pointer, n := range map[string]int64{
		"/limits/live": int64(c.Limits.Live), "/limits/pending": int64(c.Limits.Pending),
		"/limits/execs": int64(c.Limits.Execs), "/limits/requestSecrets": int64(c.Limits.RequestSecrets),
		"/limits/execTimeout": int64(c.Limits.ExecTimeout), "/limits/maxOutput": c.Limits.MaxOutput,
		"/redact/idle": int64(c.Redact.Idle), "/local/pids": c.Local.PIDs, "/docker/pids": c.Docker.PIDs,
		"/daytona/autoStop": int64(c.Daytona.AutoStop),
	} {
		if n < 0 {
			return fail(pointer, "must not be negative")
		}
	}
	return nil
}

// resolve makes relative paths relative to the file's directory.
func (c *Config) resolve(dir string) {
	abs := func(p string) string {
		if p == "" || filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(dir, p)
	}
	for i, r := range c.HostPathRoots {
		c.HostPathRoots[i] = abs(r)
	}
	for i, p := range c.Local.ReadOnlyPaths {
		c.Local.ReadOnlyPaths[i] = abs(p)
	}
	c.Local.StateDir, c.Docker.ShimPath = abs(c.Local.StateDir), abs(c.Docker.ShimPath)
	for name, p := range c.Plugins {
		p.Path = abs(p.Path)
		c.Plugins[name] = p
	}
	c.PluginsLock, c.PluginsCache = abs(c.PluginsLock), abs(c.PluginsCache)
}
