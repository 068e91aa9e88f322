package capabilities

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRenderPrompt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, prompt, input, want string }{
		{"text", "Say: ${input.message}!", `{"message":"hi \"you\"\n<&>"}`, "Say: hi \"you\"\n<&>!"},
		{"exact number", "${input.id}", `{"id":12345678901234567890}`, "12345678901234567890"},
		{"number as written", "${input.id}", `{"id":1.0}`, "1.0"},
		{"object", "${input.o}", `{"o": {"z": 1, "a": "ü"}}`, `{"z":1,"a":"ü"}`},
		{"nested", "${input.a.b}", `{"a":{"b":"x"}}`, "x"},
		{"whole input", "${input}", `{"b": 1, "a": [2]}`, `{"b":1,"a":[2]}`},
		{"missing", "[${input.a.b}]", `{"c":1}`, "[]"},
		{"below a text", "[${input.a.b}]", `{"a":"x"}`, "[]"},
		{"null", "${input.a}", `{"a":null}`, "null"},
		{"escaped", "$${input.a} ${input.a}", `{"a":"x"}`, "${input.a} x"},
		{"dollars", "$5 $$ $", `{}`, "$5 $$ $"},
		{"values are no templates", "${input.a}", `{"a":"${input.b} ${secrets.x} $${"}`, "${input.b} ${secrets.x} $${"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := RenderPrompt(&Loop{Prompt: c.prompt}, []byte(c.input))
			if err != nil || got != c.want {
				t.Errorf("RenderPrompt(%q, %s) = %q, %v; want %q", c.prompt, c.input, got, err, c.want)
			}
		})
	}
	if _, err := RenderPrompt(&Loop{Prompt: "${input"}, []byte(`{}`)); err == nil {
		t.Error("an open reference is rendered")
	}
}

func TestDefaultPrompt(t *testing.T) {
	t.Parallel()
	one := `{"type":"object","properties":{"message":{"type":"string"},"n":{"type":"integer"}}}`
	two := `{"properties":{"a":{"type":"string"},"b":{"type":["string","null"]}}}`
	for _, c := range []struct{ name, schema, input, want string }{
		{"the only text", one, `{"message":"hi"}`, "hi"},
		{"text beside a number", one, `{"message":"hi","n":1}`, `{"message":"hi","n":1}`},
		{"absent", one, `{ "n": 12345678901234567890 }`, `{"n":12345678901234567890}`},
		{"two texts", two, `{"b": "x", "a": "y"}`, `{"b":"x","a":"y"}`},
		{"text or null", `{"properties":{"a":{"type":["string","null"]}}}`, `{"a":null}`, `{"a":null}`},
		{"no properties", `{}`, `{"z":1,"a":2}`, `{"z":1,"a":2}`},
		{"no object", `{"type":"string"}`, `"x"`, `"x"`},
		{"schema is true", `true`, `[1]`, `[1]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			capability := &Capability{textInput: onlyString([]byte(c.schema))}
			if got := capability.DefaultPrompt([]byte(c.input)); got != c.want {
				t.Errorf("DefaultPrompt = %q, want %q", got, c.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	secret := func(name string) (string, bool) {
		if name == "token" {
			return "s3cr3t ${secrets.other}", true
		}
		return "", false
	}
	for _, c := range []struct{ template, want, fault string }{
		{"Bearer ${secrets.token}", "Bearer s3cr3t ${secrets.other}", ""},
		{"$${secrets.token}", "${secrets.token}", ""},
		{"plain", "plain", ""},
		{"${secrets.gone}", "", `the secret "gone" has no value`},
		{"${params.x}", "", "${params.x} has no value here"},
		{"${secrets.token", "", "is not closed"},
	} {
		got, err := Resolve(c.template, secret)
		switch {
		case c.fault == "" && (err != nil || got != c.want):
			t.Errorf("Resolve(%q) = %q, %v", c.template, got, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || got != ""):
			t.Errorf("Resolve(%q) = %q, %v; want %q", c.template, got, err, c.fault)
		}
	}
}

func TestParamsAreNeverTemplates(t *testing.T) {
	t.Parallel()
	a, err := Parse("a.yaml", []byte(`
name: a
config: {models: {main: a/b}, params: {p: "$${input.message} $${agentos} $${secrets.x}"}}
mcp_servers: {s: {command: [x, "${params.p}", "${agentos}"], env: {E: "${params.p}"}}}
capabilities:
  c:
    input: {type: object}
    output: {type: object}
    loop: {prompt: "${params.p}", system: "${params.p}"}
`), "")
	if err != nil {
		t.Fatal(err)
	}
	const want = "${input.message} ${agentos} ${secrets.x}"
	s, loop := a.Servers["s"], a.Capabilities["c"].Loop
	if diff := cmp.Diff([]string{"x", want, "/bin/agentos"}, s.Argv("/bin/agentos")); diff != "" {
		t.Errorf("argv (-want +got):\n%s", diff)
	}
	if got, err := Resolve(s.Env["E"], func(string) (string, bool) { return "leak", true }); err != nil || got != want {
		t.Errorf("env = %q, %v", got, err)
	}
	if got, err := RenderPrompt(loop, []byte(`{"message":"leak"}`)); err != nil || got != want {
		t.Errorf("prompt = %q, %v", got, err)
	}
	if loop.System != want {
		t.Errorf("system = %q", loop.System)
	}
}

func TestLoopOffers(t *testing.T) {
	t.Parallel()
	all, none, some := &Loop{}, &Loop{Tools: []string{}}, &Loop{Tools: []string{"orders", "docs/ask_*"}}
	for _, c := range []struct {
		loop         *Loop
		server, tool string
		want         bool
	}{
		{all, "x", "y", true},
		{none, "x", "y", false},
		{some, "orders", "a/b", true},
		{some, "docs", "ask_it", true},
		{some, "docs", "drop", false},
		// A tool cannot name itself into the set of another server.
		{some, "evil", "docs/ask_it", false},
		{some, "evil", "orders", false},
	} {
		if got := c.loop.Offers(c.server, c.tool); got != c.want {
			t.Errorf("%v offers %s/%s = %v", c.loop.Tools, c.server, c.tool, got)
		}
	}
}
