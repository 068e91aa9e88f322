package capabilities

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/holds/policy"
	"agentos/internal/strictyaml"
)

var update = flag.Bool("update", false, "rewrite the expected errors")

// TestInvalidManifests compares every manifest of testdata/invalid with the
// errors beside it. A person reads the difference after -update.
func TestInvalidManifests(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			data := read(t, file)
			_, err := Parse("agentos.yaml", data, "/bundle")
			var all strictyaml.Errors
			if !errors.As(err, &all) {
				t.Fatalf("error is %T %v, want strictyaml.Errors", err, err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(all.Error()+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(read(t, golden)), all.Error()+"\n"); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
		})
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestLoadManifestWithoutLoop(t *testing.T) {
	t.Parallel()
	a, err := Load("testdata/valid/support.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if a.Name != "mcp-support" || a.Port != 8080 || a.Params["docs_mcp_url"] != "https://mcp.deepwiki.com/mcp" {
		t.Errorf("agent = %+v", a)
	}
	for _, name := range []string{"support", "ask_docs"} {
		c := a.Capabilities[name]
		if c == nil || c.Loop != nil || c.Timeout != 5*time.Minute {
			t.Fatalf("capability %s = %+v", name, c)
		}
	}
	want := `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`
	if got := string(a.Capabilities["support"].Input); got != want {
		t.Errorf("input = %s", got)
	}
	if d := a.Capabilities["support"].InputSchema.Validate([]byte(`{}`)); len(d) != 1 {
		t.Errorf("an empty input has details %v", d)
	}
}

func TestLoadEveryKey(t *testing.T) {
	t.Parallel()
	a, err := Load("testdata/valid/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("testdata/valid")
	if err != nil {
		t.Fatal(err)
	}
	wantServers := map[string]*Server{
		"orders": {
			Alias:   "orders",
			Command: []string{"${agentos}", "demo-server", "orders_server.py", "--region=no"},
			Env:     map[string]string{"TZ": "UTC", "TOKEN": "${secrets.docs_token}", "PRICE": "$${not_a_ref}"},
			Cwd:     filepath.Join(filepath.Dir(dir), "bundle"),
			Tools:   []string{"lookup_order", "cancel_*"}, Rename: map[string]string{"cancel_order": "cancel"},
			ConnectTimeout: 10 * time.Second, CallTimeout: 90 * time.Second,
			ReadTools: []string{"lookup_*"}, IdempotentTools: []string{"put_note"},
			TrustHints: true, ProtocolVersion: "2025-06-18",
		},
		"docs": {
			Alias: "docs", URL: "https://mcp.deepwiki.com/mcp/v1", Required: true,
			Headers:        map[string]string{"Authorization": "Bearer ${secrets.docs_token}", "X-Region": "no"},
			ConnectTimeout: 30 * time.Second, CallTimeout: time.Minute,
		},
	}
	if diff := cmp.Diff(wantServers, a.Servers); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	over100, err := policy.CompileCondition("args.amount > 100")
	if err != nil {
		t.Fatal(err)
	}
	byText := cmp.Comparer(func(a, b *policy.Condition) bool { return a == b || a != nil && b != nil && a.String() == b.String() })
	week := 7 * 24 * time.Hour
	wantLoop := &Loop{
		Model: "cheap", System: "You help customers in no.", Prompt: "${input.message} (customer ${input.customer.id})",
		Tools: []string{"orders", "docs/ask_*"}, MaxTurns: 4, MaxTokens: 200000, Namespaced: true,
		Rules: []policy.Rule{
			{ID: "approve:cancel_order", Effect: policy.Ask, Tool: "cancel_order", Expires: week, OnExpire: policy.RejectOnExpire},
			{ID: "approve:orders/refund_*", Effect: policy.Ask, Tool: "orders/refund_*", Expires: week, OnExpire: policy.RejectOnExpire},
			{ID: "big", Effect: policy.Ask, Tool: "refund", Expires: 72 * time.Hour, OnExpire: policy.FailOnExpire, Reason: "Finance decides."},
			{ID: "deny:drop_*", Effect: policy.Deny, Tool: "drop_*"},
			{ID: "deny:purge", Effect: policy.Deny, Tool: "purge", Reason: "Never."},
		},
	}
	if diff := cmp.Diff(wantLoop, a.Capabilities["support"].Loop, byText); diff != "" {
		t.Errorf("loop (-want +got):\n%s", diff)
	}
	wantRules := []policy.Rule{
		{
			ID: "refunds", Effect: policy.Ask, Tool: "refund_*", When: over100, Expires: 72 * time.Hour, OnExpire: policy.RejectOnExpire, Reason: "Over 100 needs finance.",
			Reviewers: policy.Reviewers{Require: 2, NotRequester: true, Sets: []policy.ReviewerSet{{Roles: []string{"finance", "007"}, Users: []string{"ann@example.com"}, Escalate: &policy.Escalation{Roles: []string{"board"}, AfterMS: 86_400_000}}}},
		},
		{ID: "allow:orders/lookup_order", Effect: policy.Allow, Tool: "orders/lookup_order"},
		{ID: "deny:*/drop_table", Effect: policy.Deny, Tool: "*/drop_table"},
	}
	if diff := cmp.Diff(wantRules, a.Rules, byText); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	// What YAML 1.1 would turn into a boolean, an octal number, a date, a float.
	for name, want := range map[string]string{"region": "no", "code": "012", "day": "2020-01-01", "ratio": "1.0"} {
		if a.Params[name] != want {
			t.Errorf("param %s = %q, want %q", name, a.Params[name], want)
		}
	}
	if got := a.Description; got != "Shows no and a literal ${params.region}." {
		t.Errorf("description = %q", got)
	}
	wantModels := map[string]Model{
		"main":  {Use: "openai/gpt-4o-mini"},
		"cheap": {Use: "openai/gpt-4o-nano", Fallback: []string{"anthropic/claude-3-5-haiku", "openai/gpt-4o"}},
	}
	if diff := cmp.Diff(wantModels, a.Models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"mcp.deepwiki.com", "*.example.com", "10.0.0.5:8443", "[::1]:9000"}, a.NetworkAllow); diff != "" {
		t.Errorf("network (-want +got):\n%s", diff)
	}
	if in := string(a.Capabilities["own_code"].Input); !strings.Contains(in, `"maximum":12345678901234567890`) || !strings.Contains(in, `"default":"2020-01-01"`) {
		t.Errorf("input = %s", in)
	}
}

func TestLoadReportsFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"testdata/nowhere.yaml": "testdata/nowhere.yaml: the file does not exist",
		"testdata":              "testdata: is a directory",
	} {
		_, err := Load(path)
		if err == nil || err.Error() != want {
			t.Errorf("Load(%s) = %v, want %q", path, err, want)
		}
	}
}

func TestParseIsBounded(t *testing.T) {
	t.Parallel()
	big := append([]byte("name: a\ntitle: "), bytes.Repeat([]byte("x"), 10<<20)...)
	if _, err := Parse("a.yaml", big, ""); err == nil || !strings.Contains(err.Error(), "larger than 1024 KiB") {
		t.Errorf("10 MB: %.200v", err)
	}
	deep := "name: a\ntitle: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	if _, err := Parse("a.yaml", []byte(deep), ""); err == nil || !strings.Contains(err.Error(), "nested too deeply") {
		t.Errorf("deep: %.200v", err)
	}
	many := "name: a\n"
	var manySb185 strings.Builder
	for range 5000 {
		manySb185.WriteString("x" + strings.Repeat("y", len(many)%7) + ": 1\n")
	}
	many += manySb185.String()
	_, err := Parse("a.yaml", []byte(many), "")
	var all strictyaml.Errors
	if !errors.As(err, &all) || len(all) != 101 || !strings.Contains(all[100].Message, "more problems") {
		t.Errorf("%d problems reported", len(all))
	}
}

func TestByteOrderMarkAndCRLF(t *testing.T) {
	t.Parallel()
	plain := read(t, "testdata/valid/full.yaml")
	windows := append([]byte("\ufeff"), bytes.ReplaceAll(plain, []byte("\n"), []byte("\r\n"))...)
	want, err := Parse("a.yaml", plain, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("a.yaml", windows, "")
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest == want.Digest {
		t.Error("the digest ignores bytes of the file")
	}
	if diff := cmp.Diff(want.Servers, got.Servers); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Params, got.Params); diff != "" {
		t.Errorf("params (-want +got):\n%s", diff)
	}
}

func TestDigestCoversBundledFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest := "name: a\nmcp_servers: {o: {command: [python, server.py, ../outside.py, /etc/hostname]}}\n" +
		"capabilities: {x: {input: {type: object}, output: {type: object}}}\n"
	path := filepath.Join(dir, "agentos.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func() string {
		t.Helper()
		a, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return a.Digest
	}
	write("agentos.yaml", manifest)
	without := load()
	write("server.py", "one")
	one := load()
	if again := load(); again != one {
		t.Error("the digest is not stable")
	}
	write("server.py", "two")
	two := load()
	write("unrelated.txt", "x")
	if after := load(); after != two {
		t.Error("a file that no command names changed the digest")
	}
	if without == one || one == two {
		t.Errorf("digests %s, %s, %s should differ", without, one, two)
	}
	if !strings.HasPrefix(two, "sha256:") || len(two) != len("sha256:")+64 {
		t.Errorf("digest = %s", two)
	}
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/valid/*.yaml", "testdata/invalid/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := Parse("agentos.yaml", data, "")
		if err != nil {
			var all strictyaml.Errors
			if !errors.As(err, &all) || len(all) == 0 || a != nil {
				t.Fatalf("error %T %v with agent %v", err, err, a)
			}
			return
		}
		for _, c := range a.Capabilities {
			if c.InputSchema == nil || c.OutputSchema == nil {
				t.Fatalf("capability %s has no schema", c.Name)
			}
			if c.Loop == nil {
				continue
			}
			if _, err := RenderPrompt(c.Loop, []byte(`{"message":"x"}`)); err != nil {
				t.Fatalf("prompt %q: %v", c.Loop.Prompt, err)
			}
			if _, ok := a.Models[c.Loop.Model]; !ok {
				t.Fatalf("no model %q", c.Loop.Model)
			}
		}
		for _, s := range a.Servers {
			if (s.Command == nil) == (s.URL == "") {
				t.Fatalf("server %+v", s)
			}
			for _, v := range s.Env {
				if _, err := Resolve(v, func(string) (string, bool) { return "s", true }); err != nil {
					t.Fatalf("env %q: %v", v, err)
				}
			}
		}
	})
}
