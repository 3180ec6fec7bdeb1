package plugin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sbxhost/sbxhost/abi"
	"github.com/sbxhost/sbxhost/plugin/internal/engine"
	"github.com/sbxhost/sbxhost/plugin/internal/spec"
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
	"github.com/sbxhost/sbxhost/provider"
)

// ManifestSection is the custom section of a module that holds its manifest.
const ManifestSection = "sbxhost.plugin"

// Manifest is a plugin's declaration of what it may do.
type Manifest = spec.Manifest

// ParseManifest reads and checks a manifest. The error is a *ManifestError.
func ParseManifest(doc []byte) (*Manifest, error) { return spec.Parse(doc) }

// Pack returns module with manifest in its custom section, replacing one that is
// there. Both are checked: what Pack returns can be approved and loaded.
func Pack(module, manifest []byte) ([]byte, error) {
	if _, err := spec.Parse(manifest); err != nil {
		return nil, invalidModule("pack plugin", err)
	}
	packed, err := wasmfile.WithCustomSection(module, ManifestSection, manifest)
	if err != nil {
		return nil, invalidModule("pack plugin", err)
	}
	if _, _, err := inspectModule(packed); err != nil {
		return nil, err
	}
	return packed, nil
}

// manifestSection returns the manifest as the module holds it, nil without one.
func manifestSection(module []byte) []byte {
	b, _, err := wasmfile.CustomSection(module, ManifestSection)
	if err != nil {
		return nil
	}
	return b
}

func invalidModule(op string, err error) error {
	return &provider.Error{Code: provider.InvalidArgument, Op: op, Message: "the plugin cannot be used", Applied: provider.AppliedNo, Err: err}
}

// inspectModule makes every check that needs no compiling and no approval.
func inspectModule(module []byte) (*wasmfile.Module, *spec.Manifest, error) {
	const op = "inspect plugin"
	doc, ok, err := wasmfile.CustomSection(module, ManifestSection)
	if err != nil {
		return nil, nil, invalidModule(op, err)
	}
	if !ok {
		return nil, nil, &provider.Error{Code: provider.InvalidArgument, Op: op, Message: "the module has no plugin manifest", Remedy: "add one with sbxhost plugin pack", Applied: provider.AppliedNo}
	}
	m, err := spec.Parse(doc)
	if err != nil {
		return nil, nil, invalidModule(op, err)
	}
	mod, err := wasmfile.Parse(module)
	if err != nil {
		return nil, nil, invalidModule(op, err)
	}
	if err := mod.CheckImports(engine.Offers([]engine.HostModule{engine.Preview1(), hostModule()}), nil); err != nil {
		return nil, nil, invalidModule(op, err)
	}
	if _, isCommand := mod.ExportedFunc("_start"); isCommand {
		return nil, nil, invalidModule(op, fmt.Errorf("the module exports _start: build it as a reactor (Go: -buildmode=c-shared; C: -mexec-model=reactor)"))
	}
	t, ok := mod.ExportedFunc(abi.CallExport)
	want := wasmfile.FuncType{Params: []wasmfile.ValType{wasmfile.I32}, Results: []wasmfile.ValType{wasmfile.I32}}
	if !ok || !t.Equal(want) {
		return nil, nil, invalidModule(op, fmt.Errorf("the module must export %s of type %s", abi.CallExport, want))
	}
	if e, ok := mod.Export("memory"); !ok || e.Kind != wasmfile.ExternMemory {
		return nil, nil, invalidModule(op, fmt.Errorf("the module must export its memory as \"memory\""))
	}
	return mod, m, nil
}

// Inspection is what a person judges a plugin by.
type Inspection struct {
	Digest              string               `json:"digest"` // sha-256 of the whole file
	Size                int                  `json:"size"`   // in bytes
	Name                string               `json:"name"`
	Version             string               `json:"version"`
	Kind                string               `json:"kind"`
	ReceivesReferences  string               `json:"receivesReferences"` // in one sentence
	Description         provider.Description `json:"description"`
	Operations          []string             `json:"operations"`
	Origins             []InspectedOrigin    `json:"origins"`
	Routes              []InspectedRoute     `json:"routes"`
	Credentials         []string             `json:"credentials"`
	Captures            []string             `json:"captures"`
	Settings            []string             `json:"settings"`
	ProtectedTransports []string             `json:"protectedTransports"`
	Imports             []string             `json:"imports"`
	Manifest            json.RawMessage      `json:"manifest"`
}

// InspectedOrigin is where a plugin can send requests.
type InspectedOrigin struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Headers []string `json:"headers"`
}

// InspectedRoute is one request a plugin can make the host send.
type InspectedRoute struct {
	ID      string   `json:"id"`
	Role    string   `json:"role"`
	Request string   `json:"request"` // METHOD origin path
	Host    []string `json:"host"`    // what the host fills in
	Plugin  []string `json:"plugin"`  // what the plugin chooses
	Reply   []string `json:"reply"`   // where parts of the answer go
}

// Inspect reads a module and describes what it could do. Nothing of it runs or
// is compiled.
func Inspect(module []byte) (*Inspection, error) {
	mod, m, err := inspectModule(module)
	if err != nil {
		return nil, err
	}
	out := &Inspection{
		Digest: mod.Digest(), Size: len(module), Name: m.Name, Version: m.Version, Kind: string(m.Kind), Operations: m.Operations,
		Description: describe(m, true), Manifest: json.RawMessage(manifestSection(module)), Imports: []string{},
	}
	switch {
	case !m.Protected.Any():
		out.ReceivesReferences = "never: it has no protected transport"
	case m.Kind == spec.PluginDriven:
		out.ReceivesReferences = "only if the configuration sets allowPluginDriven; it could then obtain the values by what it runs"
	default:
		out.ReceivesReferences = "yes; the plugin never sees the values and cannot choose what runs"
	}
	for _, id := range m.Protected.Exec {
		out.ProtectedTransports = append(out.ProtectedTransports, "exec through route "+id)
	}
	for _, id := range m.Protected.Create {
		out.ProtectedTransports = append(out.ProtectedTransports, "create through route "+id)
	}
	for _, c := range m.Credentials {
		out.Credentials = append(out.Credentials, c.Name)
	}
	out.Captures, out.Settings = sortedKeys(m.Captures), sortedKeys(m.Config)
	for _, name := range sortedKeys(m.Origins) {
		out.Origins = append(out.Origins, inspectOrigin(name, m.Origins[name]))
	}
	for i := range m.Routes {
		out.Routes = append(out.Routes, inspectRoute(&m.Routes[i]))
	}
	for _, im := range mod.Imports {
		out.Imports = append(out.Imports, im.Module+"."+im.Name)
	}
	slices.Sort(out.Imports)
	return out, nil
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func inspectOrigin(name string, o spec.Origin) InspectedOrigin {
	out := InspectedOrigin{Name: name, Address: o.URL}
	switch {
	case o.Configured:
		out.Address = "set by the operator"
	case o.Capture != "":
		out.Address = "from the reply field " + o.Capture + ", within " + strings.Join(o.Allow, ", ")
	}
	for _, h := range o.Headers {
		out.Headers = append(out.Headers, describeHeader(h))
	}
	return out
}

func describeHeader(h spec.Header) string {
	switch {
	case h.Credential != "":
		return h.Name + ": " + h.Prefix + "(credential " + h.Credential + ")"
	case h.Capture != "":
		return h.Name + ": " + h.Prefix + "(captured " + h.Capture + ")"
	case h.Config != "":
		return h.Name + ": " + h.Prefix + "(setting " + h.Config + ")"
	case h.From != "":
		return h.Name + ": (" + h.From + ")"
	}
	return h.Name + ": " + h.Value
}

func inspectRoute(r *spec.Route) InspectedRoute {
	out := InspectedRoute{ID: r.ID, Role: string(r.Role), Request: r.Method + " " + r.Origin + " " + r.Path, Host: []string{}, Plugin: []string{}, Reply: []string{}}
	field := func(kind, name string, f spec.Field) {
		switch {
		case f.Free != nil:
			out.Plugin = append(out.Plugin, kind+" "+name+": "+describeFree(*f.Free))
		case f.From != "":
			out.Host = append(out.Host, kind+" "+name+" from "+f.From)
		}
	}
	for _, n := range sortedKeys(r.Params) {
		field("path", n, r.Params[n])
	}
	for _, n := range sortedKeys(r.Query) {
		field("query", n, r.Query[n])
	}
	for _, s := range r.Request.Slots {
		if s.From != "" {
			out.Host = append(out.Host, s.Pointer+" from "+s.From)
		}
	}
	for _, p := range r.Request.Parts {
		if p.From != "" {
			out.Host = append(out.Host, "part "+p.Name+" from "+p.From)
		}
	}
	for _, f := range r.Request.Free {
		out.Plugin = append(out.Plugin, f.Pointer+": "+describeFree(f))
	}
	if r.Request.Body == spec.BodyPlugin {
		out.Plugin = append(out.Plugin, "the whole body")
		if r.Request.EnvPointer != "" {
			out.Host = append(out.Host, r.Request.EnvPointer+" from environment")
		}
	}
	for _, c := range r.Response.Capture {
		out.Reply = append(out.Reply, c.Pointer+" is taken out and kept as "+c.Name)
	}
	for _, l := range r.Response.Payload {
		out.Reply = append(out.Reply, strings.TrimSpace(l.Pointer+" goes to the caller's "+l.To))
	}
	if r.Response.Body != spec.BodyNone {
		out.Reply = append(out.Reply, "the rest is shown to the plugin")
	}
	return out
}

func describeFree(f spec.Free) string {
	switch {
	case len(f.Enum) > 0:
		return "one of " + strings.Join(f.Enum, ", ")
	case f.Type == "string":
		return fmt.Sprintf("any text up to %d bytes", f.MaxLength)
	}
	return "any " + f.Type
}
