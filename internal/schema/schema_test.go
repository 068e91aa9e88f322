package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/problem"
)

func mustCompile(t *testing.T, raw string, o Options) *Schema {
	t.Helper()
	s, err := Compile(json.RawMessage(raw), o)
	if err != nil {
		t.Fatalf("Compile(%.200s): %v", raw, err)
	}
	return s
}

func TestValidateMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, schema, instance string
		want                   []problem.Detail
	}{
		{"valid", `{"type":"object"}`, `{}`, nil},
		{"true", `true`, `{"a":1}`, nil},
		{"empty", `{}`, `[1]`, nil},
		{"false", `false`, `1`, []problem.Detail{{Message: "is not allowed"}}},
		{"type", `{"properties":{"a":{"type":"string"}}}`, `{"a":1}`, []problem.Detail{{Path: "/a", Message: "must be string, not number"}}},
		{"type or null", `{"type":["string","null"]}`, `[]`, []problem.Detail{{Message: "must be string or null, not array"}}},
		{"null is fine", `{"type":["string","null"]}`, `null`, nil},
		{"integer", `{"type":"integer"}`, `1.5`, []problem.Detail{{Message: "must be integer, not number"}}},
		{"missing", `{"required":["a","b"],"type":"object"}`, `{}`, []problem.Detail{
			{Message: `the required property "a" is missing`}, {Message: `the required property "b" is missing`},
		}},
		{
			"missing below", `{"properties":{"o":{"required":["a"]}}}`, `{"o":{}}`,
			[]problem.Detail{{Path: "/o", Message: `the required property "a" is missing`}},
		},
		{"additional", `{"properties":{"a":{},"b":{}},"additionalProperties":false}`, `{"z":1,"y":2,"a":3}`, []problem.Detail{
			{Message: `the property "y" is not allowed; allowed are a, b`}, {Message: `the property "z" is not allowed; allowed are a, b`},
		}},
		{
			"additional with patterns", `{"patternProperties":{"^x":{}},"additionalProperties":false}`, `{"x1":1,"y":2}`,
			[]problem.Detail{{Message: `the property "y" is not allowed`}},
		},
		{"enum", `{"enum":["a",1.0,null]}`, `"b"`, []problem.Detail{{Message: `must be one of "a", 1.0, null`}}},
		{"const", `{"const":{"a":[1]}}`, `2`, []problem.Detail{{Message: `must be {"a":[1]}`}}},
		{"exact bound", `{"maximum":9007199254740993}`, `9007199254740994`, []problem.Detail{{Message: "must be <= 9007199254740993"}}},
		{"exact bound holds", `{"maximum":9007199254740993}`, `9007199254740993`, nil},
		{"exact lower bound", `{"minimum":12345678901234567890}`, `12345678901234567889`, []problem.Detail{{Message: "must be >= 12345678901234567890"}}},
		{
			"draft 4 bound", `{"$schema":"http://json-schema.org/draft-04/schema#","minimum":5,"exclusiveMinimum":true}`, `5`,
			[]problem.Detail{{Message: "must be > 5"}},
		},
		{"multiple", `{"multipleOf":0.1}`, `0.25`, []problem.Detail{{Message: "must be a multiple of 0.1"}}},
		{"length", `{"minLength":2}`, `"ü"`, []problem.Detail{{Message: "must have at least 2 characters"}}},
		{"pattern", `{"pattern":"^a+$"}`, `"b"`, []problem.Detail{{Message: `must match the pattern "^a+$"`}}},
		{"items", `{"items":{"type":"integer"},"maxItems":1}`, `[1,"x"]`, []problem.Detail{
			{Message: "must have at most 1 items"}, {Path: "/1", Message: "must be integer, not string"},
		}},
		{"unique", `{"uniqueItems":true}`, `[1,1]`, []problem.Detail{{Message: "must not hold the same item twice"}}},
		{"contains", `{"contains":{"type":"string"}}`, `[1,2]`, []problem.Detail{{Message: "valid must be >= 1, but got 0"}}},
		{"not", `{"not":{"type":"null"}}`, `null`, []problem.Detail{{Message: `must not match the schema under "not"`}}},
		{"any", `{"anyOf":[{"type":"string"},{"properties":{"a":{"type":"null"}},"type":"object"}]}`, `{"a":1}`, []problem.Detail{
			{Message: "matches none of the 2 alternatives: (1) must be string, not object; (2) /a must be null, not number"},
		}},
		{
			"one", `{"oneOf":[{"type":"integer"},{"type":"number"}]}`, `1`,
			[]problem.Detail{{Message: "matches more than one of the alternatives, exactly one is allowed"}},
		},
		{
			"escaped pointer", `{"properties":{"a/b ~%":{"type":"string"}}}`, `{"a/b ~%":1}`,
			[]problem.Detail{{Path: "/a~1b ~0%", Message: "must be string, not number"}},
		},
		{
			"behind a reference", `{"$defs":{"n":{"maximum":3}},"properties":{"a":{"$ref":"#/$defs/n"}}}`, `{"a":4}`,
			[]problem.Detail{{Path: "/a", Message: "must be <= 3"}},
		},
		{
			"draft 7 definitions", `{"definitions":{"n":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/n"}}}`, `{"a":4}`,
			[]problem.Detail{{Path: "/a", Message: "must be string, not number"}},
		},
		{
			"under its own id", `{"$id":"https://example.com/s.json","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"maximum":9007199254740993}}}`,
			`{"a":9007199254740999}`,
			[]problem.Detail{{Path: "/a", Message: "must be <= 9007199254740993"}},
		},
		{"format is not asserted", `{"format":"uri"}`, `"no uri"`, nil},
		{"nor in draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","format":"email","contentEncoding":"base64"}`, `"?"`, nil},
		{
			"a property called format is", `{"properties":{"format":{"type":"string"}}}`, `{"format":1}`,
			[]problem.Detail{{Path: "/format", Message: "must be string, not number"}},
		},
		{
			"a property called pattern too", `{"properties":{"pattern":{"type":"string"}}}`, `{"pattern":1}`,
			[]problem.Detail{{Path: "/pattern", Message: "must be string, not number"}},
		},
		{
			"dependent", `{"dependentRequired":{"a":["b"]}}`, `{"a":1}`,
			[]problem.Detail{{Message: "property 'b' is required, if 'a' property exists"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, c.schema, Options{})
			if diff := cmp.Diff(c.want, s.Validate(json.RawMessage(c.instance))); diff != "" {
				t.Errorf("details (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateBadInstances(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"type":"object","properties":{"n":{"type":"integer","maximum":5}}}`, Options{})
	for _, c := range []struct{ name, instance, want string }{
		{"huge exponent", `{"n":1e5000000}`, "exponent"},
		{"deep", strings.Repeat(`{"n":`, 10000) + "1" + strings.Repeat("}", 10000), "nested deeper"},
		{"20 MB", `{"s":"` + strings.Repeat("x", 20<<20) + `","n":6}`, "must be <= 5"},
		{"duplicate", `{"n":1,"n":2}`, `duplicate name "n"`},
		{"empty", ``, "empty"},
		{"NaN", `{"n":NaN}`, "invalid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			d := s.Validate(json.RawMessage(c.instance))
			if len(d) != 1 || !strings.Contains(d[0].Message, c.want) {
				t.Errorf("details = %v, want one with %q", d, c.want)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"items":{"type":"string"}}`, Options{})
	d := s.Validate(json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 500), ",") + "]"))
	if len(d) != MaxDetails || d[MaxDetails-1].Message != "and 481 more" {
		t.Errorf("%d details, the last %v", len(d), d[len(d)-1])
	}
	long := strings.Repeat("x", 10000)
	s = mustCompile(t, `{"additionalProperties":false,"enum":["`+long+`"]}`, Options{})
	for _, detail := range s.Validate(json.RawMessage(`{"` + long + `":1}`)) {
		if len(detail.Message) > 1000 {
			t.Errorf("message of %d bytes", len(detail.Message))
		}
	}
}

func TestCompileStrict(t *testing.T) {
	t.Parallel()
	refs := strings.TrimSuffix(strings.Repeat(`{"$ref":"#/$defs/a"},`, MaxRefs+1), ",")
	for _, c := range []struct {
		name, schema string
		want         []string // "path: part of the message"
	}{
		{"look-ahead", `{"properties":{"a":{"pattern":"^(?!x)"}}}`, []string{`/properties/a/pattern: the pattern "^(?!x)"`}},
		{"pattern property", `{"patternProperties":{"(?<!a)":{}}}`, []string{`/patternProperties/(?<!a): the pattern`}},
		{"http", `{"$ref":"http://example.com/s.json"}`, []string{`/$ref: "http://example.com/s.json" is not part`}},
		{"file", `{"items":{"$ref":"file:///etc/passwd#/x"}}`, []string{`/items/$ref: "file:///etc/passwd" is not part`}},
		{"relative", `{"items":{"$ref":"other.json"}}`, []string{`/items/$ref: "mem://schema/other.json" is not part`}},
		{"relative to an id", `{"$id":"https://example.com/a/","items":{"$ref":"b"}}`, []string{`/items/$ref: "https://example.com/a/b" is not part`}},
		{"dangling", `{"items":{"$ref":"#/$defs/x"}}`, []string{`/items/$ref: "#/$defs/x" leads nowhere`}},
		{"unknown draft", `{"$schema":"https://example.com/draft"}`, []string{`/$schema: "https://example.com/draft" is not a known draft`}},
		{"all at once", `{"properties":{"a":{"pattern":"("},"b":{"type":"strng"},"c":{"$ref":"x"}}}`, []string{
			`/properties/a/pattern: `, `/properties/c/$ref: `, `/properties/b/type: matches none of the 2 alternatives`,
		}},
		{"bad keyword", `{"required":"a"}`, []string{`/required: expected array, but got string`}},
		{"no schema", `5`, []string{`: `}},
		{"null", `null`, []string{`: `}},
		{"no JSON", `{`, []string{`: the JSON text is empty or ends too early`}},
		{"duplicate", `{"type":"object","type":"string"}`, []string{`: duplicate name "type"`}},
		{"number", `{"maximum":1e5000000}`, []string{`: number with an exponent`}},
		{"loop", `{"$ref":"#"}`, []string{`: infinite loop`}},
		{"too big", `{"description":"` + strings.Repeat("x", MaxBytes) + `"}`, []string{`: larger than 64 KiB`}},
		{"too many references", `{"$defs":{"a":{}},"allOf":[` + refs + `]}`, []string{`: more than 200 references`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := Compile(json.RawMessage(c.schema), Options{})
			var ce *CompileError
			if s != nil || !errors.As(err, &ce) {
				t.Fatalf("Compile = %v, %T %v", s, err, err)
			}
			if len(ce.Details) != len(c.want) {
				t.Fatalf("details = %v", ce.Details)
			}
			for i, want := range c.want {
				if got := ce.Details[i].Path + ": " + ce.Details[i].Message; !strings.HasPrefix(got, want) {
					t.Errorf("detail = %q, want %q…", got, want)
				}
			}
			if strings.Contains(err.Error(), "mem://schema/root") {
				t.Errorf("the error shows our own address: %v", err)
			}
		})
	}
}

// TestLenient is C27: schemas of foreign tools stay usable, what cannot be
// checked is named once, and everything else is checked.
func TestLenient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, schema string
		warnings     int
		valid, wrong string
	}{
		{"look-ahead", `{"properties":{"a":{"type":"string","pattern":"^(?!x)"}}}`, 1, `{"a":"x"}`, `{"a":1}`},
		{"pattern property", `{"patternProperties":{"(?=a)":{"type":"null"}},"required":["b"]}`, 1, `{"a":1,"b":1}`, `{}`},
		{"http", `{"properties":{"a":{"$ref":"http://example.com/s.json#/x"},"b":{"type":"string"}}}`, 1, `{"a":1}`, `{"b":1}`},
		{"file", `{"properties":{"a":{"$ref":"file:///etc/passwd"}},"required":["a"]}`, 1, `{"a":1}`, `{}`},
		{"dangling", `{"properties":{"a":{"$ref":"#/$defs/no"}},"required":["a"]}`, 1, `{"a":1}`, `{}`},
		{"own dialect", `{"$schema":"https://example.com/dialect","type":"object"}`, 1, `{}`, `1`},
		{"vocabulary", `{"$vocabulary":{"https://example.com/v":true},"type":"object"}`, 0, `{}`, `1`},
		{"root without type", `{"properties":{"a":{"type":"string"}}}`, 0, `{}`, `{"a":1}`},
		{"anyOf at root", `{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, 0, `{"b":1}`, `{}`},
		{"$defs", `{"$defs":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/s"}}}`, 0, `{"a":""}`, `{"a":1}`},
		{"definitions", `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"s":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/s"}}}`, 0, `{"a":""}`, `{"a":1}`},
		{"type list", `{"properties":{"a":{"type":["string","null"]}}}`, 0, `{"a":null}`, `{"a":1}`},
		{"tuple of draft 7", `{"properties":{"a":{"items":[{"type":"string"}]}}}`, 0, `{"a":["x",1]}`, `{"a":[1]}`},
		{"embedded id", `{"$defs":{"x":{"$id":"item","type":"string"}},"items":{"$ref":"item"}}`, 0, `["a"]`, `[1]`},
		{"anchor", `{"$defs":{"x":{"$anchor":"here","type":"string"}},"items":{"$ref":"#here"}}`, 0, `["a"]`, `[1]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, c.schema, Options{Lenient: true})
			if len(s.Warnings()) != c.warnings {
				t.Errorf("warnings = %q, want %d", s.Warnings(), c.warnings)
			}
			if d := s.Validate(json.RawMessage(c.valid)); d != nil {
				t.Errorf("%s: %v", c.valid, d)
			}
			if s.Validate(json.RawMessage(c.wrong)) == nil {
				t.Errorf("%s is valid", c.wrong)
			}
		})
	}
}

// TestExpensiveSchemas: a few hundred bytes can ask for 2^60 steps.
func TestExpensiveSchemas(t *testing.T) {
	t.Parallel()
	var defs []string
	for i := range 60 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1))
	}
	double := `{"$ref":"#/$defs/d0","$defs":{` + strings.Join(defs, ",") + `,"d60":{"minimum":1}}}`
	tree := `{"$defs":{"t":{"allOf":[{"properties":{"a":{"$ref":"#/$defs/t"}}},{"properties":{"a":{"$ref":"#/$defs/t"}}}]}},"$ref":"#/$defs/t"}`
	for name, c := range map[string][2]string{
		"doubling":               {double, `1`},
		"doubling that fails":    {double, `0`},
		"doubling by the value":  {tree, strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)},
		"the same, with failure": {`{"not":` + tree + `}`, strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw := c[0]
			if strings.HasPrefix(raw, `{"not"`) {
				raw = `{"not":{"$ref":"#/$defs/t"},` + tree[1:]
			}
			s := mustCompile(t, raw, Options{Lenient: true})
			start := time.Now()
			d := s.Validate(json.RawMessage(c[1]))
			if len(d) != 1 || !strings.Contains(d[0].Message, "too many steps") {
				t.Errorf("details = %v", d)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
	s := mustCompile(t, `{"type":"array","items":{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"]},"$defs":{"n":{"type":"integer"}}}`, Options{})
	big := "[" + strings.TrimSuffix(strings.Repeat(`{"a":1},`, 50_000), ",") + "]"
	if d := s.Validate(json.RawMessage(big)); d != nil {
		t.Errorf("an honest large value is refused: %v", d)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"type":"object","properties":{"a":{"type":"string"}}}`, Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if len(s.Validate(json.RawMessage(`{"a":1}`))) != 1 || s.Validate(json.RawMessage(`{"a":""}`)) != nil {
					t.Error("wrong outcome under concurrency")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestFunctionParameters(t *testing.T) {
	t.Parallel()
	const empty = `{"type":"object","properties":{}}`
	for _, c := range []struct{ name, in, want string }{
		{"fine stays", `{"type":"object","properties":{"z":{"n":1.0},"a":{}},"required":["a"]}`, `{"type":"object","properties":{"z":{"n":1.0},"a":{}},"required":["a"]}`},
		{"order kept", `{"properties":{"z":{},"a":{},"m":{}},"type":"object"}`, `{"properties":{"z":{},"a":{},"m":{}},"type":"object"}`},
		{"absent", ``, empty},
		{"null", `null`, empty},
		{"true", `true`, empty},
		{"array type", `{"type":"array","items":{}}`, empty},
		{"string type", `{"type":"string"}`, empty},
		{"no JSON", `{`, empty},
		{"list", `[]`, empty},
		{"empty", `{}`, empty},
		{"root anyOf", `{"anyOf":[{"required":["a"]}]}`, `{"type":"object","properties":{},"anyOf":[{"required":["a"]}]}`},
		{"no properties", `{"type":"object"}`, `{"properties":{},"type":"object"}`},
		{"properties null", `{"type":"object","properties":null}`, `{"type":"object","properties":{}}`},
		{"required null", `{"type":"object","properties":{},"required":null}`, `{"type":"object","properties":{}}`},
		{"object or null", `{"type":["object","null"],"properties":{"a":{}}}`, `{"type":"object","properties":{"a":{}}}`},
		{"$defs stay", `{"$defs":{"a":{"maximum":12345678901234567890}},"$ref":"#/$defs/a"}`, `{"type":"object","properties":{},"$defs":{"a":{"maximum":12345678901234567890}},"$ref":"#/$defs/a"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := string(FunctionParameters(json.RawMessage(c.in))); got != c.want {
				t.Errorf("FunctionParameters(%s) = %s, want %s", c.in, got, c.want)
			}
		})
	}
}

func FuzzCompileAndValidate(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"pattern":"(?!x)"}},"$ref":"#/$defs/b"}`, `{"a":1}`)
	f.Add(`{"anyOf":[{"$ref":"http://x/y"},{"const":1e400}],"additionalProperties":false}`, `{"b":[1]}`)
	f.Add(`{"$id":"urn:x","$dynamicRef":"#a","$defs":{"a":{"$dynamicAnchor":"a"}}}`, `null`)
	f.Fuzz(func(t *testing.T, schema, instance string) {
		s, err := Compile(json.RawMessage(schema), Options{Lenient: true})
		if err != nil {
			return
		}
		for _, d := range s.Validate(json.RawMessage(instance)) {
			if d.Message == "" {
				t.Fatalf("a detail without message for %s against %s", instance, schema)
			}
		}
		if p := FunctionParameters(json.RawMessage(schema)); !json.Valid(p) {
			t.Fatalf("FunctionParameters(%s) = %s", schema, p)
		}
	})
}
