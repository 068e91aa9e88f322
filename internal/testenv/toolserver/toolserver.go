// Package toolserver is an MCP server for tests: a real child process whose tools
// write what they did into a ledger file before they answer, so that a test can
// count effects whatever happened to the processes. Only tests use it.
package toolserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Environment variables that turn a test binary into the server.
const (
	envServe  = "AGENTOS_TEST_TOOLSERVER"
	envLedger = "AGENTOS_TEST_LEDGER"
	// EnvSchema, when set to a file, makes cancel_order take its input schema from
	// there, so that a test can change the tool.
	EnvSchema = "AGENTOS_TEST_SCHEMA"
)

// Execution is one line of the ledger.
type Execution struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Key       string          `json:"key"`
}

// Main serves and exits when the environment asks for it; TestMain calls it
// first.
func Main() {
	if os.Getenv(envServe) == "" {
		return
	}
	if err := serve(os.Getenv(envLedger)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Env is what a child needs to be this server and write to the ledger file. A
// child built with -race would sleep for a second when it ends.
func Env(ledger string) map[string]string {
	return map[string]string{envServe: "1", envLedger: ledger, "GORACE": "atexit_sleep_ms=0"}
}

// Ledger reads what was executed so far.
func Ledger(tb testing.TB, path string) []Execution {
	tb.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	var out []Execution
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e Execution
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			tb.Fatalf("ledger line %q: %v", lines.Text(), err)
		}
		out = append(out, e)
	}
	return out
}

// Count returns how often tool ran with arguments that contain part.
func Count(tb testing.TB, path, tool, part string) int {
	tb.Helper()
	n := 0
	for _, e := range Ledger(tb, path) {
		if e.Tool == tool && strings.Contains(string(e.Arguments), part) {
			n++
		}
	}
	return n
}

type tools struct{ ledger string }

func serve(ledger string) error {
	s := server.NewMCPServer("orders", "1", server.WithToolCapabilities(true))
	h := tools{ledger: ledger}
	cancelSchema := `{"type":"object","properties":{"order_id":{"type":"string"},"reason":{"type":"string"}},"required":["order_id"],"additionalProperties":true}`
	if path := os.Getenv(EnvSchema); path != "" {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		cancelSchema = string(raw)
	}
	add := func(name, schema string, run server.ToolHandlerFunc) {
		s.AddTool(mcpgo.NewToolWithRawSchema(name, "Test tool "+name+".", json.RawMessage(schema)), run)
	}
	open := `{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"],"additionalProperties":true}`
	add("lookup_order", open, h.answer("looked up"))
	add("cancel_order", cancelSchema, h.answer("cancelled"))
	add("ping", `{"type":"object","properties":{}}`, h.answer("pong"))
	add("wait", `{"type":"object","properties":{"ms":{"type":"integer"}},"required":["ms"]}`, h.wait)
	add("search", `{"type":"object","properties":{"filter":{"type":"object"},"note":{"type":"string"}},"required":["filter"]}`, h.answer("found"))
	add("reveal", `{"type":"object"}`, func(context.Context, mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
		return mcpgo.NewToolResultText("the token is " + os.Getenv("SHOP_TOKEN") + "!"), nil
	})
	add("reveal_error", `{"type":"object"}`, func(context.Context, mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
		return nil, fmt.Errorf("cannot log in with %s", os.Getenv("SHOP_TOKEN"))
	})
	add("broken", `{"type":"object"}`, func(context.Context, mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
		return mcpgo.NewToolResultError("it broke"), nil
	})
	add("big", `{"type":"object"}`, func(context.Context, mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
		return mcpgo.NewToolResultText(strings.Repeat("x", 3<<20)), nil
	})
	add("die", `{"type":"object"}`, func(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
		if err := h.record(r); err != nil {
			return nil, err
		}
		os.Exit(7)
		return nil, nil
	})
	return server.ServeStdio(s, server.WithWorkerPoolSize(64))
}

// answer records the call and repeats its arguments.
func (h tools) answer(did string) server.ToolHandlerFunc {
	return func(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
		if err := h.record(r); err != nil {
			return nil, err
		}
		return mcpgo.NewToolResultText(did + " " + string(r.Params.RawArguments)), nil
	}
}

// wait has its effect at once and answers later.
func (h tools) wait(ctx context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
	if err := h.record(r); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Duration(r.GetInt("ms", 0)) * time.Millisecond):
		return mcpgo.NewToolResultText("waited"), nil
	}
}

func (h tools) record(r mcpgo.CallToolRequest) error {
	e := Execution{Tool: r.Params.Name, Arguments: r.Params.RawArguments}
	if len(e.Arguments) == 0 {
		e.Arguments = json.RawMessage(`{}`)
	}
	if r.Params.Meta != nil {
		if key, ok := r.Params.Meta.AdditionalFields["agentos/idempotency_key"].(string); ok {
			e.Key = key
		}
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(h.ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}
