package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"agentos/internal/clock"
)

// wired is a proxy between a client and a server that the test plays.
type wired struct {
	t      *testing.T
	dir    Dir
	killed chan struct{}
	client io.WriteCloser // the client's output
	seen   *bufio.Reader  // what the client gets
	server io.WriteCloser // the server's output
	got    *bufio.Reader  // what the server gets
	done   chan error
}

func wire(t *testing.T) *wired {
	t.Helper()
	w := &wired{t: t, dir: Dir{Path: t.TempDir()}, killed: make(chan struct{}, 1), done: make(chan error, 1)}
	clientIn, client := io.Pipe()
	seen, clientOut := io.Pipe()
	serverIn, server := io.Pipe()
	got, serverOut := io.Pipe()
	w.client, w.server = client, server
	w.seen, w.got = bufio.NewReader(seen), bufio.NewReader(got)
	p := &Proxy{Dir: w.dir, Alias: "orders", Clock: clock.System{}, Kill: func() error {
		w.killed <- struct{}{}
		return nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	go func() { w.done <- p.Run(ctx, clientIn, clientOut, serverIn, serverOut) }()
	t.Cleanup(func() {
		stop()
		for _, c := range []io.Closer{client, seen, server, got} {
			_ = c.Close()
		}
	})
	return w
}

// pass sends a line and returns it as the other side reads it.
func pass(t *testing.T, to io.Writer, from *bufio.Reader, line string) string {
	t.Helper()
	if _, err := io.WriteString(to, line+"\n"); err != nil {
		t.Fatal(err)
	}
	out, err := from.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(out, "\n")
}

const (
	callLine   = `{"jsonrpc":"2.0", "id":7,"method":"tools/call","params":{"name":"cancel_order","arguments":{"n":12345678901234567890},"_meta":{"agentos/idempotency_key":"r_1/call_1"}}}`
	answerLine = `{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`
)

// Every line passes as it is, and a call is noted before the server has it.
func TestProxyPassesAndCounts(t *testing.T) {
	t.Parallel()
	w := wire(t)
	for _, line := range []string{`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, `no JSON at all`, `[]`} {
		if got := pass(t, w.client, w.got, line); got != line {
			t.Errorf("to the server: %s, want %s", got, line)
		}
	}
	if got := pass(t, w.client, w.got, callLine); got != callLine {
		t.Errorf("the call arrived as %s", got)
	}
	calls, err := w.dir.Calls()
	if err != nil || len(calls) != 1 || calls[0].Tool != "cancel_order" || calls[0].Key != "r_1/call_1" || string(calls[0].Arguments) != `{"n":12345678901234567890}` || calls[0].Server != "orders" {
		t.Errorf("noted %+v, %v", calls, err)
	}
	for _, line := range []string{`{"jsonrpc":"2.0","method":"notifications/message"}`, `banner`, answerLine} {
		if got := pass(t, w.server, w.seen, line); got != line {
			t.Errorf("to the client: %s, want %s", got, line)
		}
	}
	batch := `[` + callLine + `,` + callLine + `]`
	if got := pass(t, w.client, w.got, batch); got != batch {
		t.Errorf("the batch arrived as %s", got)
	}
	if calls, err := w.dir.Calls(); err != nil || len(calls) != 3 {
		t.Errorf("noted %d calls, want 3; %v", len(calls), err)
	}
	// The client goes, then the server.
	if err := w.client.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.got.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the server's input ends with %v", err)
	}
	if err := w.server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-w.done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// The faults around a call come after the tool's effect and before its answer.
func TestProxyFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]armed{"drop": {Kind: FaultDrop}, "kill": killAt("during:call")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wire(t)
			pass(t, w.client, w.got, callLine)
			if err := w.dir.arm(fault); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w.server, answerLine+"\n"); err != nil {
				t.Fatal(err)
			}
			if err := <-w.done; !errors.Is(err, ErrFault) {
				t.Fatalf("Run: %v, want the fault", err)
			}
			if killed := len(w.killed) == 1; killed != (fault.Kind == FaultKill) {
				t.Errorf("client killed: %t", killed)
			}
			lost, err := readLines[Execution](w.dir, lostFile)
			if err != nil || (len(lost) == 1) != (fault.Kind == FaultDrop) {
				t.Errorf("lost %v, %v", lost, err)
			}
			if fired, err := w.dir.disarm(); err != nil || !fired {
				t.Errorf("fired: %t, %v", fired, err)
			}
		})
	}
}

// A changed tool is announced and shown differently each time; the rest of the
// list keeps its bytes.
func TestProxyChangesATool(t *testing.T) {
	t.Parallel()
	w := wire(t)
	list := func(id string) string {
		pass(t, w.client, w.got, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/list"}`)
		return pass(t, w.server, w.seen, `{"jsonrpc":"2.0","id":`+id+`,"result":{"tools":[{"name":"a","x":1.0},{"name":"b","description":"B"}],"nextCursor":"n"}}`)
	}
	if got := list("1"); strings.Contains(got, "conformance") {
		t.Fatalf("changed too early: %s", got)
	}
	for n, want := range []string{
		`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a","x":1.0},{"name":"b","description":"B (Change 1 of the conformance kit.)"}],"nextCursor":"n"}}`,
		`{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"a","x":1.0},{"name":"b","description":"B (Change 2 of the conformance kit.)"}],"nextCursor":"n"}}`,
	} {
		if err := w.dir.arm(armed{Kind: FaultChangeTool, Server: "orders", Tool: "b"}); err != nil {
			t.Fatal(err)
		}
		news, err := w.seen.ReadString('\n')
		if err != nil || !strings.Contains(news, `"notifications/tools/list_changed"`) {
			t.Fatalf("announced %q, %v", news, err)
		}
		if got := list(string(rune('2' + n))); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestChangeToolsLeavesOddListsAlone(t *testing.T) {
	t.Parallel()
	for _, line := range []string{`{"id":1,"result":{}}`, `{"id":1,"result":{"tools":5}}`} {
		result := messages([]byte(line))[0].Result
		if got := changeTools(json.RawMessage(line), result, map[string]int{"a": 1}); string(got) != line {
			t.Errorf("got %s, want %s", got, line)
		}
	}
}
