package scenario_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"
	"time"

	"agentos/bench/scenario"
	"agentos/internal/rawjson"
)

// The conversation is the one of docs/performance.md, and text that does not shrink
// to nothing.
func TestWords(t *testing.T) {
	t.Parallel()
	if s, u := len(scenario.System()), len(scenario.User()); s != scenario.SystemChars || u != scenario.UserChars {
		t.Errorf("%d and %d characters", s, u)
	}
	first, again := scenario.Words(1, 500), scenario.Words(1, 500)
	if first != again || first == scenario.Words(2, 500) {
		t.Error("the words must follow from the seed")
	}
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	_, err := w.Write([]byte(scenario.System()))
	if err := errors.Join(err, w.Close()); err != nil || small.Len() < scenario.SystemChars/2 {
		t.Errorf("%d bytes compressed: %v", small.Len(), err)
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	asks, says := scenario.Asks(scenario.GatedTool), scenario.Says(`a "quote"`)
	if err := errors.Join(rawjson.Check(asks), rawjson.Check(says)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(asks, []byte(`"name":"cancel_order"`)) || !bytes.Contains(says, []byte(`a \"quote\"`)) {
		t.Errorf("%s\n%s", asks, says)
	}
}

// talk sends lines to the tool and returns its answers.
func talk(t *testing.T, lines ...string) []string {
	t.Helper()
	var out strings.Builder
	if err := scenario.ServeTool(strings.NewReader(strings.Join(lines, "\n")+"\n"), &out); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestServeTool(t *testing.T) {
	t.Parallel()
	got := talk(t,
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait_for_order"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`,
	)
	for i, want := range []string{`"protocolVersion":"2025-06-18"`, `"id":"a","result":{"tools":[`, `{"jsonrpc":"2.0","id":3,"result":{}}`} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Errorf("answer %d of %q lacks %s", i, got, want)
		}
	}
	if len(got) != 3 {
		t.Errorf("%d answers, want none to a notification and to a call that waits", len(got))
	}
}

// A result tells when its call began.
func TestStartedAt(t *testing.T) {
	t.Parallel()
	before := time.Now().UnixMicro()
	answer := talk(t, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"cancel_order"}}`)[0]
	content, err := rawjson.Elements(rawjson.Get(rawjson.Get([]byte(answer), "result"), "content"))
	if err != nil || len(content) != 1 {
		t.Fatalf("answer %s: %v", answer, err)
	}
	text, _ := rawjson.Text(rawjson.Get(content[0], "text"))
	if at, ok := scenario.StartedAt(text); !ok || at < before || at > time.Now().UnixMicro() {
		t.Errorf("the call began at %d, %t; it was sent at %d: %s", at, ok, before, text)
	}
	for _, other := range []string{"", "ok", `{"started_us":"now"}`} {
		if at, ok := scenario.StartedAt(other); ok {
			t.Errorf("%q tells %d", other, at)
		}
	}
}
