package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/api"
)

// person is a terminal whose answers are given; out is what was shown.
func person(answers string, out io.Writer, edits ...string) *terminal {
	t := &terminal{in: bufio.NewReader(strings.NewReader(answers)), out: out}
	t.edit = func(_ context.Context, text []byte) ([]byte, error) {
		if len(edits) == 0 {
			return nil, errors.New("no editor")
		}
		next := edits[0]
		edits = edits[1:]
		if next == "same" {
			return text, nil
		}
		return []byte(next), nil
	}
	return t
}

func pendingHold(kind string, actions ...string) api.Hold {
	schema := `{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"]}`
	return api.Hold{
		HoldID: "h_1_1", RunID: "r_1", Agent: "shop", Capability: "support", Status: api.HoldPending,
		Kind: kind, Intent: "Run cancel_order?", Actions: actions,
		AlreadyRan: []api.RanCall{{ID: "call_0", Server: "orders", Tool: "lookup_order", Outcome: "success", Arguments: json.RawMessage(`{"order_id":"A-1"}`)}},
		Items: []api.Item{
			{ID: "call_1", Title: "cancel_order", Server: "orders", Tool: "cancel_order", Data: json.RawMessage(`{"order_id":"A-1"}`), Schema: json.RawMessage(schema), Rules: []string{"approve:cancel_order"}, Reason: "Money is involved."},
			{ID: "call_2", Title: "decided", Data: json.RawMessage(`{}`), Decision: &api.Decision{Action: "approve"}},
		},
	}
}

func TestTerminalDecides(t *testing.T) {
	t.Parallel()
	toolCall := pendingHold("tool_call", "approve", "edit", "reject")
	unknown := pendingHold("outcome_unknown", "ran", "retry", "skip")
	for _, c := range []struct {
		name, answers string
		hold          api.Hold
		edits         []string
		want          api.ItemDecision
	}{
		{"approve", "a\n", toolCall, nil, api.ItemDecision{Action: "approve"}},
		{"whole word, any case", "APPROVE\n", toolCall, nil, api.ItemDecision{Action: "approve"}},
		{"nothing and nonsense are asked again", "\nok\nyes\na\n", toolCall, nil, api.ItemDecision{Action: "approve"}},
		{"reject with reason", "r\nIt shipped.\n", toolCall, nil, api.ItemDecision{Action: "reject", Reason: "It shipped."}},
		{
			"edit is sent compact and exact", "e\na\n", toolCall,
			[]string{"{ \"order_id\": \"A-2\",\n \"n\": 12345678901234567890 }\n"},
			api.ItemDecision{Action: "edit", Data: json.RawMessage(`{"order_id":"A-2","n":12345678901234567890}`)},
		},
		{"an edit that changes nothing is an approval", "e\na\n", toolCall, []string{"same"}, api.ItemDecision{Action: "approve"}},
		{
			"faults, then put right", "e\ny\na\n", toolCall,
			[]string{`{"order_id": 5}`, `{"order_id":"A-3"}`},
			api.ItemDecision{Action: "edit", Data: json.RawMessage(`{"order_id":"A-3"}`)},
		},
		{"no JSON, then dropped", "e\nn\na\n", toolCall, []string{`{"order_id":`}, api.ItemDecision{Action: "approve"}},
		{"duplicate names are refused", "e\nn\nr\n\n", toolCall, []string{`{"order_id":"a","order_id":"b"}`}, api.ItemDecision{Action: "reject"}},
		{
			"edited twice: the last one counts", "e\nedit\na\n", toolCall,
			[]string{`{"order_id":"A-2"}`, `{"order_id":"A-4"}`},
			api.ItemDecision{Action: "edit", Data: json.RawMessage(`{"order_id":"A-4"}`)},
		},
		{"edited back: an approval of what was proposed", "e\nedit\na\n", toolCall, []string{`{"order_id":"A-2"}`, `{"order_id":"A-1"}`}, api.ItemDecision{Action: "approve"}},
		{
			"a dropped second edit keeps the first", "e\nedit\nn\na\n", toolCall,
			[]string{`{"order_id":"A-2"}`, `[]`},
			api.ItemDecision{Action: "edit", Data: json.RawMessage(`{"order_id":"A-2"}`)},
		},
		{"an editor that fails changes nothing", "e\na\n", toolCall, nil, api.ItemDecision{Action: "approve"}},
		{"edited, then rejected", "e\nr\n\n", toolCall, []string{`{"order_id":"A-2"}`}, api.ItemDecision{Action: "reject"}},
		{"ran with JSON", "ran\n\n{\"ok\": true}\n", unknown, nil, api.ItemDecision{Action: "ran", Data: json.RawMessage(`{"ok": true}`)}},
		{"ran with text", "ran\nit is done\n", unknown, nil, api.ItemDecision{Action: "ran", Data: json.RawMessage(`"it is done"`)}},
		{"r is ambiguous", "r\nret\n", unknown, nil, api.ItemDecision{Action: "retry"}},
		{"skip", "s\n", unknown, nil, api.ItemDecision{Action: "skip"}},
		{"approve is not offered", "a\ns\n", unknown, nil, api.ItemDecision{Action: "skip"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			got, err := person(c.answers, &out, c.edits...).decide(t.Context(), c.hold)
			if err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			c.want.ID = "call_1"
			if diff := cmp.Diff([]api.ItemDecision{c.want}, got); diff != "" {
				t.Errorf("(-want +got)\n%s\n%s", diff, &out)
			}
		})
	}
}

func TestTerminalLeavesTheHold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, answers string
	}{
		{"quit", "q\n"},
		{"end of the input", ""},
		{"end in the middle of an answer", "approve"},
		{"end before the reason", "r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := person(c.answers, io.Discard).decide(t.Context(), pendingHold("tool_call", "approve", "edit", "reject"))
			if !errors.Is(err, errLeft) || got != nil {
				t.Errorf("decisions %v, error %v, want none and errLeft", got, err)
			}
		})
	}
}

// A process that is told to stop does not wait for an answer.
func TestTerminalIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	asked, answers := io.Pipe()
	defer answers.Close()
	p := person("", writerFunc(func(b []byte) (int, error) {
		if bytes.HasSuffix(b, []byte("? ")) {
			stop()
		}
		return len(b), nil
	}))
	p.in = bufio.NewReader(asked)
	if got, err := p.decide(ctx, pendingHold("tool_call", "approve", "edit", "reject")); !errors.Is(err, errLeft) || got != nil {
		t.Errorf("decisions %v, error %v, want none and errLeft", got, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestTerminalShowsWhatADecisionTakes(t *testing.T) {
	t.Parallel()
	h := pendingHold("tool_call", "approve", "edit", "reject")
	h.Items[0].Data = json.RawMessage("{\"order_id\":\"A-\u202e1\",\"n\":12345678901234567890}")
	h.Items[0].Title = "cancel\x1b[2K\norder"
	h.Items[0].Changed = &api.Change{OldDigest: "sha256:old"}
	var out bytes.Buffer
	if _, err := person("q\n", &out).decide(t.Context(), h); !errors.Is(err, errLeft) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Run cancel_order?", "shop/support", "call_0 orders/lookup_order {\"order_id\":\"A-1\"}: success",
		`call_1: cancel\u001b[2K\u000aorder`, "tool:      cancel_order on server orders",
		"why:       rule approve:cancel_order: Money is involved.", "approved as sha256:old",
		`"order_id": "A-\u202e1"`, `"n": 12345678901234567890`, "cannot be seen",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not shown:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "call_2") {
		t.Errorf("a decided item is asked about again:\n%s", &out)
	}
}

func TestEditorSeesTheArgumentsAndLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "ed")
	body := "#!/bin/sh\ncp \"$2\" " + dir + "/seen\nstat -c %a \"$2\" > " + dir + "/mode\necho \"$1\" > \"$2\"\n"
	if err := os.WriteFile(script, []byte(body), 0o700); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) { return script + " --wait", name == "EDITOR" }
	saved, err := runEditor(t.Context(), env, nil, []byte(`{"a": 1}`))
	if err != nil || string(saved) != "--wait\n" {
		t.Fatalf("saved %q, %v", saved, err)
	}
	for file, want := range map[string]string{"seen": "{\"a\": 1}\n", "mode": "600\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", file, got, err, want)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := runEditor(t.Context(), func(string) (string, bool) { return "false", true }, nil, nil); err == nil {
		t.Error("an editor that fails is no edit")
	}
}
