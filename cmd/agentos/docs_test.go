package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"agentos/capabilities"
	"agentos/conformance"
	"agentos/internal/rawjson"
	"agentos/platform"
)

// repository is the top of the repository, seen from here.
const repository = "../.."

// notRun are commands of the documents that the test does not run, by how they
// begin, with the reason. Everything else runs.
var notRun = map[string]string{
	".ci/run":                    "runs this test",
	"go test ":                   "runs tests",
	"go run ./bench":             "takes two minutes and needs redis-server",
	"go run ./cmd/agentos serve": "serves until it is stopped; the test starts the same server itself",
	"agentos serve":              "serves until it is stopped; the test starts the same server itself",
	"OPENAI_API_KEY=":            "needs a model provider",
	"docker ":                    "needs docker and the network",
	"agentos keys ":              "the first key would lock the other commands out; testdata/script/keys.txtar runs them",
	"export AGENTOS_API_KEY=":    "the same",
	"agentos validate agentos.yaml --connect": "the example has a server on the internet",
}

// exitCodes are the commands that do not end with 0, by how they begin.
var exitCodes = map[string]int{
	// A held run ends the command where nobody can be asked.
	"agentos run support -i '{\"message\": \"Please cancel": exitFailed,
}

// command is one command line of a document.
type command struct {
	at, text string
}

// TestDocumentedCommands runs the commands that stand in fenced sh blocks, against
// a server with the example agent. HOLD_ID is a hold that was just opened, RUN_ID
// a run that has completed.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("the documents use curl, so this test needs it: ", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	s := startDocumented(ctx, t)
	used := map[string]bool{}
	ran := 0
	for _, c := range documented(t) {
		text := strings.ReplaceAll(c.text, "go run ./cmd/agentos run", "agentos run")
		if key := beginning(text, notRun); key != "" {
			used[key] = true
			continue
		}
		ran++
		want, key := 0, beginning(text, exitCodes)
		if key != "" {
			used[key], want = true, exitCodes[key]
		}
		s.check(ctx, t, c.at, text, want)
	}
	if ran < 15 {
		t.Errorf("only %d commands were run; are the blocks still marked sh?", ran)
	}
	for _, key := range slices.Concat(keys(notRun), keys(exitCodes)) {
		if !used[key] {
			t.Errorf("no document has a command that begins with %q any more", key)
		}
	}
}

// beginning returns the key of table that text begins with, or "".
func beginning[V any](text string, table map[string]V) string {
	for key := range table {
		if strings.HasPrefix(text, key) {
			return key
		}
	}
	return ""
}

func keys[V any](table map[string]V) []string {
	var out []string
	for key := range table {
		out = append(out, key)
	}
	return out
}

// documents are the files that people read, by their path from the top.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		names, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(repository, name)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.ToSlash(rel)] = string(raw)
		}
	}
	if len(out) < 5 {
		t.Fatalf("found %d documents", len(out))
	}
	return out
}

// block is a fenced block of a document.
type block struct {
	at, language, text string
}

func blocks(t *testing.T, language string) []block {
	t.Helper()
	var out []block
	for name, text := range documents(t) {
		var b *block
		for i, line := range strings.Split(text, "\n") {
			mark, fence := strings.CutPrefix(line, "```")
			switch {
			case fence && b == nil:
				b = &block{at: fmt.Sprintf("%s:%d", name, i+1), language: mark}
			case fence:
				if b.language == language {
					out = append(out, *b)
				}
				b = nil
			case b != nil:
				b.text += line + "\n"
			}
		}
		if b != nil {
			t.Errorf("%s: the block is not closed", b.at)
		}
	}
	slices.SortFunc(out, func(a, b block) int { return strings.Compare(a.at, b.at) })
	return out
}

// documented returns the commands of all sh blocks. A line that ends with a
// backslash goes on.
func documented(t *testing.T) []command {
	t.Helper()
	var out []command
	for _, b := range blocks(t, "sh") {
		for line := range strings.SplitSeq(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
			if text := strings.TrimSpace(line); text != "" && !strings.HasPrefix(text, "#") {
				out = append(out, command{at: b.at, text: text})
			}
		}
	}
	return out
}

// documentedServer is a server as the documents describe it, but for its address.
type documentedServer struct {
	url, dir string
	client   *http.Client
}

// startDocumented starts a server with the example agent in a folder of its own.
// The agent's remote server is moved to an address that is refused at once, so
// that nothing depends on the internet.
func startDocumented(ctx context.Context, t *testing.T) *documentedServer {
	t.Helper()
	s := &documentedServer{dir: t.TempDir(), client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if err := os.MkdirAll(filepath.Join(s.dir, "examples", "policy"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"agentos.yaml", "conformance.yaml", "examples/policy/platform.yaml", "examples/policy/examples.yaml"} {
		raw, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		raw = bytes.ReplaceAll(raw, []byte("https://mcp.deepwiki.com/mcp"), []byte("http://127.0.0.1:9/mcp"))
		if err := os.WriteFile(filepath.Join(s.dir, name), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// It is stopped by a signal and not by the end of ctx.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "agentos", "serve", "--addr", "127.0.0.1:0", "--store", "memory:")
	cmd.Dir, cmd.Env = s.dir, s.environment()
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		<-drained
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	})
	lines := bufio.NewScanner(errs)
	for s.url == "" && lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "serving on "); ok {
			s.url = url
		}
	}
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, errs)
	}()
	if s.url == "" {
		t.Fatal("the server did not say where it serves")
	}
	return s
}

// environment has nothing of the machine's settings in it.
func (s *documentedServer) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "NO_PROXY=*", "GORACE=atexit_sleep_ms=0",
		"AGENTOS_URL=" + s.url, "AGENTOS_ADDR=" + strings.TrimPrefix(s.url, "http://"),
	}
}

// check runs a command and wants its exit code and no error of the API.
func (s *documentedServer) check(ctx context.Context, t *testing.T, at, text string, want int) {
	t.Helper()
	shown := text
	text = strings.ReplaceAll(text, "http://127.0.0.1:8080", s.url)
	if strings.Contains(text, "HOLD_ID") {
		text = strings.ReplaceAll(text, "HOLD_ID", s.run(ctx, t, "Please cancel order A-1002, I ordered it twice.", "held").Hold.HoldID)
	}
	if strings.Contains(text, "RUN_ID") {
		text = strings.ReplaceAll(text, "RUN_ID", s.run(ctx, t, "Look up order A-1001", "completed").RunID)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", text)
	cmd.Dir, cmd.Env = s.dir, s.environment()
	out, err := cmd.CombinedOutput()
	code := cmd.ProcessState.ExitCode()
	if err != nil && code < 0 {
		t.Fatalf("%s: %s: %v", at, shown, err)
	}
	if code != want || bytes.Contains(out, []byte(`{"error":{"code"`)) {
		t.Errorf("%s: %s\nends with %d, want %d, and says:\n%s", at, shown, code, want, out)
	}
}

// documentedRun is what the test reads of a run.
type documentedRun struct {
	RunID  string `json:"run_id"`
	Status string `json:"status"`
	Hold   struct {
		HoldID string `json:"hold_id"`
	} `json:"hold"`
}

// run makes a run with the message and wants it to have the status.
func (s *documentedServer) run(ctx context.Context, t *testing.T, message, status string) documentedRun {
	t.Helper()
	body, err := json.Marshal(map[string]map[string]string{"input": {"message": message}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		s.url+"/v0/envs/default/agents/mcp-support/capabilities/support/runs?wait=true", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var r documentedRun
	if err := json.Unmarshal(raw, &r); err != nil || r.Status != status {
		t.Fatalf("the run is %s, want it %s (%v)", raw, status, err)
	}
	return r
}

// TestDocumentedFiles reads the manifests and case files that the documents show.
func TestDocumentedFiles(t *testing.T) {
	t.Parallel()
	manifests, cases, policies := 0, 0, 0
	for _, b := range blocks(t, "yaml") {
		var err error
		switch {
		case strings.HasPrefix(b.text, "name:"):
			manifests++
			_, err = capabilities.Parse(b.at, []byte(b.text), t.TempDir())
		case strings.HasPrefix(b.text, "cases:"):
			cases++
			_, err = conformance.Parse(b.at, []byte(b.text))
		case strings.HasPrefix(b.text, "policy:"):
			policies++
			_, err = platform.Parse(b.at, []byte(b.text))
		}
		if err != nil {
			t.Errorf("%s: %v", b.at, err)
		}
	}
	if manifests < 2 || cases < 1 || policies < 2 {
		t.Errorf("found %d manifests, %d case files, %d policies", manifests, cases, policies)
	}
}

// TestDocumentedLinks wants the file and the heading of every relative link.
func TestDocumentedLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	all := documents(t)
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
			}
			if _, err := os.Stat(filepath.Join(repository, target)); err != nil {
				t.Errorf("%s: %s leads nowhere", name, m[1])
			}
			if anchor != "" && !slices.Contains(headings(all[target]), anchor) {
				t.Errorf("%s: %s has no heading %q", name, target, anchor)
			}
		}
	}
}

// headings are the anchors of a document, as hosts of Markdown make them.
func headings(text string) []string {
	drop := regexp.MustCompile(`[^a-z0-9 _-]`)
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			out = append(out, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(title), ""), " ", "-"))
		}
	}
	return out
}

// TestEveryKeyIsDocumented compares docs/manifest.md with the JSON Schema of the
// file, which a test of package capabilities compares with the reader.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	text := documents(t)["docs/manifest.md"]
	names := propertyNames(t, capabilities.SchemaJSON())
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
			t.Errorf("docs/manifest.md says nothing about %q", name)
		}
	}
	if len(names) < 40 {
		t.Errorf("found %d keys in the schema", len(names))
	}
}

// propertyNames are the names of all properties that a schema declares.
func propertyNames(t *testing.T, schema json.RawMessage) []string {
	t.Helper()
	var out []string
	switch rawjson.Kind(schema) {
	case "object":
		fields, err := rawjson.Fields(schema)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			out = append(out, propertyNames(t, f.Value)...)
			if f.Name != "properties" {
				continue
			}
			properties, err := rawjson.Fields(f.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range properties {
				out = append(out, p.Name)
			}
		}
	case "array":
		elements, err := rawjson.Elements(schema)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements {
			out = append(out, propertyNames(t, e)...)
		}
	}
	return out
}

// TestEverySettingIsDocumented compares docs/operations.md with the help of serve:
// its flags and the variables it names.
func TestEverySettingIsDocumented(t *testing.T) {
	t.Parallel()
	text := documents(t)["docs/operations.md"]
	var help bytes.Buffer
	unset := func(string) (string, bool) { return "", false }
	if code := execute(t.Context(), stdio{out: &help, err: &help}, unset, []string{"serve", "--help"}); code != exitOK {
		t.Fatalf("serve --help ends with %d", code)
	}
	words := regexp.MustCompile(`--[a-z-]+|AGENTOS_[A-Z_]+`).FindAllString(help.String(), -1)
	for _, word := range words {
		if word != "--help" && !strings.Contains(text, "`"+word+"`") {
			t.Errorf("docs/operations.md says nothing about %s", word)
		}
	}
	if len(words) < 10 {
		t.Errorf("found %d settings in the help", len(words))
	}
}
