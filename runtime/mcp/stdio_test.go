package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/capabilities"
)

// modes are the servers that a child can play.
var modes = map[string]func(*child){
	"standard":      func(c *child) { c.loop(nil) },
	"banner":        playBanner,
	"sizes":         playSizes,
	"dies":          playDies,
	"dies_in_call":  playDiesInCall,
	"dies_after":    playDiesAfter,
	"deaf":          playDeaf,
	"stubborn":      playStubborn,
	"grandchild":    playGrandchild,
	"env":           playEnv,
	"noise":         playNoise,
	"asks":          playAsks,
	"ids":           playIDs,
	"slow":          playSlow,
	"secret":        playSecret,
	"closes_output": playClosesOutput,
	"closes_input":  playClosesInput,
	"chatty":        playChatty,
	"hangs_start":   playHangsStart,
	"paged":         playPaged,
	"changing":      playChanging,
	"listed":        playListed,
	"shuffled":      playShuffled,
	"impostor":      playImpostor,
	"shapes":        playShapes,
	"library":       playLibrary,
	"parent":        playParent,
}

func TestStdioConnectAndCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "standard")
	r.open().mustConnect()
	st := r.Status()[0]
	if st.ProtocolVersion != "2025-11-25" || st.ToolCount != 2 || st.ServerInfo == nil || st.ServerInfo.Name != "scripted" {
		t.Errorf("status = %+v", st)
	}
	args := `{"z":12345678901234567890,"text":"<&> é😀 \u0000","a":1.0}`
	if got := r.call("s", "echo", args); got.Outcome != Success || got.Text != args {
		t.Errorf("echo = %+v", got)
	}
	if got := r.call("s", "write", `{"a":1}`); got.Outcome != Success || got.Text != "written" {
		t.Errorf("write = %+v", got)
	}
	if got := r.executions(); len(got) != 1 || got[0] != `r_1/call_1 {"a":1}` {
		t.Errorf("ledger = %q", got)
	}
	if got := r.call("s", "nothing", `{}`); got.Outcome != Error || got.ErrorCode != CodeToolGone {
		t.Errorf("unknown tool = %+v", got)
	}
	if got := r.call("elsewhere", "echo", `{}`); got.Outcome != Error {
		t.Errorf("unknown server = %+v", got)
	}
}

// playBanner talks before the protocol, floods stderr and ignores what it does
// not know.
func playBanner(c *child) {
	c.print("Starting server...\n\x1b[32mlistening\x1b[0m\n")
	fmt.Fprint(os.Stderr, strings.Repeat(strings.Repeat("e", 1023)+"\n", 1024))
	c.loop(nil)
}

// C21: banner on stdout, 1 MB on stderr, unknown methods ignored.
func TestBannerAndStderrFlood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "banner")
	began := time.Now()
	r.open().mustConnect()
	// A client that first asks for what the server ignores waits 5 s; the rest is
	// room for the race detector on a busy machine (it takes some 30 ms).
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("connecting took %s", took)
	}
	if got := r.call("s", "echo", `{}`); got.Text != "{}" {
		t.Errorf("echo = %+v", got)
	}
	if !strings.Contains(r.log.String(), "Starting server...") {
		t.Error("the banner was not logged")
	}
}

// playSizes answers with as many bytes as the arguments say.
func playSizes(c *child) {
	c.loop(func(m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		var args struct {
			N    int    `json:"n"`
			Form string `json:"form"`
		}
		_, raw, _ := m.call()
		_ = json.Unmarshal(raw, &args)
		ledger(args.Form, raw)
		chunk := strings.Repeat("x", 1<<20)
		head, tail := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID), `"}]}}`
		if args.Form == "id last" {
			head, tail = `{"result":{"content":[{"type":"text","text":"`, fmt.Sprintf(`"}]},"jsonrpc":"2.0","id":%s}`, m.ID)
		}
		c.print("%s", head)
		for left := args.N; left > 0; left -= len(chunk) {
			c.print("%s", chunk[:min(left, len(chunk))])
		}
		c.print("%s\n", tail)
		return true
	})
}

// C21, C34, B25: large answers. One over the message limit fails its own call
// only.
func TestAnswerSizes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "sizes")
	r.open().mustConnect()
	for _, n := range []int{70 << 10, 256 << 10} {
		if got := r.call("s", "echo", fmt.Sprintf(`{"n":%d}`, n)); got.Outcome != Success || len(got.Text) != n || got.Truncated {
			t.Errorf("%d bytes: %s, %d bytes, truncated %v", n, got.Outcome, len(got.Text), got.Truncated)
		}
	}
	for _, n := range []int{1 << 20, 3 << 20, 5 << 20} {
		got := r.call("s", "echo", fmt.Sprintf(`{"n":%d}`, n))
		if got.Outcome != Success || !got.Truncated || len(got.Text) > MaxText+300 {
			t.Errorf("%d bytes: %s, %d bytes, truncated %v", n, got.Outcome, len(got.Text), got.Truncated)
		}
		if want := fmt.Sprintf("it has %d bytes and the first %d are shown", n, MaxText); !strings.Contains(got.Text, want) {
			t.Errorf("notice = %q, want %q", got.Text[len(got.Text)-200:], want)
		}
	}
	for _, form := range []string{"id first", "id last"} {
		got := r.callAs(Read, "s", "echo", fmt.Sprintf(`{"n":%d,"form":%q}`, 200<<20, form))
		if got.Outcome != Error || got.ErrorCode != CodeInvalidResult || !strings.Contains(got.Text, "limit") {
			t.Errorf("200 MB, %s: %+v", form, got)
		}
	}
	if got := r.call("s", "echo", `{"n":3}`); got.Text != "xxx" || r.Status()[0].Reconnects != 0 {
		t.Errorf("after it: %+v, reconnects %d", got, r.Status()[0].Reconnects)
	}
	if n := len(r.executions()); n != 8 {
		t.Errorf("%d executions, want 8: a call that was answered is never sent again", n)
	}
}

func playDies(*child) {
	fmt.Fprintln(os.Stderr, "loading configuration")
	fmt.Fprintln(os.Stderr, "\x1b[31mboom: no database at hunter2-hunter2\x1b[0m")
	os.Exit(7)
}

// C22, C36: the first real cause of a failed start is shown, without secrets.
func TestDeadAtStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Redact = redactor("db_password", "hunter2-hunter2")
	r.child("dies", "dies")
	r.child("hangs", "hangs_start").ConnectTimeout = 3 * time.Second
	r.child("missing", "").Command = []string{"no-such-server-anywhere"}
	plain := r.child("plain", "")
	plain.Command, plain.Cwd = []string{"./stdio_test.go"}, mustCwd(t)
	r.open()
	want := map[string][]string{
		"dies":    {"status 7", "boom: no database at [secret:db_password]"},
		"hangs":   {"connect_timeout of 3s expired", "waiting for the tea"},
		"missing": {`"no-such-server-anywhere" not found`, "PATH"},
		"plain":   {"may not be executed"},
	}
	for _, s := range r.Status() {
		for _, w := range want[s.Name] {
			if s.Status != Failed || !strings.Contains(s.Error, w) {
				t.Errorf("%s: %s %q, want %q", s.Name, s.Status, s.Error, w)
			}
		}
	}
	got := r.call("missing", "x", `{}`)
	if got.Outcome != Error || got.ErrorCode != "mcp_unavailable" || !strings.Contains(got.Text, "not found") {
		t.Errorf("call = %+v", got)
	}
}

func mustCwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func redactor(name, value string) func(string) string {
	return strings.NewReplacer(value, "[secret:"+name+"]").Replace
}

func playHangsStart(*child) {
	fmt.Fprintln(os.Stderr, "waiting for the tea")
	hang()
}

// playDiesInCall writes its ledger and dies before the answer, as long as the
// ledger has fewer lines than MCP_TEST_DEATHS says.
func playDiesInCall(c *child) {
	deaths, _ := strconv.Atoi(os.Getenv("MCP_TEST_DEATHS"))
	c.loop(func(m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		_, args, key := m.call()
		ledger(key, args)
		b, _ := os.ReadFile(os.Getenv("MCP_TEST_LEDGER"))
		if bytes.Count(b, []byte("\n")) <= deaths {
			fmt.Fprintln(os.Stderr, "segfault")
			os.Exit(9)
		}
		c.result(m.ID, text("alive"))
		return true
	})
}

// C22: a process that dies during a call. Once: unknown and never again. Read
// and idempotent: sent again with the same key, a bounded number of times.
func TestDeathDuringCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		effect     Effect
		deaths     int
		outcome    Outcome
		text       string
		executions int
		reconnects int
	}{
		{"once", Once, 1, Unknown, "status 9; its last words: segfault", 1, 0},
		{"no class is once", "", 1, Unknown, "Nobody knows", 1, 0},
		{"read", Read, 1, Success, "alive", 2, 1},
		{"idempotent", Idempotent, 2, Success, "alive", 3, 2},
		{"read, too often", Read, 9, Unknown, "Nobody knows", 3, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.child("s", "dies_in_call").Env["MCP_TEST_DEATHS"] = strconv.Itoa(c.deaths)
			r.open().mustConnect()
			got := r.callAs(c.effect, "s", "write", `{"n":1}`)
			if got.Outcome != c.outcome || !strings.Contains(got.Text, c.text) || got.Reconnects != c.reconnects {
				t.Errorf("call = %+v", got)
			}
			lines := r.executions()
			if len(lines) != c.executions || slices.ContainsFunc(lines, func(l string) bool { return l != `r_1/call_1 {"n":1}` }) {
				t.Errorf("ledger = %q", lines)
			}
		})
	}
}

// playDiesAfter answers one call and leaves.
func playDiesAfter(c *child) {
	c.loop(func(m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		c.result(m.ID, text("bye"))
		os.Exit(0)
		return true
	})
}

// A connection lost between calls is opened again by the next one, and counted.
func TestReconnectBetweenCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "dies_after")
	r.open().mustConnect()
	if got := r.call("s", "echo", `{}`); got.Text != "bye" || got.Reconnects != 0 {
		t.Errorf("first = %+v", got)
	}
	eventually(t, "the loss is noticed", func() bool { return r.Status()[0].Status == Disconnected })
	if st := r.Status()[0]; st.ToolCount != 2 || !strings.Contains(st.Error, "status 0") {
		t.Errorf("while disconnected: %+v", st)
	}
	if got := r.names(); len(got) != 2 {
		t.Errorf("tools while disconnected = %v", got)
	}
	if got := r.call("s", "echo", `{}`); got.Text != "bye" || got.Reconnects != 1 {
		t.Errorf("second = %+v", got)
	}
	if n := r.Status()[0].Reconnects; n != 1 {
		t.Errorf("reconnects = %d", n)
	}
}

// playDeaf stops reading after the first tool list; the next process is well.
func playDeaf(c *child) {
	marker := filepath.Join(os.Getenv("MCP_TEST_DIR"), "was-deaf")
	_, err := os.Stat(marker)
	deaf := err != nil
	_ = os.WriteFile(marker, nil, 0o600)
	c.loop(func(m msg) bool {
		if m.Method == "tools/list" && deaf {
			c.result(m.ID, standard(m, c.tools))
			hang()
		}
		return false
	})
}

// C22, B25: a server that stops reading. The call ends by its deadline, a
// sibling is not delayed, and a connection with half a message is replaced.
func TestDeafServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		size int
		text string
	}{
		{"message does not fit the pipe", 200 << 10, "told to stop"},
		{"message fits the pipe", 10, "told to stop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.child("deaf", "deaf").CallTimeout = 1500 * time.Millisecond
			r.child("well", "standard")
			r.open().mustConnect()
			args := fmt.Sprintf(`{"text":%q}`, strings.Repeat("y", c.size))
			var wg sync.WaitGroup
			wg.Go(func() {
				began := time.Now()
				got := r.call("deaf", "echo", args)
				if got.Outcome != Timeout || got.MCPError != -32001 || !strings.HasPrefix(got.Text, "MCP error -32001: ") || !strings.Contains(got.Text, c.text) {
					t.Errorf("deaf = %+v", got)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("the call took %s", took)
				}
			})
			began := time.Now()
			if got := r.call("well", "echo", args); got.Text != args {
				t.Errorf("sibling = %.100q", got.Text)
			}
			if took := time.Since(began); took > 1200*time.Millisecond {
				t.Errorf("the sibling took %s", took)
			}
			wg.Wait()
			if c.size < 1000 {
				return
			}
			if got := r.call("deaf", "echo", args); got.Outcome != Success || got.Text != args || got.Reconnects != 1 {
				t.Errorf("after replacement: %s %.100q %d", got.Outcome, got.Text, got.Reconnects)
			}
		})
	}
}

func TestCommandStandsForBinary(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Binary = os.Args[0]
	r.child("s", "standard").Command = []string{"${agentos}", "-x"}
	r.open().mustConnect()
}

func TestSecretThatCannotBeResolved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Resolve = func(s string) (string, error) {
		if strings.Contains(s, "${secrets.") {
			return "", errors.New("secret token has no value")
		}
		return s, nil
	}
	r.child("s", "standard").Env["TOKEN"] = "${secrets.token}"
	r.open()
	if st := r.Status()[0]; st.Status != Failed || st.Error != "env TOKEN: secret token has no value" {
		t.Errorf("status = %+v", st)
	}
}

// playNoise prints everything that is JSON and no message.
func playNoise(c *child) {
	noise := "{\"level\":\"info\",\"msg\":\"up\"}\n[]\nnull\n\"x\"\n12\n{\"jsonrpc\":\"2.0\"}\n{\"id\":1}\n{\"id\":2}\n{\"id\":3,\"result\":{}}\n\n\r\n"
	c.print("\xef\xbb\xbf%s", noise)
	n := 0
	c.loop(func(m msg) bool {
		r := standard(m, c.tools)
		if r == "" {
			return true
		}
		c.print("%s", noise)
		if n++; n%2 == 0 {
			c.print("loading... 12%%")
		}
		c.print(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\r\n", m.ID, r)
		return true
	})
}

// B26: log lines that are valid JSON, and text glued to an answer.
func TestNoiseOnStdout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "noise")
	r.open().mustConnect()
	for i := range 6 {
		args := fmt.Sprintf(`{"text":"%d"}`, i)
		if got := r.call("s", "echo", args); got.Text != args || got.Outcome != Success {
			t.Fatalf("call %d = %+v", i, got)
		}
	}
	if r.Status()[0].Reconnects != 0 {
		t.Error("the connection did not survive")
	}
	if log := r.log.String(); !strings.Contains(log, "mcp_stdout_line_skipped") || !strings.Contains(log, "level") {
		t.Error("the noise was not logged")
	}
}

// playAsks asks the client during a call, with ids of its own space, and answers
// with what it was told.
func playAsks(c *child) {
	c.loop(func(m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		for range 500 {
			c.print(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"unknown","progress":1}}` + "\n")
		}
		var told []string
		for _, id := range []string{string(m.ID), `"s-1"`} {
			for _, method := range []string{"ping", "roots/list", "sampling/createMessage", "foo/bar", "elicitation/create"} {
				c.print(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{}}`+"\n", id, method)
				reply, _ := c.next()
				if string(reply.ID) != id {
					told = append(told, "wrong id "+string(reply.ID))
				}
				told = append(told, method+" "+string(reply.Result)+string(reply.Error))
			}
		}
		_, args, key := m.call()
		ledger(key, args)
		c.result(m.ID, text(strings.Join(told, "\n")))
		return true
	})
}

// wantTold is what a server is told when it asks.
func wantTold() string {
	var want []string
	for range 2 {
		want = append(want, "ping {}")
		for _, method := range []string{"roots/list", "sampling/createMessage", "foo/bar", "elicitation/create"} {
			want = append(want, fmt.Sprintf(`%s {"code":-32601,"message":"this client does not offer \"%s\""}`, method, method))
		}
	}
	return strings.Join(want, "\n")
}

// B29: a server that asks while our call is open gets its answers.
func TestServerAsksOverStdio(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "asks")
	r.open().mustConnect()
	if got := r.call("s", "write", `{}`); got.Outcome != Success || got.Text != wantTold() {
		t.Errorf("told = %s\nwant %s", got.Text, wantTold())
	}
	if n := len(r.executions()); n != 1 {
		t.Errorf("%d executions", n)
	}
}

// playIDs changes the ids of its answers.
func playIDs(c *child) {
	form := os.Getenv("MCP_TEST_FORM")
	c.loop(func(m msg) bool {
		r := standard(m, c.tools)
		if r == "" {
			return true
		}
		switch {
		case form == "string":
			c.result(json.RawMessage(`"`+string(m.ID)+`"`), r)
		case form == "float":
			c.result(json.RawMessage(string(m.ID)+".0"), r)
		case m.Method != "tools/call":
			return false
		case form == "null":
			c.print(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot read that"}}` + "\n")
		case form == "unknown":
			c.result(json.RawMessage(`4711`), text("wrong"))
			c.result(json.RawMessage(`"4711"`), text("wrong"))
			c.result(json.RawMessage(`true`), text("wrong"))
			c.result(m.ID, text("right"))
		}
		return true
	})
}

// B30: ids of another JSON type, without a value, or of nobody.
func TestAnswerIDs(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{"string": "{}", "float": "{}", "null": "MCP error -32700: cannot read that", "unknown": "right"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.child("s", "ids").Env["MCP_TEST_FORM"] = form
			r.open().mustConnect()
			began := time.Now()
			if got := r.call("s", "echo", `{}`); got.Text != want || time.Since(began) > 3*time.Second {
				t.Errorf("call = %+v after %s", got, time.Since(began))
			}
		})
	}
}

// playSlow never answers a call and records what it is told afterwards.
func playSlow(c *child) {
	c.loop(func(m msg) bool {
		switch m.Method {
		case "tools/call":
			ledger("called", m.ID)
			return true
		case "notifications/cancelled":
			ledger("cancelled", m.Params)
		}
		return false
	})
}

// The end of call_timeout is an outcome of its own, the end of the caller is
// unknown; the server is told in both cases.
func TestTimeoutAndCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "slow").CallTimeout = 300 * time.Millisecond
	r.open().mustConnect()
	got := r.callAs(Read, "s", "echo", `{}`)
	if got.Outcome != Timeout || got.MCPError != -32001 || got.ErrorCode != "timeout" ||
		!strings.HasPrefix(got.Text, "MCP error -32001: call_timeout of 300ms expired") || string(got.Structured) != `{"mcp_error":-32001}` {
		t.Errorf("timeout = %+v", got)
	}
	eventually(t, "the cancellation arrived", func() bool { return len(r.executions()) == 2 })
	r.cfg.Servers["s"].CallTimeout = time.Minute
	ctx, cancel := context.WithCancelCause(r.ctx())
	done := make(chan Result)
	go func() { done <- r.Call(ctx, CallRequest{Server: "s", Tool: "echo", Effect: Read}) }()
	eventually(t, "the second call arrived", func() bool { return len(r.executions()) == 3 })
	cancel(errors.New("the run was cancelled"))
	if got := <-done; got.Outcome != Unknown || !strings.Contains(got.Text, "the run was cancelled") {
		t.Errorf("cancelled = %+v", got)
	}
	eventually(t, "both cancellations arrived", func() bool { return len(r.executions()) == 4 })
	want := []string{
		"called 3", `cancelled {"requestId":3,"reason":"call_timeout expired"}`,
		"called 4", `cancelled {"requestId":4,"reason":"the run was cancelled"}`,
	}
	if got := r.executions(); !slices.Equal(got, want) {
		t.Errorf("server saw %q, want %q", got, want)
	}
	if got := r.Call(ctx, CallRequest{Server: "s", Tool: "echo"}); got.Outcome != Error || len(r.executions()) != 4 {
		t.Errorf("a call of one who gave up before = %+v", got)
	}
}

// playChatty writes 200 KB before it reads again.
func playChatty(c *child) {
	c.loop(func(m msg) bool {
		if m.Method != "tools/list" {
			return false
		}
		c.result(m.ID, standard(m, c.tools))
		for range 2000 {
			c.print(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`+"\n", strings.Repeat("n", 40))
		}
		return true
	})
}

// B25: large arguments to a server that writes before it reads.
func TestLargeArguments(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.child("s", "chatty")
	r.open().mustConnect()
	args := fmt.Sprintf(`{"reason":%q}`, strings.Repeat("r", 200<<10))
	if got := r.call("s", "echo", args); got.Text != args {
		t.Errorf("%d bytes came back of %d", len(got.Text), len(args))
	}
}

func playSecret(c *child) {
	c.loop(func(m msg) bool {
		if m.Method != "tools/call" {
			return false
		}
		name, _, _ := m.call()
		if name == "write" {
			c.print(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"bad key top-secret","data":{"key":"top-secret","pin":987654321}}}`+"\n", m.ID)
			return true
		}
		c.result(m.ID, `{"content":[{"type":"text","text":"the key is top-secret"}],"structuredContent":{"key":"top-\u0073ecret","pin":987654321,"top-secret":1}}`)
		return true
	})
}

// C36, C26: a secret in results and errors, also behind an escape, as a number
// and as a name.
func TestSecretsInResults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.cfg.Redact = strings.NewReplacer("top-secret", "[secret:key]", "987654321", "[secret:pin]").Replace
	r.child("s", "secret")
	r.open().mustConnect()
	ok := r.call("s", "echo", `{}`)
	if want := `{"structuredContent":{"key":"[secret:key]","pin":"[secret:pin]","[secret:key]":1},"content":[{"type":"text","text":"the key is [secret:key]"}]}`; ok.Text != want {
		t.Errorf("text = %s", ok.Text)
	}
	if want := `{"key":"[secret:key]","pin":"[secret:pin]","[secret:key]":1}`; string(ok.Structured) != want {
		t.Errorf("structured = %s", ok.Structured)
	}
	bad := r.call("s", "write", `{}`)
	if want := "MCP error -32001: bad key [secret:key]\n" + `{"key":"[secret:key]","pin":"[secret:pin]"}`; bad.Text != want || bad.Outcome != Error || bad.MCPError != -32001 {
		t.Errorf("error = %+v", bad)
	}
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	good := func() *capabilities.Server {
		return &capabilities.Server{Command: []string{"x"}, ConnectTimeout: time.Second, CallTimeout: time.Second}
	}
	for want, change := range map[string]func(*capabilities.Server){
		"either command or url":   func(s *capabilities.Server) { s.URL = "http://x" },
		"must be more than 0":     func(s *capabilities.Server) { s.CallTimeout = 0 },
		"not spoken here":         func(s *capabilities.Server) { s.ProtocolVersion = "2026-07-28" },
		"repeat calls":            func(s *capabilities.Server) { s.Headers = map[string]string{"idempotency-key": "x"} },
		"sets this header":        func(s *capabilities.Server) { s.Headers = map[string]string{"MCP-Session-Id": "x"} },
		"sets this header itself": func(s *capabilities.Server) { s.Headers = map[string]string{"accept": "x"} },
	} {
		r := newRig(t)
		s := good()
		change(s)
		r.cfg.Servers["s"] = s
		if _, err := Open(r.ctx(), r.cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, want %q", err, want)
		}
	}
	r := newRig(t)
	r.cfg.Clock = nil
	if _, err := Open(r.ctx(), r.cfg); err == nil {
		t.Error("Open took a config without a clock")
	}
}
