package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"agentos/internal/rawjson"
	"agentos/runtime/mcp/wire"
)

// playShapes answers a call with the raw result in its arguments.
func playShapes(c *child) {
	c.tools = `[{"name":"any","inputSchema":{"type":"object"}},` +
		`{"name":"wrapped","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"result":{"type":"integer"}},"required":["result"]}}]`
	c.loop(func(m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		_, args, key := m.call()
		var a struct {
			Raw string `json:"raw"`
		}
		_ = json.Unmarshal(args, &a)
		ledger(key, nil)
		c.result(m.ID, a.Raw)
		return true
	})
}

// C26, B50, B49: what each shape of result reads like, over a real server that
// executes each exactly once.
func TestResultShapes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "shapes")
	r.open().mustConnect()
	big := strings.Repeat("QUJD", 100<<10)
	uri := "see data:image/png;base64," + strings.Repeat("QUJD", 1000) + " here"
	for _, c := range []struct {
		name       string
		tool       string
		raw        string
		outcome    Outcome
		text       string
		structured string
	}{
		{"text", "any", `{"content":[{"type":"text","text":"x"}]}`, Success, "x", ""},
		{"two texts", "any", `{"content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}`, Success, `[{"type":"text","text":"x"},{"type":"text","text":"y"}]`, ""},
		{"structured only", "any", `{"structuredContent":{"a":1}}`, Success, `{"a":1}`, `{"a":1}`},
		{"content null", "any", `{"content":null,"structuredContent":{"a":1}}`, Success, `{"a":1}`, `{"a":1}`},
		{"structured and the same text", "any", `{"content":[{"type":"text","text":"{\n  \"a\": 12345678901234567890, \"b\": \"é\"\n}"}],"structuredContent":{"b":"\u00e9","a":12345678901234567890}}`, Success, `{"b":"\u00e9","a":12345678901234567890}`, `{"b":"\u00e9","a":12345678901234567890}`},
		{"structured and another text", "any", `{"content":[{"type":"text","text":"note"}],"structuredContent":{"a":1}}`, Success, `{"structuredContent":{"a":1},"content":[{"type":"text","text":"note"}]}`, `{"a":1}`},
		{"structured beside image", "any", `{"content":[{"type":"image","data":"QUJD","mimeType":"image/png"},{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}`, Success, `{"structuredContent":{"a":1},"content":[{"type":"image","data":"QUJD","mimeType":"image/png"}]}`, `{"a":1}`},
		{"wrapped scalar", "wrapped", `{"content":[{"type":"text","text":"5"}],"structuredContent":{"result":5}}`, Success, `5`, `5`},
		{"wrapped text", "wrapped", `{"content":[{"type":"text","text":"it"}],"structuredContent":{"result":"it"}}`, Success, `it`, `"it"`},
		{"wrapped list, a block each", "wrapped", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"2"}],"structuredContent":{"result":["a",2]}}`, Success, `["a",2]`, `["a",2]`},
		{"no wrapper schema", "any", `{"structuredContent":{"result":5}}`, Success, `{"result":5}`, `{"result":5}`},
		{"wrapper with a second key", "wrapped", `{"structuredContent":{"result":5,"x":1}}`, Success, `{"result":5,"x":1}`, `{"result":5,"x":1}`},
		{"content is text", "any", `{"content":"text"}`, Success, "text", ""},
		{"content is one block", "any", `{"content":{"type":"text","text":"x"}}`, Success, "x", ""},
		{"empty object", "any", `{}`, Success, "The tool returned no content.", ""},
		{"null", "any", `null`, Success, "The tool returned no content.", ""},
		{"empty list", "any", `{"content":[]}`, Success, "The tool returned no content.", ""},
		{"structured list", "any", `{"structuredContent":[1,2]}`, Success, `[1,2]`, `[1,2]`},
		{"resource link", "any", `{"content":[{"type":"resource_link","uri":"file:///x","name":"x"}]}`, Success, `[{"type":"resource_link","uri":"file:///x","name":"x"}]`, ""},
		{"unknown type", "any", `{"content":[{"type":"hologram","depth":3},{"type":"text","text":"x"}]}`, Success, `[{"type":"hologram","depth":3},{"type":"text","text":"x"}]`, ""},
		{"no type", "any", `{"content":[{"text":"no type"}]}`, Success, "no type", ""},
		{"block is no object", "any", `{"content":[7]}`, Success, "[7]", ""},
		{"failed", "any", `{"content":[{"type":"text","text":"no such order"}],"isError":true}`, Error, "no such order", ""},
		{"failed, as text", "any", `{"content":[{"type":"text","text":"no"}],"isError":"true"}`, Error, "no", ""},
		{"failed with structured", "any", `{"content":[],"structuredContent":{"code":7},"isError":true}`, Error, `{"code":7}`, `{"code":7}`},
		{"failed without a word", "any", `{"isError":true}`, Error, "The tool failed and did not say why.", ""},
		{"against the output schema", "wrapped", `{"structuredContent":{"result":"five"}}`, Success, "five", `"five"`},
		{"small image", "any", `{"content":[{"type":"image","data":"QUJD","mimeType":"image/png"}]}`, Success, `[{"type":"image","data":"QUJD","mimeType":"image/png"}]`, ""},
		{
			"big image", "any", `{"content":[{"type":"image","data":"` + big + `","mimeType":"image/png"},{"type":"text","text":"chart"}]}`, Success,
			`[{"type":"image","data":"[withheld: 307200 bytes of data]","mimeType":"image/png"},{"type":"text","text":"chart"}]`, "",
		},
		{
			"big image, also structured", "any", `{"content":[{"type":"image","data":"` + big + `","mimeType":"image/png"}],"structuredContent":{"picture":{"anything":"` + big + `"},"w":3}}`, Success,
			`{"structuredContent":{"picture":{"anything":"[withheld: 307200 bytes of data]"},"w":3},"content":[{"type":"image","data":"[withheld: 307200 bytes of data]","mimeType":"image/png"}]}`,
			`{"picture":{"anything":"[withheld: 307200 bytes of data]"},"w":3}`,
		},
		{"structured image", "any", `{"structuredContent":{"image":{"data":"` + big + `"},"w":3}}`, Success, `{"image":{"data":"[withheld: 307200 bytes of data]"},"w":3}`, `{"image":{"data":"[withheld: 307200 bytes of data]"},"w":3}`},
		{
			"resource blob", "any", `{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"application/pdf","blob":"` + big + `"}}]}`, Success,
			`[{"type":"resource","resource":{"uri":"file:///a","mimeType":"application/pdf","blob":"[withheld: 307200 bytes of data]"}}]`, "",
		},
		{"audio", "any", `{"content":[{"type":"audio","data":"` + big + `","mimeType":"audio/wav"}]}`, Success, `[{"type":"audio","data":"[withheld: 307200 bytes of data]","mimeType":"audio/wav"}]`, ""},
		{"data uri in text", "any", `{"content":[{"type":"text","text":"` + uri + `"}]}`, Success, "see data:image/png;base64,[withheld: 3000 bytes of data] here", ""},
		{"data uri in structured", "any", `{"structuredContent":{"html":"` + uri + `"}}`, Success, `{"html":"see data:image/png;base64,[withheld: 3000 bytes of data] here"}`, `{"html":"see data:image/png;base64,[withheld: 3000 bytes of data] here"}`},
		{"long plain text stays", "any", `{"content":[{"type":"text","text":"` + strings.Repeat("QUJD", 1000) + `"}]}`, Success, strings.Repeat("QUJD", 1000), ""},
		{"half a surrogate pair", "any", `{"content":[{"type":"text","text":"a\ud800b"}]}`, Success, "a\uFFFDb", ""},
		{"names twice", "any", `{"structuredContent":{"a":1,"a":2}}`, Success, `{"a":1,"a":2}`, ""},
		{"asks for input", "any", `{"resultType":"input_required","inputRequests":{}}`, Error, "The server asks for input before it runs the tool, which is not offered here; the tool did not run.", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(r.executions())
			args, err := rawjson.Marshal(map[string]string{"raw": c.raw})
			if err != nil {
				t.Fatal(err)
			}
			got := r.call("s", c.tool, string(args))
			if got.Outcome != c.outcome || got.Text != c.text || string(got.Structured) != c.structured || got.Truncated {
				t.Errorf("%s %.300q structured %.300q", got.Outcome, got.Text, got.Structured)
			}
			if c.name == "against the output schema" && (len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "/result")) {
				t.Errorf("notes = %q", got.Notes)
			}
			if len(got.Text) > 20<<10 {
				t.Errorf("%d bytes go to the model", len(got.Text))
			}
			if n := len(r.executions()) - before; n != 1 || r.Status()[0].Reconnects != 0 {
				t.Errorf("%d executions", n)
			}
		})
	}
}

// shaped maps a result without a server.
func shaped(t *testing.T, raw string) Result {
	t.Helper()
	srv := newServer("s", newRig(t).child("s", ""), newRig(t).cfg)
	return srv.shape(wire.Reply{Result: json.RawMessage(raw)}, Tool{Name: "x"})
}

// C34: blocks and bytes are bounded, with a notice.
func TestResultBounds(t *testing.T) {
	t.Parallel()
	block := `{"type":"text","text":"b"}`
	got := shaped(t, `{"content":[`+strings.Repeat(block+",", 99)+block+`]}`)
	if n := strings.Count(got.Text, block); n != MaxBlocks || !got.Truncated || !strings.Contains(got.Text, "[36 more content blocks are left out. Ask for less.]") {
		t.Errorf("%d blocks: %.200s", n, got.Text)
	}
	got = shaped(t, `{"content":[{"type":"text","text":"`+strings.Repeat("€", 1<<20)+`"}]}`)
	if !got.Truncated || len(got.Text) > MaxText+300 || !utf8.ValidString(got.Text) || !strings.Contains(got.Text, "Ask for less") {
		t.Errorf("%d bytes", len(got.Text))
	}
	got = shaped(t, `{"structuredContent":{"rows":["`+strings.Repeat("r", 1<<20)+`"]}}`)
	if !got.Truncated || got.Structured != nil || len(got.Text) > MaxText+300 {
		t.Errorf("structured: %d bytes, text %d", len(got.Structured), len(got.Text))
	}
}

// A secret that straddles the cut must not survive in part.
func TestSecretAtTheCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Redact = redactor("k", "0123456789")
	srv := newServer("s", r.child("s", ""), r.cfg)
	raw := `{"content":[{"type":"text","text":"` + strings.Repeat("x", MaxText-5) + `0123456789 and more"}]}`
	if got := srv.shape(wire.Reply{Result: json.RawMessage(raw)}, Tool{}); strings.Contains(got.Text, "01234") {
		t.Error("half of the secret is shown")
	}
}

func FuzzShape(f *testing.F) {
	for _, s := range []string{
		`{"content":[{"type":"text","text":"x"}],"structuredContent":{"result":1},"isError":true}`, `null`, `[]`, `{"content":{"a":[1,{"b":"\ud800"}]}}`,
		`{"structuredContent":{"a":1,"a":2}}`, "{\"content\":\"\xff\"}", `{"content":[[[[]]]]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := newRig(t)
		srv := newServer("s", r.child("s", ""), r.cfg)
		got := srv.shape(wire.Reply{Result: raw}, Tool{wraps: true})
		if !utf8.ValidString(got.Text) && utf8.Valid(raw) {
			t.Errorf("text is no UTF-8: %q", got.Text)
		}
		if got.Text == "" || got.Outcome != Success && got.Outcome != Error {
			t.Errorf("%+v", got)
		}
		if got.Structured != nil && rawjson.Check(got.Structured) != nil {
			t.Errorf("structured is no JSON: %q", got.Structured)
		}
	})
}

func TestRewriteKeepsBytes(t *testing.T) {
	t.Parallel()
	in := []byte(`{"z":12345678901234567890,"a":[1.0,"\u0041",{"":null}],"s":"<&>","a":true}`)
	out, err := rewrite(in, func(_, s string) string { return s })
	if err != nil || !bytes.Equal(in, out) {
		t.Errorf("rewrite = %s, %v", out, err)
	}
	out, err = rewrite(in, func(name, s string) string { return name + "/" + s })
	if want := `{"/z":"z/12345678901234567890","/a":["a/1.0","a/A",{"/":null}],"/s":"s/<&>","/a":true}`; err != nil || string(out) != want {
		t.Errorf("rewrite = %s, %v", out, err)
	}
	if _, err := rewrite([]byte(`{"a":`), func(_, s string) string { return s }); err == nil {
		t.Error("a broken text was rewritten")
	}
}

// playLibrary is a server made with the library, in its own habits.
func playLibrary(*child) {
	if err := mcpserver.ServeStdio(libraryServer()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func libraryServer() *mcpserver.MCPServer {
	s := mcpserver.NewMCPServer("lib", "2", mcpserver.WithToolCapabilities(true), mcpserver.WithPaginationLimit(2))
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		tool := mcpgo.NewToolWithRawSchema(name, "tool "+name, json.RawMessage(`{"type":"object","oneOf":[{}],"properties":{"n":{"type":"integer"}}}`))
		s.AddTool(tool, func(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
			return mcpgo.NewToolResultText(name + string(r.Params.RawArguments)), nil
		})
	}
	return s
}

// The other side of the library, over the real pipe.
func TestLibraryServerOverStdio(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "library")
	r.open().mustConnect()
	if tools := r.Tools(); len(tools) != 5 || !strings.Contains(string(tools[0].InputSchema), "oneOf") {
		t.Fatalf("tools = %v", r.names())
	}
	if got := r.call("s", "e", `{"n":9007199254740993}`); got.Text != `e{"n":9007199254740993}` {
		t.Errorf("call = %+v", got)
	}
	if got := r.call("s", "a", `{}`); got.Outcome != Success {
		t.Errorf("call = %+v", got)
	}
}
