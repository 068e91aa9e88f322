package platform

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentos/capabilities"
	"agentos/internal/rawjson"
	"agentos/internal/schema"
	"agentos/internal/strictyaml"
)

// object is the part of a JSON Schema that these tests follow.
type object struct {
	ID         string                     `json:"$id"`
	Properties map[string]*object         `json:"properties"`
	Defs       map[string]json.RawMessage `json:"$defs"`
}

func parseSchema(t *testing.T, raw []byte) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSchemaKnowsTheSectionsOfTheReader holds both together, section by section.
// What is in a rule the test of the manifest's schema looks at.
func TestSchemaKnowsTheSectionsOfTheReader(t *testing.T) {
	t.Parallel()
	root := parseSchema(t, SchemaJSON())
	if root.ID != "https://agentos.dev/schema/platform.json" {
		t.Errorf("$id %q", root.ID)
	}
	for probe, want := range map[string]map[string]*object{
		"zzzzzzzzzzzz: 1":           root.Properties,
		"policy: {zzzzzzzzzzzz: 1}": root.Properties["policy"].Properties,
	} {
		_, err := Parse("p.yaml", []byte(probe))
		var all strictyaml.Errors
		if !errors.As(err, &all) || len(all) != 1 {
			t.Fatalf("%s: %v", probe, err)
		}
		got := strings.Split(strings.TrimPrefix(all[0].Message, "unknown key; known keys are "), ", ")
		if keys := slices.Sorted(maps.Keys(want)); !slices.Equal(got, keys) {
			t.Errorf("%s: the reader knows %v, the schema %v", probe, got, keys)
		}
	}
}

// TestRulesAreThoseOfManifests: one syntax, written down in two schemas.
func TestRulesAreThoseOfManifests(t *testing.T) {
	t.Parallel()
	mine, theirs := parseSchema(t, SchemaJSON()).Defs, parseSchema(t, capabilities.SchemaJSON()).Defs
	if len(mine) == 0 {
		t.Fatal("no definitions")
	}
	for name, def := range mine {
		a, err := rawjson.Canonical(def)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := rawjson.Canonical(theirs[name]); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not as in the schema of manifests: %v\n%s\n%s", name, err, a, b)
		}
	}
}

func TestSchemaAndReaderAgree(t *testing.T) {
	t.Parallel()
	s, err := schema.Compile(SchemaJSON(), schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	valid := func(file string, text []byte) bool {
		doc, err := strictyaml.Parse(file, text)
		if err != nil {
			t.Fatal(err)
		}
		return s.Validate(doc.Root().JSON()) == nil
	}
	const good = `policy: {rules: [{effect: allow, tool: a/b}, {id: x, effect: ask, tool: "a_*", when: args.n > 1, reason: r, reviewers: {roles: [f], require: 2}, on_expire: {escalate: {to: {users: [u]}, after: 1h}}}]}`
	if _, err := Parse("p.yaml", []byte(good)); err != nil || !valid("p.yaml", []byte(good)) {
		t.Errorf("a good file: %v, valid to the schema %v", err, valid("p.yaml", []byte(good)))
	}
	for _, name := range []string{"misspelt_keys", "not_a_mapping", "rules", "too_many", "types"} {
		file := filepath.Join("testdata", "invalid", name+".yaml")
		if valid(file, read(t, file)) {
			t.Errorf("%s is valid to the schema", file)
		}
	}
}
