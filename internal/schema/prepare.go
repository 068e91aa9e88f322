package schema

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentos/internal/problem"
)

// preparation is one walk over a schema before the library sees it: it settles
// the draft, counts references, finds those that leave the document, tries every
// regular expression, and takes out the keywords that we never assert.
type preparation struct {
	lenient bool
	// assumedDraft says that the schema did not name its draft.
	assumedDraft bool
	refs         []reference
	ids          map[string]bool
	faults       []problem.Detail
	warnings     []string
}

// reference is a "$ref" or one of its dynamic kin.
type reference struct {
	holder map[string]any
	key    string
	path   string
	text   string
	// target is the address of the document it leads to.
	target string
}

func prepare(doc any, o Options) *preparation {
	p := &preparation{lenient: o.Lenient, ids: map[string]bool{root: true}}
	if m, ok := doc.(map[string]any); ok {
		p.draft(m)
	}
	p.schema(doc, "", root)
	for _, r := range p.refs {
		if !p.ids[r.target] && !knownDraft(r.target) {
			p.drop(r.holder, r.key, r.path, fmt.Sprintf(
				"%q is not part of this schema, and references are never fetched; copy the definition into $defs", clip(r.target, 200)))
		} else if p.dangling(doc, r) {
			p.drop(r.holder, r.key, r.path, fmt.Sprintf("%q leads nowhere", clip(r.text, 200)))
		}
	}
	return p
}

// dangling finds pointers to nothing in a schema that is one document, so that
// they can be shown where they are.
func (p *preparation) dangling(doc any, r reference) bool {
	if len(p.ids) > 1 || !strings.HasPrefix(r.text, "#/") {
		return false
	}
	_, ok := lookup(doc, pointer(r.text[1:]))
	return !ok
}

// draft makes "$schema" say what the library will do. Without it the library
// would assert "format", which 2020-12 does not.
func (p *preparation) draft(m map[string]any) {
	delete(m, "$vocabulary")
	switch v := m["$schema"].(type) {
	case nil:
		p.assumedDraft = true
		m["$schema"] = draft2020
	case string:
		if !knownDraft(strings.TrimSuffix(v, "#")) {
			p.drop(m, "$schema", "/$schema", fmt.Sprintf("%q is not a known draft (4, 6, 7, 2019-09, 2020-12)", clip(v, 200)))
			m["$schema"] = draft2020
		}
	}
}

func knownDraft(address string) bool {
	_, rest, ok := strings.Cut(address, "://json-schema.org/")
	if !ok {
		return false
	}
	switch rest {
	case "schema", "draft-04/schema", "draft-06/schema", "draft-07/schema", "draft/2019-09/schema", "draft/2020-12/schema":
		return true
	}
	return false
}

// drop takes a keyword out, so that the rest can be compiled, and says so: with
// a warning for a lenient schema, else with a fault.
func (p *preparation) drop(holder map[string]any, key, path, why string) {
	delete(holder, key)
	if p.lenient {
		p.warnings = append(p.warnings, path+" is not checked: "+why)
		return
	}
	p.fault(path, "%s", why)
}

func (p *preparation) fault(path, format string, args ...any) {
	p.faults = append(p.faults, problem.Detail{Path: path, Message: fmt.Sprintf(format, args...)})
}

// schema walks one schema object. Below keywords whose value is data (const,
// enum, default, examples) there are no schemas; below keywords that map names
// to schemas the names are no keywords.
func (p *preparation) schema(v any, path, base string) {
	switch v := v.(type) {
	case map[string]any:
		base = p.identify(v, base)
		p.reference(v, path, base)
		if pattern, ok := v["pattern"].(string); ok {
			p.pattern(v, "pattern", pattern, path+"/pattern")
		}
		for _, key := range []string{"format", "contentEncoding", "contentMediaType", "contentSchema"} {
			delete(v, key)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			p.keyword(key, v[key], path+"/"+escapeToken(key), base)
		}
	case []any:
		for i, item := range v {
			p.schema(item, path+"/"+strconv.Itoa(i), base)
		}
	}
}

func (p *preparation) keyword(key string, value any, path, base string) {
	switch key {
	case "const", "enum", "default", "examples", "required":
	case "properties", "$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties":
		named, ok := value.(map[string]any)
		if !ok {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			at := path + "/" + escapeToken(name)
			if key == "patternProperties" {
				p.pattern(named, name, name, at)
			}
			p.schema(named[name], at, base)
		}
	default:
		p.schema(value, path, base)
	}
}

// identify records the address of a schema with its own "$id" ("id" in draft 4)
// and returns the base of what is below it.
func (p *preparation) identify(m map[string]any, base string) string {
	id, ok := m["$id"].(string)
	if !ok {
		if id, ok = m["id"].(string); !ok {
			return base
		}
	}
	address := resolve(base, id)
	p.ids[address] = true
	return address
}

func (p *preparation) reference(m map[string]any, path, base string) {
	for _, key := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		if ref, ok := m[key].(string); ok {
			p.refs = append(p.refs, reference{holder: m, key: key, path: path + "/" + key, text: ref, target: resolve(base, ref)})
		}
	}
}

// resolve returns the address of ref without its fragment.
func resolve(base, ref string) string {
	ref, _, _ = strings.Cut(ref, "#")
	if ref == "" {
		return base
	}
	b, err := url.Parse(base)
	if err != nil {
		return ref
	}
	r, err := b.Parse(ref)
	if err != nil {
		return ref
	}
	return r.String()
}

func (p *preparation) pattern(holder map[string]any, key, pattern, path string) {
	_, err := regexp.Compile(pattern)
	if err == nil {
		return
	}
	p.drop(holder, key, path, fmt.Sprintf("the pattern %q is not supported (RE2: no look-ahead, no back-references): %s",
		clip(pattern, 100), strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
}

// matched reports whether a pattern that compiled before matches name.
func matched(pattern, name string) bool {
	ok, err := regexp.MatchString(pattern, name)
	return err == nil && ok
}

// escapeToken encodes one name for a JSON pointer (RFC 6901 section 3).
func escapeToken(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

func unescapeToken(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
}
