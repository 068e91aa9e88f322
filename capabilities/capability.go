package capabilities

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"agentos/holds/policy"
	"agentos/holds/policyfile"
	"agentos/internal/schema"
	"agentos/internal/strictyaml"
)

func (r *reader) capabilities(v strictyaml.Value) {
	if !v.Required() {
		return
	}
	if v.IsMapping() && v.Len() == 0 {
		v.Problem("must have at least one capability")
	}
	for _, e := range v.Entries(maxCapabilities) {
		e.Key.Matching(capabilityName, "1 to 63 of a-z, 0-9 and _, beginning with a letter")
		r.a.Capabilities[e.Name] = r.capability(e.Name, e.Value)
	}
}

func (r *reader) capability(name string, v strictyaml.Value) *Capability {
	c := &Capability{Name: name}
	o := v.Object()
	c.Description = r.text(o.Get("description"), none)
	input, output := o.Get("input"), o.Get("output")
	if o.Valid() {
		input.Required()
		output.Required()
	}
	c.Input, c.InputSchema = readSchema(input)
	c.textInput = onlyString(c.Input)
	c.Output, c.OutputSchema = readSchema(output)
	c.Timeout = o.Get("timeout").Duration(maxTimeout, defaultTimeout)
	if loop := o.Get("loop"); loop.Present() {
		c.Loop = r.loop(loop, c.Input)
	}
	o.Close()
	return c
}

// readSchema turns a JSON Schema written in YAML into JSON and compiles it.
// Faults are shown at their line.
func readSchema(v strictyaml.Value) (json.RawMessage, *schema.Schema) {
	if !v.Present() {
		return nil, nil
	}
	if !v.IsMapping() {
		v.Problem("must be a JSON Schema written as a mapping, such as {type: object, properties: {…}}")
		return nil, nil
	}
	raw := v.JSON()
	if raw == nil {
		return nil, nil
	}
	compiled, err := schema.Compile(raw, schema.Options{})
	if ce := (*schema.CompileError)(nil); errors.As(err, &ce) {
		for _, d := range ce.Details {
			v.At(d.Path).Problem("invalid JSON Schema: %s", d.Message)
		}
	} else if err != nil {
		v.Problem("invalid JSON Schema: %s", err)
	}
	return raw, compiled
}

func (r *reader) loop(v strictyaml.Value, input json.RawMessage) *Loop {
	l := &Loop{}
	o := v.Object()
	model := o.Get("model")
	l.Model = model.String()
	if o.Valid() {
		l.Model = r.modelName(model)
	}
	l.System = r.text(o.Get("system"), none)
	l.Prompt = r.template(o.Get("prompt"), withInput, input)
	l.Tools = r.loopTools(o.Get("tools"))
	l.Rules = r.listed(o.Get("approve"), policy.Ask, "approve")
	l.Rules = append(l.Rules, r.listed(o.Get("deny"), policy.Deny, "deny")...)
	l.MaxTurns = int(o.Get("max_turns").Int(1, 1000, defaultMaxTurns))
	l.MaxTokens = o.Get("max_tokens").Int(1, 1_000_000_000, 0)
	l.ParallelCalls = o.Get("parallel_calls").Bool(true)
	l.Namespaced = o.Get("tool_names").OneOf("plain", "namespaced") == "namespaced"
	o.Close()
	return l
}

// modelName checks that the loop's model exists; "main" needs no mention.
func (r *reader) modelName(v strictyaml.Value) string {
	names := slices.Sorted(maps.Keys(r.a.Models))
	if !v.Present() {
		if !slices.Contains(names, "main") {
			v.Problem(`is required, since config.models has no "main"`)
		}
		return "main"
	}
	name := v.String()
	if v.IsText() && !slices.Contains(names, name) {
		v.Problem("config.models has no %q%s", clip(name), didYouMean(name, names))
	}
	return name
}

func (r *reader) loopTools(v strictyaml.Value) []string {
	if !v.Present() {
		return nil
	}
	aliases := slices.Sorted(maps.Keys(r.a.Servers))
	out := []string{}
	for _, item := range v.List(maxNames) {
		pattern := policyfile.Tool(item)
		alias, _, _ := strings.Cut(pattern, "/")
		known := slices.ContainsFunc(aliases, func(a string) bool { return policy.Match(alias, "", a) })
		if pattern != "" && !known {
			item.Problem("must name a server or server/tool, but mcp_servers has no %q%s", clip(alias), didYouMean(alias, aliases))
		}
		out = append(out, pattern)
	}
	return out
}
