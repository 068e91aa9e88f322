package capabilities

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/schema"
	"agentos/internal/strictyaml"
)

// object is the part of a JSON Schema that this test follows.
type object struct {
	Ref        string             `json:"$ref"`
	Properties map[string]*object `json:"properties"`
	Closed     json.RawMessage    `json:"additionalProperties"` //nolint:tagliatelle // a keyword of JSON Schema
	Items      *object            `json:"items"`
	AnyOf      []*object          `json:"anyOf"` //nolint:tagliatelle // a keyword of JSON Schema
	Defs       map[string]*object `json:"$defs"`
}

func loadSchema(t *testing.T) *object {
	t.Helper()
	root := &object{}
	if err := json.Unmarshal(SchemaJSON(), root); err != nil {
		t.Fatal(err)
	}
	return root
}

// keysOfSchema maps the path of every object with fixed keys to those keys.
// "*" stands for names chosen by the author, "[]" for list elements.
func keysOfSchema(root, o *object, path string, out map[string][]string) {
	if o.Ref != "" {
		keysOfSchema(root, root.Defs[strings.TrimPrefix(o.Ref, "#/$defs/")], path, out)
	}
	if len(o.Properties) > 0 {
		out[path] = slices.Sorted(maps.Keys(o.Properties))
	}
	for name, p := range o.Properties {
		keysOfSchema(root, p, strings.TrimPrefix(path+"."+name, "."), out)
	}
	if o.Items != nil {
		keysOfSchema(root, o.Items, path+"[]", out)
	}
	for _, a := range o.AnyOf {
		keysOfSchema(root, a, path, out)
	}
	if len(o.Closed) > 0 && o.Closed[0] == '{' {
		below := &object{}
		if json.Unmarshal(o.Closed, below) == nil {
			keysOfSchema(root, below, path+".*", out)
		}
	}
}

// probe provokes "known keys are …" in every object that the reader reads.
const probe = `
zzzzzzzzzzzz: 1
mcp_servers: {s: {zzzzzzzzzzzz: 1, effects: {zzzzzzzzzzzz: 1}}}
capabilities:
  c:
    zzzzzzzzzzzz: 1
    loop: {zzzzzzzzzzzz: 1, approve: [{zzzzzzzzzzzz: 1, reviewers: {zzzzzzzzzzzz: 1}, on_expire: {zzzzzzzzzzzz: 1, escalate: {zzzzzzzzzzzz: 1, to: {zzzzzzzzzzzz: 1}}}}], deny: [{zzzzzzzzzzzz: 1, reviewers: {zzzzzzzzzzzz: 1}, on_expire: {zzzzzzzzzzzz: 1, escalate: {zzzzzzzzzzzz: 1, to: {zzzzzzzzzzzz: 1}}}}]}
config: {zzzzzzzzzzzz: 1, models: {m: {zzzzzzzzzzzz: 1}}}
network: {zzzzzzzzzzzz: 1}
policy: {zzzzzzzzzzzz: 1, rules: [{zzzzzzzzzzzz: 1, reviewers: {zzzzzzzzzzzz: 1}, on_expire: {zzzzzzzzzzzz: 1, escalate: {zzzzzzzzzzzz: 1, to: {zzzzzzzzzzzz: 1}}}}]}
`

func keysOfReader(t *testing.T) map[string][]string {
	t.Helper()
	_, err := Parse("a.yaml", []byte(probe), "")
	var all strictyaml.Errors
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	named := strings.NewReplacer("mcp_servers.s", "mcp_servers.*", "capabilities.c", "capabilities.*", "models.m", "models.*")
	out := map[string][]string{}
	for _, p := range all {
		list, ok := strings.CutPrefix(p.Message, "unknown key; known keys are ")
		if !ok {
			continue
		}
		path := strings.TrimSuffix(strings.TrimSuffix(p.Path, "zzzzzzzzzzzz"), ".")
		out[regexp.MustCompile(`\[\d+\]`).ReplaceAllString(named.Replace(path), "[]")] = strings.Split(list, ", ")
	}
	return out
}

// TestSchemaAndReaderKnowTheSameKeys holds the schema that editors use and the
// reader that decides together, both ways.
func TestSchemaAndReaderKnowTheSameKeys(t *testing.T) {
	t.Parallel()
	root := loadSchema(t)
	want := map[string][]string{}
	keysOfSchema(root, root, "", want)
	if diff := cmp.Diff(want, keysOfReader(t)); diff != "" {
		t.Errorf("keys of the schema (-) and of the reader (+):\n%s", diff)
	}
	if len(want) != 24 {
		t.Errorf("%d objects compared, want 24: the probe or the walk misses some", len(want))
	}
}

func compiledSchema(t *testing.T) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(SchemaJSON(), schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSchemaAcceptsValidManifests(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	files, err := filepath.Glob("testdata/valid/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// 012 as a param is text for the reader and no JSON at all.
		data = []byte(strings.ReplaceAll(string(data), "code: 012", "code: 12"))
		doc, err := strictyaml.Parse(file, data)
		if err != nil {
			t.Fatal(err)
		}
		if d := s.Validate(doc.Root().JSON()); d != nil {
			t.Errorf("%s: %v", file, d)
		}
		if _, err := Load(file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchemaRefusesWhatTheReaderRefuses(t *testing.T) {
	t.Parallel()
	s := compiledSchema(t)
	for _, file := range []string{"misspelt_keys", "transport", "unsupported", "names", "rules", "types", "nothing_declared", "not_a_mapping"} {
		doc, err := strictyaml.Parse(file, read(t, "testdata/invalid/"+file+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		raw := doc.Root().JSON()
		if raw == nil {
			raw = []byte("null")
		}
		if s.Validate(raw) == nil {
			t.Errorf("%s is valid to the schema", file)
		}
	}
}

func TestSchemaID(t *testing.T) {
	t.Parallel()
	var head struct {
		Schema string `json:"$schema"`
		ID     string `json:"$id"`
	}
	if err := json.Unmarshal(SchemaJSON(), &head); err != nil {
		t.Fatal(err)
	}
	if head.ID != "https://agentos.dev/schema/agentos.json" || head.Schema != "https://json-schema.org/draft/2020-12/schema" {
		t.Errorf("head = %+v", head)
	}
}
