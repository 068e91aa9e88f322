package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"agentos/internal/rawjson"
)

func callMessage(id int, tool, key, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"agentos/idempotency_key":%q}}}`, id, tool, args, key)
}

// The stdio server is this test's own binary: what runs beside a worker.
func TestStdioTools(t *testing.T) {
	t.Parallel()
	l := ledger{path: filepath.Join(t.TempDir(), "ledger")}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, stdioTools, l.path)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	replies := json.NewDecoder(out)
	ask := func(msg string) json.RawMessage {
		t.Helper()
		if _, err := io.WriteString(in, msg+"\n"); err != nil {
			t.Fatal(err)
		}
		var reply json.RawMessage
		if err := replies.Decode(&reply); err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if r := ask(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`); !strings.Contains(string(r), "2025-06-18") {
		t.Errorf("initialize: %s", r)
	}
	if r := ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); strings.Count(string(r), `"inputSchema"`) != len(toolNames) {
		t.Errorf("tools/list: %s", r)
	}
	args := `{"b":9007199254740993123,"ref":"<&>","a":1.0}`
	reply := ask(callMessage(3, "charge", "r_1/call_1", args))
	ask(callMessage(4, "flaky", "r_1/call_2", `{"ref":"x","fail":"protocol"}`))
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	marks, err := l.read()
	if err != nil {
		t.Fatal(err)
	}
	m := marks["r_1/call_1"]
	if len(m) != 2 || m[0].Event != "start" || m[1].Event != "end" || m[0].Arguments != args || m[0].Tool != "charge" || m[0].PID != cmd.Process.Pid {
		t.Fatalf("the ledger has %+v", m)
	}
	if !strings.Contains(string(reply), executionText(m[0].ID)) {
		t.Errorf("the result does not name its execution: %s", reply)
	}
	if len(starts(marks["r_1/call_2"])) != 1 {
		t.Errorf("a failing tool has its effect too: %+v", marks["r_1/call_2"])
	}
}

func TestHTTPTools(t *testing.T) {
	t.Parallel()
	srv := toolServer{ledger: ledger{path: filepath.Join(t.TempDir(), "ledger")}, session: "s1"}
	for _, c := range []struct {
		method, session, body string
		want                  int
	}{
		{http.MethodPost, "", `{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, http.StatusOK},
		{http.MethodPost, "s1", `{"method":"notifications/initialized"}`, http.StatusAccepted},
		{http.MethodPost, "s1", callMessage(2, "set", "r_1/call_1", `{"ref":"x"}`), http.StatusOK},
		{http.MethodPost, "s0", callMessage(3, "set", "r_1/call_2", `{"ref":"x"}`), http.StatusNotFound},
		{http.MethodGet, "s1", ``, http.StatusMethodNotAllowed},
		{http.MethodDelete, "s1", ``, http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "/mcp", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Mcp-Session-Id", c.session)
		w := &answer{header: http.Header{}, code: http.StatusOK}
		srv.handle(w, req)
		if w.code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.body, w.code, c.want)
		}
	}
	marks, err := srv.ledger.read()
	if err != nil {
		t.Fatal(err)
	}
	if len(marks["r_1/call_1"]) != 2 || len(marks) != 1 {
		t.Errorf("a call with a lost session must have no effect: %+v", marks)
	}
}

type answer struct {
	header http.Header
	code   int
	body   []byte
}

func (a *answer) Header() http.Header { return a.header }
func (a *answer) WriteHeader(c int)   { a.code = c }
func (a *answer) Write(p []byte) (int, error) {
	a.body = append(a.body, p...)
	return len(p), nil
}

func TestToolErrors(t *testing.T) {
	t.Parallel()
	srv := toolServer{ledger: ledger{path: filepath.Join(t.TempDir(), "ledger")}}
	isError := func(args string) string {
		reply := srv.answer(context.Background(), json.RawMessage(callMessage(1, "flaky", "k", args)))
		return string(rawjson.Get(rawjson.Get(reply, "result"), "isError"))
	}
	if got := isError(`{"ref":"x","fail":"tool"}`); got != "true" {
		t.Errorf("isError is %q", got)
	}
	if got := isError(`{"ref":"x"}`); got != "false" {
		t.Errorf("isError is %q", got)
	}
	srv.ledger.path = t.TempDir() // cannot be written
	reply := srv.answer(context.Background(), json.RawMessage(callMessage(1, "set", "k", `{}`)))
	if rawjson.Get(reply, "error") == nil {
		t.Errorf("an effect that is not in the ledger must not be answered with success: %s", reply)
	}
}

func TestLedgerKeepsLinesWhole(t *testing.T) {
	t.Parallel()
	l := ledger{path: filepath.Join(t.TempDir(), "ledger")}
	if marks, err := l.read(); err != nil || len(marks) != 0 {
		t.Fatalf("no file: %v, %v", marks, err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 10 {
				if err := l.write(mark{Event: "start", Key: strconv.Itoa(i), Arguments: strings.Repeat("é", 500)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	marks, err := l.read()
	if err != nil || len(marks) != 8 || len(marks["3"]) != 10 {
		t.Errorf("read %d keys, %v", len(marks), err)
	}
	if err := os.WriteFile(l.path, []byte(`{"event":"sta`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.read(); err == nil {
		t.Error("half a line was read without complaint")
	}
}
