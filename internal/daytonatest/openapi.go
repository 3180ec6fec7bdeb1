package daytonatest

import (
	"bytes"
	_ "embed" // the documents
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed testdata/openapi/api.json
var controlDocument []byte

//go:embed testdata/openapi/toolbox.json
var toolboxDocument []byte

// operation is one method and path of a document.
type operation struct {
	id         string
	segments   []string
	method     string
	params     []parameter
	body       *jsonschema.Schema // of a JSON request body
	bodyNeeded bool
	accepts    []string // content types of a request body; none: no body
	replies    map[int]*jsonschema.Schema
	inControl  bool
	replyJSON  map[int]bool
	formFields []string
}

type parameter struct {
	name, in string
	required bool
	repeated bool
	schema   *jsonschema.Schema
	kind     string
}

// documents returns the operations of both documents, compiled once.
var documents = sync.OnceValues(func() ([]operation, error) {
	control, err := readDocument("api.json", controlDocument, true)
	if err != nil {
		return nil, err
	}
	toolbox, err := readDocument("toolbox.json", toolboxDocument, false)
	return append(control, toolbox...), err
})

func readDocument(name string, data []byte, inControl bool) ([]operation, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	root, _ := doc.(map[string]any)
	strict(root, false)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft4) // what both dialects extend
	if err := compiler.AddResource("mem:///"+name, doc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	compile := func(at ...string) (*jsonschema.Schema, error) {
		for i := range at {
			at[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(at[i])
		}
		return compiler.Compile("mem:///" + name + "#/" + url.PathEscape(strings.Join(at, "/")))
	}
	var out []operation
	paths, _ := root["paths"].(map[string]any)
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		methods, _ := paths[p].(map[string]any)
		for m, v := range methods {
			o := operation{method: strings.ToUpper(m), segments: strings.Split(strings.Trim(p, "/"), "/"), inControl: inControl,
				replies: map[int]*jsonschema.Schema{}, replyJSON: map[int]bool{}}
			spec, _ := v.(map[string]any)
			o.id, _ = spec["operationId"].(string)
			if err := o.read(spec, func(at ...string) (*jsonschema.Schema, error) {
				return compile(append([]string{"paths", p, m}, at...)...)
			}); err != nil {
				return nil, fmt.Errorf("%s: %s %s: %w", name, m, p, err)
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// read fills the operation from its description.
func (o *operation) read(spec map[string]any, compile func(...string) (*jsonschema.Schema, error)) error {
	params, _ := spec["parameters"].([]any)
	for i, v := range params {
		p, _ := v.(map[string]any)
		q := parameter{}
		q.name, _ = p["name"].(string)
		q.in, _ = p["in"].(string)
		q.required, _ = p["required"].(bool)
		schema, apart := p["schema"].(map[string]any)
		var err error
		switch {
		case q.in == "body":
			o.accepts, o.bodyNeeded = []string{"application/json"}, q.required
			if o.body, err = compile("parameters", strconv.Itoa(i), "schema"); err != nil {
				return err
			}
			continue
		case q.in == "formData":
			o.accepts = []string{"multipart/form-data"}
			o.formFields = append(o.formFields, q.name)
			continue
		case apart:
			q.kind, _ = schema["type"].(string)
			q.schema, err = compile("parameters", strconv.Itoa(i), "schema")
		default:
			q.kind, _ = p["type"].(string)
		}
		if err != nil {
			return err
		}
		q.repeated = q.kind == "array"
		o.params = append(o.params, q)
	}
	if consumes, ok := spec["consumes"].([]any); ok && o.accepts == nil {
		for _, c := range consumes {
			if t, _ := c.(string); t == "multipart/form-data" {
				o.accepts = []string{t}
			}
		}
	}
	if body, ok := spec["requestBody"].(map[string]any); ok {
		o.bodyNeeded, _ = body["required"].(bool)
		content, _ := body["content"].(map[string]any)
		o.accepts = slices.Sorted(maps.Keys(content))
		if _, ok := content["application/json"]; ok {
			var err error
			if o.body, err = compile("requestBody", "content", "application/json", "schema"); err != nil {
				return err
			}
		}
	}
	replies, _ := spec["responses"].(map[string]any)
	for code, v := range replies {
		status, err := strconv.Atoi(code)
		if err != nil {
			return fmt.Errorf("status %q", code)
		}
		o.replies[status] = nil
		r, _ := v.(map[string]any)
		if schema, ok := r["schema"].(map[string]any); ok && schema["type"] != "file" {
			if o.replies[status], err = compile("responses", code, "schema"); err != nil {
				return err
			}
		}
		if content, ok := r["content"].(map[string]any); ok && content["application/json"] != nil {
			if o.replies[status], err = compile("responses", code, "content", "application/json", "schema"); err != nil {
				return err
			}
		}
	}
	return nil
}

// strict turns a document's schemas into JSON Schema: null where it is allowed,
// and no property that is not listed, so that a misspelt one is found. inMap says
// that the keys of o are names and not keywords.
func strict(o map[string]any, inMap bool) {
	for k, v := range o {
		switch x := v.(type) {
		case map[string]any:
			strict(x, !inMap && (k == "properties" || k == "definitions" || k == "schemas" || k == "paths"))
			if nullable, _ := x["nullable"].(bool); nullable {
				delete(x, "nullable")
				o[k] = map[string]any{"anyOf": []any{x, map[string]any{"type": "null"}}}
			}
		case []any:
			for _, e := range x {
				if m, ok := e.(map[string]any); ok {
					strict(m, false)
				}
			}
		}
	}
	if _, ok := o["properties"].(map[string]any); ok && !inMap && o["additionalProperties"] == nil {
		o["additionalProperties"] = false
	}
}

// errNoOperation means that the documents do not have a request's path.
var errNoOperation = errors.New("the specification has no such operation")

// operationOf finds a request's operation.
func operationOf(method string, segments []string, inControl bool) (operation, map[string]string, error) {
	all, err := documents()
	if err != nil {
		return operation{}, nil, err
	}
	var found operation
	var values map[string]string
	best := -1
	for _, o := range all {
		if o.inControl != inControl {
			continue
		}
		params, ok := route{method: o.method, segments: o.segments}.match(method, segments)
		// The path with the most literal segments is meant.
		if score := len(segments) - len(params); ok && score > best {
			found, values, best = o, params, score
		}
	}
	if best < 0 {
		return operation{}, nil, errNoOperation
	}
	return found, values, nil
}

// checkRequest returns what is wrong with a request's parameters. Values are not
// repeated.
func (o operation) checkRequest(r *http.Request, path map[string]string) []string {
	var out []string
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		out = append(out, "the query is not well formed")
	}
	known := map[string]bool{"DAYTONA_SANDBOX_AUTH_KEY": true}
	for _, p := range o.params {
		var given []string
		switch p.in {
		case "query":
			known[p.name] = true
			given = query[p.name]
		case "path":
			if v, ok := path[p.name]; ok {
				given = []string{v}
			}
		case "header":
			given = r.Header.Values(p.name)
		}
		if len(given) == 0 {
			if p.required {
				out = append(out, fmt.Sprintf("%s parameter %s is missing", p.in, p.name))
			}
			continue
		}
		if why := p.check(given); why != "" {
			out = append(out, fmt.Sprintf("%s parameter %s %s", p.in, p.name, why))
		}
	}
	for name := range query {
		if !known[name] {
			out = append(out, "query parameter "+name+" is not in the specification")
		}
	}
	slices.Sort(out)
	return out
}

// check returns what is wrong with a parameter's values.
func (p parameter) check(given []string) string {
	if len(given) > 1 && !p.repeated {
		return "is given more than once"
	}
	var value any = given[0]
	switch p.kind {
	case "integer":
		n, err := strconv.ParseInt(given[0], 10, 64)
		if err != nil {
			return "is no integer"
		}
		value = n
	case "number":
		n, err := strconv.ParseFloat(given[0], 64)
		if err != nil {
			return "is no number"
		}
		value = n
	case "boolean":
		b, err := strconv.ParseBool(given[0])
		if err != nil {
			return "is no boolean"
		}
		value = b
	case "array":
		list := make([]any, len(given))
		for i, g := range given {
			list[i] = g
		}
		value = list
	}
	if p.schema != nil {
		if problems := schemaProblems(p.schema.Validate(value)); len(problems) > 0 {
			return "is not valid: " + strings.Join(problems, "; ")
		}
	}
	return ""
}

// schemaProblems turns a validation error into places and keywords, without the
// values that were found there.
func schemaProblems(err error) []string {
	if err == nil {
		return nil
	}
	var v *jsonschema.ValidationError
	if !errors.As(err, &v) {
		return []string{"cannot be validated"}
	}
	var out []string
	var walk func(*jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		if len(v.Causes) == 0 {
			out = append(out, problemAt(v))
		}
		for _, c := range v.Causes {
			walk(c)
		}
	}
	walk(v)
	slices.Sort(out)
	return slices.Compact(out)
}
