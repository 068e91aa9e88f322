package mcp

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/schema"
)

func toolJSON(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"d","inputSchema":{"type":"object","properties":{"z":{},"a":{},"m":{}}}}`, name)
}

// playPaged pages in the way MCP_TEST_FORM says.
func playPaged(c *child) {
	form := os.Getenv("MCP_TEST_FORM")
	c.loop(func(m msg) bool {
		if m.Method != "tools/list" {
			return false
		}
		var p struct {
			Cursor string `json:"cursor"`
		}
		_ = json.Unmarshal(m.Params, &p)
		n, _ := strconv.Atoi(p.Cursor)
		page := func(cursor string, tools ...string) {
			c.result(m.ID, fmt.Sprintf(`{"tools":[%s],"nextCursor":%s}`, strings.Join(tools, ","), cursor))
		}
		next := fmt.Sprintf("%q", strconv.Itoa(n+1))
		switch form {
		case "three":
			if n < 2 {
				page(next, toolJSON("t"+strconv.Itoa(n)))
			} else {
				page("null", toolJSON("t2"))
			}
		case "empty":
			page(`""`, toolJSON("t"))
		case "same":
			page(`"again"`, toolJSON("t"+strconv.Itoa(n)))
		case "endless":
			page(next, toolJSON("t"))
		case "honest":
			if n < 199 {
				page(next, toolJSON(fmt.Sprintf("t%03d", n)))
			} else {
				page("null", toolJSON("t199"))
			}
		case "twice":
			if n == 0 {
				page(next, toolJSON("a"), toolJSON("b"))
			} else {
				page("null", toolJSON("b"), toolJSON("c"))
			}
		case "fails":
			if n < 2 {
				page(next, toolJSON("t"+strconv.Itoa(n)))
			} else {
				c.print(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"page lost"}}`+"\n", m.ID)
			}
		case "many":
			tools := make([]string, 5001)
			for i := range tools {
				tools[i] = toolJSON("t" + strconv.Itoa(i))
			}
			page("null", tools...)
		}
		return true
	})
}

// C25, B41: pages and cursors.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		form  string
		tools int
		err   string
		warn  string
	}{
		{"three", 3, "", ""},
		{"empty", 1, "", ""},
		{"same", 0, `the cursor "again" came before`, ""},
		{"endless", 0, "more than 1000 pages", ""},
		{"honest", 200, "", ""},
		{"twice", 3, "", `tool "b": listed twice`},
		{"fails", 0, "page 3: MCP error -32603: page lost", ""},
		{"many", 0, "more than 5000 tools", ""},
	} {
		t.Run(c.form, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.child("s", "paged").Env["MCP_TEST_FORM"] = c.form
			r.open()
			st := r.Status()[0]
			if st.ToolCount != c.tools || c.err == "" && st.Status != Connected || c.err != "" && (st.Status != Failed || !strings.Contains(st.Error, c.err)) {
				t.Errorf("status = %+v", st)
			}
			if c.warn != "" && !strings.Contains(strings.Join(st.Warnings, "\n"), c.warn) {
				t.Errorf("warnings = %q", st.Warnings)
			}
		})
	}
}

// playChanging adds a tool during a call, in the way MCP_TEST_FORM says.
func playChanging(c *child) {
	form := os.Getenv("MCP_TEST_FORM")
	changed := false
	c.loop(func(m msg) bool {
		switch m.Method {
		case "initialize":
			if form == "undeclared" {
				c.result(m.ID, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":""}}`)
				return true
			}
		case "tools/list":
			ledger("list", nil)
			if changed && form == "broken" {
				c.print(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"not now"}}`+"\n", m.ID)
				return true
			}
		case "tools/call":
			changed = true
			c.tools = strings.TrimSuffix(standardTools, "]") + `,` + toolJSON("drop_table") + `]`
			n := 1
			if form == "storm" {
				n = 1000
			}
			for range n {
				c.print(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n")
			}
			c.result(m.ID, text("done"))
			return true
		}
		return false
	})
}

// B46: a changed list is there for whoever asks after the call, and read a few
// times only.
func TestToolListChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		form  string
		tools int
		warn  string
	}{
		{"once", 3, ""},
		{"undeclared", 3, ""},
		{"storm", 3, ""},
		{"broken", 2, "could not be read again"},
	} {
		t.Run(c.form, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.child("s", "changing").Env["MCP_TEST_FORM"] = c.form
			r.open().mustConnect()
			before := r.Tools()
			if got := r.call("s", "echo", `{}`); got.Text != "done" {
				t.Fatalf("call = %+v", got)
			}
			if got := r.Tools(); len(got) != c.tools {
				t.Errorf("right after the call: %v", r.names())
			}
			if len(before) != 2 {
				t.Errorf("a list that was handed out changed: %v", before)
			}
			if n := len(r.executions()); n > 5 {
				t.Errorf("the list was read %d times", n)
			}
			if got := strings.Join(r.Status()[0].Warnings, "\n"); !strings.Contains(got, c.warn) {
				t.Errorf("warnings = %q", got)
			}
		})
	}
}

func playListed(c *child) {
	c.tools = os.Getenv("MCP_TEST_TOOLS")
	c.loop(nil)
}

// listed connects to a server with these tools.
func listed(t *testing.T, tools ...string) *rig {
	t.Helper()
	r := newRig(t)
	r.child("s", "listed").Env["MCP_TEST_TOOLS"] = "[" + strings.Join(tools, ",") + "]"
	return r
}

// A list of null is empty; configuration that means no tool is reported.
func TestConfigurationThatMeansNoTool(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("none", "listed").Env["MCP_TEST_TOOLS"] = "null"
	s := r.child("s", "listed")
	s.Env["MCP_TEST_TOOLS"] = "[" + toolJSON("get_x") + "," + toolJSON("put_x") + "]"
	s.Tools, s.ReadTools, s.IdempotentTools = []string{"get_*", "gte_y"}, []string{"get_x", "raed"}, []string{"put_*"}
	s.Rename = map[string]string{"get_x": "x", "nothing": "n"}
	r.open().mustConnect()
	if d := cmp.Diff([]string{"s/get_x"}, r.names()); d != "" {
		t.Error(d)
	}
	want := []string{
		`tools: "gte_y" means no tool that the server offers`,
		`effects.read: "raed" means no tool that the server offers`,
		`rename: "nothing" is no tool that the server offers`,
	}
	if d := cmp.Diff(want, r.Status()[1].Warnings); d != "" {
		t.Error(d)
	}
}

// B42, C27: one bad tool does not take the good one with it.
func TestBadToolsAmongGood(t *testing.T) {
	t.Parallel()
	const good = `{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}`
	for _, c := range []struct {
		tool     string
		usable   bool
		reported string
	}{
		{`{"name":"t","inputSchema":{"anyOf":[{"type":"object"},{"type":"object","properties":{}}]}}`, true, ""},
		{`{"name":"t","inputSchema":null}`, true, ""},
		{`{"name":"t"}`, true, ""},
		{`{"name":"t","inputSchema":true}`, true, ""},
		{`{"name":"t","inputSchema":false}`, false, `tool "t": its input schema is false`},
		{`{"name":"t","inputSchema":"object"}`, false, `tool "t": its input schema is no schema`},
		{`{"name":"t","inputSchema":{"type":"array"}}`, false, `tool "t": its arguments would have to be of type array`},
		{`{"name":"t","inputSchema":{"type":["array","null"]}}`, false, `tool "t": its arguments may be of no type`},
		{`{"name":"t","inputSchema":{"type":["object","null"]}}`, true, ""},
		{`{"name":"t","inputSchema":{"type":"object","properties":null}}`, true, `tool "t": arguments are not checked`},
		{`{"name":"t","inputSchema":{"type":"object","required":null}}`, true, `tool "t": arguments are not checked`},
		{`{"name":"t","inputSchema":{"type":"object"},"outputSchema":{}}`, true, ""},
		{`{"name":"t","inputSchema":{"type":"object"},"outputSchema":7}`, true, ""},
		{`{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}`, true, ""},
		{`{"name":"t","inputSchema":{"type":"object"},"annotations":[]}`, true, ""},
		{`{"name":"","inputSchema":{"type":"object"}}`, false, "tool number 2: it has no name"},
		{`{"name":7}`, false, "tool number 2: it has no name"},
		{`"tool"`, false, "tool number 2: its definition cannot be read"},
		{`{"name":"t","name":"u"}`, false, "tool number 2: its definition cannot be read"},
		{`{"name":"t","description":5,"inputSchema":{"type":"object"}}`, true, `tool "t": its description is no text`},
		{`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"pattern":"(?!x)"}}}}`, true, `tool "t": `},
		{`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}}`, true, `tool "t": `},
		{`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}}`, true, `tool "t": `},
		{`{"name":"t","inputSchema":{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"d":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/d"}}}}`, true, ""},
	} {
		t.Run(c.tool, func(t *testing.T) {
			t.Parallel()
			r := listed(t, good, c.tool).open().mustConnect()
			tools := r.Tools()
			names := r.names()
			if !slices.Contains(names, "s/good") || c.usable != slices.Contains(names, "s/t") || len(names) > 2 {
				t.Fatalf("tools = %v", names)
			}
			st := r.Status()[0]
			if got := strings.Join(append(st.Excluded, st.Warnings...), "\n"); !strings.HasPrefix(got, c.reported) || (got == "") != (c.reported == "") {
				t.Errorf("reported %q, want %q", got, c.reported)
			}
			for _, tool := range tools {
				wire := schema.FunctionParameters(tool.InputSchema)
				var p struct {
					Type       string                     `json:"type"`
					Properties map[string]json.RawMessage `json:"properties"`
				}
				if err := json.Unmarshal(wire, &p); err != nil || p.Type != "object" || p.Properties == nil {
					t.Errorf("parameters of %s = %s", tool.Name, wire)
				}
			}
			if c.usable {
				if got := r.call("s", "t", `{"a":"b"}`); got.Outcome != Success {
					t.Errorf("call = %+v", got)
				}
			}
		})
	}
}

// What a tool is, exactly: schema bytes, effect, digest.
func TestToolDefinition(t *testing.T) {
	t.Parallel()
	const in = `{"$schema":"https://json-schema.org/draft/2020-12/schema","x-order":[3,1],"type":"object","oneOf":[{}],"properties":{"z":{"const":12345678901234567890},"a":{}},"required":[]}`
	def := func(name, annotations string) string {
		return fmt.Sprintf(`{"name":%q,"description":"D","inputSchema":%s,"outputSchema":{"type":"object"},"annotations":%s}`, name, in, annotations)
	}
	r := listed(t,
		def("put_note", `{}`), def("get_it", `{}`), def("hinted_read", `{"readOnlyHint":true}`), def("hinted_idem", `{"idempotentHint":true}`),
		def("liar", `{"readOnlyHint":true,"destructiveHint":true}`), def("plain", `{"destructiveHint":"true"}`), def("left_out", `{}`))
	s := r.cfg.Servers["s"]
	s.ReadTools, s.IdempotentTools, s.TrustHints = []string{"get_*"}, []string{"put_note"}, true
	s.Tools = []string{"put_note", "get_it", "hinted_*", "liar", "plain"}
	s.Rename = map[string]string{"plain": "simple"}
	r.open().mustConnect()
	type view struct {
		Name, Shown string
		Effect      Effect
		Destructive bool
	}
	var got []view
	for _, tool := range r.Tools() {
		got = append(got, view{tool.Name, tool.Shown, tool.Effect, tool.Destructive})
		if string(tool.InputSchema) != in || string(tool.OutputSchema) != `{"type":"object"}` || tool.Schema == nil || !strings.HasPrefix(tool.Digest, "sha256:") {
			t.Errorf("%s = %+v", tool.Name, tool)
		}
	}
	want := []view{
		{"get_it", "get_it", Read, false},
		{"hinted_idem", "hinted_idem", Idempotent, false},
		{"hinted_read", "hinted_read", Read, false},
		{"liar", "liar", Once, true},
		{"plain", "simple", Once, false},
		{"put_note", "put_note", Idempotent, false},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	s.TrustHints = false
	srv := newServer("s", s, r.cfg)
	tool, _, err := srv.buildTool(json.RawMessage(def("hinted_read", `{"readOnlyHint":true}`)))
	if err != nil || tool.Effect != Once {
		t.Errorf("a hint was believed: %v %v", tool.Effect, err)
	}
	seen := map[string]bool{}
	for _, d := range []string{def("a", `{}`), strings.Replace(def("a", `{}`), `"D"`, `"E"`, 1), strings.Replace(def("a", `{}`), `"z"`, `"y"`, 1), def("b", `{}`)} {
		tool, _, _ := srv.buildTool(json.RawMessage(d))
		if seen[tool.Digest] {
			t.Errorf("the digest does not change with %s", d)
		}
		seen[tool.Digest] = true
	}
}

func playShuffled(c *child) {
	delay := time.NewTimer(time.Duration(rand.IntN(60)) * time.Millisecond)
	<-delay.C
	c.loop(func(m msg) bool {
		if m.Method != "tools/list" {
			return false
		}
		var tools []string
		for _, i := range rand.Perm(10) {
			tools = append(tools, toolJSON(fmt.Sprintf("t%d", i)))
		}
		c.result(m.ID, `{"tools":[`+strings.Join(tools, ",")+`]}`)
		return true
	})
}

// B44: order depends on neither map, server nor connection order.
func TestToolOrderIsStable(t *testing.T) {
	t.Parallel()
	var first string
	for range 4 {
		r := newRig(t)
		for _, alias := range []string{"b", "c", "a"} {
			r.child(alias, "shuffled")
		}
		r.open().mustConnect()
		named, excluded := Names(r.Tools(), false)
		if len(named) != 30 || len(excluded) != 0 {
			t.Fatalf("%d named, %v excluded", len(named), excluded)
		}
		var out strings.Builder
		for _, n := range named {
			fmt.Fprintf(&out, "%s %s %s\n", n.Provider, n.Tool.InputSchema, n.Tool.Digest)
		}
		if first == "" {
			first = out.String()
		}
		if out.String() != first {
			t.Fatalf("order changed:\n%s\n%s", first, out.String())
		}
	}
	if !strings.HasPrefix(first, `mcp__a__t0 {"type":"object","properties":{"z":{},"a":{},"m":{}}}`) {
		t.Errorf("first = %.200s", first)
	}
}

func playImpostor(c *child) {
	c.tools = "[" + toolJSON("cancel") + "]"
	c.loop(func(m msg) bool {
		if m.Method == "initialize" {
			c.result(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":`+os.Getenv("MCP_TEST_INFO")+`}`)
			return true
		}
		if m.Method == "tools/call" {
			c.result(m.ID, text(os.Getenv("MCP_TEST_INFO")))
			return true
		}
		return false
	})
}

// B45: identity is the alias, whatever the server says of itself.
func TestServerUnderAnotherName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("orders", "impostor").Env["MCP_TEST_INFO"] = `{"name":"payments","version":"1"}`
	r.child("payments", "impostor").Env["MCP_TEST_INFO"] = `{"name":"` + strings.Repeat(`\u001b[31mX\n`, 1000) + `","version":"1"}`
	r.child("unnamed", "impostor").Env["MCP_TEST_INFO"] = `{}`
	r.open().mustConnect()
	var shown []string
	for _, st := range r.Status() {
		shown = append(shown, st.Name)
		if n := st.ServerInfo.Name; len(n) > 80 || strings.ContainsAny(n, "\x1b\n") {
			t.Errorf("reported name = %q", n)
		}
	}
	named, _ := Names(r.Tools(), false)
	for _, n := range named {
		shown = append(shown, n.Provider)
	}
	want := []string{"orders", "payments", "unnamed", "mcp__orders__cancel", "mcp__payments__cancel", "mcp__unnamed__cancel"}
	if d := cmp.Diff(want, shown); d != "" {
		t.Error(d)
	}
	if got := r.call("orders", "cancel", `{}`); !strings.Contains(got.Text, `"payments"`) {
		t.Errorf("orders was not the one called: %s", got.Text)
	}
}
