package capabilities

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"agentos/internal/rawjson"
	"agentos/internal/strictyaml"
)

// scope says which references besides ${params.x} a field may hold.
type scope int

const (
	none        scope = iota
	withSecrets       // headers and env: resolved when connecting
	withInput         // prompt: rendered per run
	withAgentos       // command: replaced when started
)

// text reads a field and puts in its params. In scope none the result is plain
// text; otherwise it is still a template, with everything else escaped.
func (r *reader) text(v strictyaml.Value, s scope) string {
	return r.template(v, s, nil)
}

func (r *reader) template(v strictyaml.Value, s scope, inputSchema json.RawMessage) string {
	parts, err := parseTemplate(v.String())
	if err != nil {
		v.Problem("%s", err)
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		text := p.text
		if p.ref != "" {
			keep := r.reference(v, s, p.ref, inputSchema)
			if keep {
				b.WriteString("${" + p.ref + "}")
				continue
			}
			text = r.a.Params[strings.TrimPrefix(p.ref, "params.")]
		}
		if s != none {
			text = literal(text)
		}
		b.WriteString(text)
	}
	return b.String()
}

// reference checks one reference and reports whether it stays in the template.
func (r *reader) reference(v strictyaml.Value, s scope, ref string, inputSchema json.RawMessage) bool {
	kind, name, dotted := strings.Cut(ref, ".")
	switch {
	case kind == "params" && dotted:
		if _, ok := r.a.Params[name]; !ok {
			v.Problem("${%s}: config.params has no %q%s", clip(ref), clip(name), didYouMean(name, slices.Collect(maps.Keys(r.a.Params))))
		}
		return false
	case kind == "secrets" && dotted:
		// Outside headers and env, secretsOutside reports it.
		if s == withSecrets && !slices.Contains(r.a.Secrets, name) {
			v.Problem("${%s}: secrets does not list %q%s", clip(ref), clip(name), didYouMean(name, r.a.Secrets))
		}
		return true
	case kind == "input" && s == withInput:
		checkInputPath(v, ref, inputSchema)
		return true
	case kind == "input":
		v.Problem("${%s}: input can be used only in loop.prompt", clip(ref))
		return true
	case ref == "agentos" && s == withAgentos:
		return true
	case ref == "agentos":
		v.Problem("${agentos} can be used only in mcp_servers.*.command")
		return true
	}
	v.Problem("${%s} is unknown; there are ${params.…}, ${secrets.…}, ${input.…} and ${agentos}, and $${ for a literal ${", clip(ref))
	return true
}

// checkInputPath follows the reference through the input schema as long as the
// schema says for certain which properties there are.
func checkInputPath(v strictyaml.Value, ref string, schema json.RawMessage) {
	for _, name := range strings.Split(ref, ".")[1:] {
		for _, open := range []string{"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"} {
			if rawjson.Get(schema, open) != nil {
				return
			}
		}
		properties := rawjson.Get(schema, "properties")
		if properties == nil {
			if kind := rawjson.Get(schema, "type"); kind != nil && string(kind) != `"object"` && rawjson.Kind(kind) == "string" {
				v.Problem("${%s}: %q is looked up in a value of type %s", clip(ref), clip(name), kind)
			}
			return
		}
		fields, err := rawjson.Fields(properties)
		if err != nil {
			return
		}
		i := slices.IndexFunc(fields, func(f rawjson.Field) bool { return f.Name == name })
		if i < 0 {
			names := make([]string, len(fields))
			for j, f := range fields {
				names[j] = f.Name
			}
			v.Problem("${%s}: the input has no property %q%s", clip(ref), clip(name), didYouMean(name, names))
			return
		}
		schema = fields[i].Value
	}
}

func didYouMean(word string, candidates []string) string {
	slices.Sort(candidates)
	if near := strictyaml.Nearest(word, candidates); near != "" {
		return `; did you mean "` + near + `"?`
	}
	return ""
}

// secretsOutside reports every reference to a secret that is not in the headers
// or the environment of a server: anywhere else it would end in a prompt, a
// description or a log.
func secretsOutside(root strictyaml.Value) {
	for _, top := range root.Children() {
		if top.Key() != "mcp_servers" {
			reportSecrets(top)
			continue
		}
		for _, server := range top.Children() {
			for _, field := range server.Children() {
				if field.Key() != "headers" && field.Key() != "env" {
					reportSecrets(field)
				}
			}
		}
	}
}

func reportSecrets(v strictyaml.Value) {
	for _, child := range v.Children() {
		reportSecrets(child)
	}
	parts, err := parseTemplate(v.Text())
	if err != nil {
		return
	}
	for _, p := range parts {
		if strings.HasPrefix(p.ref, "secrets.") {
			v.Problem("${%s}: secrets can be used only in mcp_servers.*.headers and mcp_servers.*.env", clip(p.ref))
			return
		}
	}
}
