package runtime_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func TestLookupRunsAtOnce(t *testing.T) {
	r := newRig(t, usual, sequence(asks(call{"x", "lookup_order", `{"order_id":"A-1"}`}), says("shipped"))).up()
	v := r.start("where is it?")
	r.want(v, store.Completed)
	if got := string(r.state(v.ID).Output); got != `{"answer":"shipped"}` {
		t.Errorf("output = %s", got)
	}
	r.ran("lookup_order", "A-1", 1)
}

// C01, C02, B01: a mixed batch with one provider id, decided in another order,
// over a restart.
func TestMixedBatch(t *testing.T) {
	r := newRig(t, usual, sequence(
		asks(call{"d", "cancel_order", `{"order_id":"A-1"}`}, call{"d", "lookup_order", `{"order_id":"A-2"}`}, call{"", "cancel_order", `{"order_id":"A-3"}`}),
		says("ok"))).up()
	v := r.start("go")
	r.want(v, store.Held)
	if len(v.Hold.Items) != 2 || v.Hold.Items[0].ID != "call_1" || v.Hold.Items[1].ID != "call_3" || v.Hold.Intent != "Run cancel_order and cancel_order?" {
		t.Fatalf("hold = %+v", v.Hold)
	}
	r.ran("lookup_order", "A-2", 1)
	r.restart()
	v = r.decide(v, holds.ItemDecision{ID: "call_3", Action: holds.Reject, Reason: "too late"}, approve("call_1"))
	r.want(v, store.Completed)
	msgs := r.model.messages(t, 2)
	var ids []string
	calls, err := rawjson.Elements(rawjson.Get(msgs[1], "tool_calls"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		id, _ := rawjson.Text(rawjson.Get(c, "id"))
		ids = append(ids, id)
	}
	if ids[0] == "" || ids[1] == "" || ids[2] == "" || ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] || len(msgs) != 5 {
		t.Fatalf("ids %q, %d messages", ids, len(msgs))
	}
	for i, want := range []string{"cancelled", "looked up", "A person declined this tool call. Their reason: too late"} {
		id, _ := rawjson.Text(rawjson.Get(msgs[2+i], "tool_call_id"))
		text, _ := rawjson.Text(rawjson.Get(msgs[2+i], "content"))
		if id != ids[i] || !strings.Contains(text, want) {
			t.Errorf("tool message %d: id %q text %q, want %q %q", i, id, text, ids[i], want)
		}
	}
	r.ran("lookup_order", "", 1)
	r.ran("cancel_order", "A-1", 1)
	r.ran("cancel_order", "A-3", 0)
}

// C03: every way of saying "no arguments".
func TestEmptyArguments(t *testing.T) {
	for _, function := range []string{
		`{"name":"ping","arguments":""}`, `{"name":"ping"}`, `{"name":"ping","arguments":null}`,
		`{"name":"ping","arguments":"null"}`, `{"name":"ping","arguments":"{}"}`, `{"name":"ping","arguments":{}}`,
	} {
		t.Run(function, func(t *testing.T) {
			body := `{"choices":[{"finish_reason":"tool_calls","message":{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":` + function + `}]}}]}`
			r := newRig(t, usual, sequence(body, says("ok"))).up()
			r.want(r.start("go"), store.Completed)
			r.ran("ping", "{}", 1)
		})
	}
}

// C04, C06, B16: arguments that are no object or do not fit never reach a tool or
// a person; the model is told what is wrong and where.
func TestBadArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{`{"order_id":`, "JSON"},
		{`[1]`, "array"},
		{`5`, "number"},
		{`{"order_id":"A","order_id":"B"}`, "order_id"},
		{`{"order_id":NaN}`, "JSON"},
		{`{"order_id":5}`, "/order_id"},
		{`{"order_id":{"a":1}}`, "/order_id"},
		{`{}`, "order_id"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", c.args}), says("sorry"))).up()
			v := r.start("go")
			r.want(v, store.Completed)
			s := r.state(v.ID)
			if s.Holds != 0 || s.Calls[0].Finished.Outcome != journal.Invalid {
				t.Errorf("holds %d, outcome %s", s.Holds, s.Calls[0].Finished.Outcome)
			}
			text, _ := rawjson.Text(rawjson.Get(r.model.messages(t, 2)[2], "content"))
			if !strings.Contains(text, c.want) {
				t.Errorf("the model is told %q, which does not name %q", text, c.want)
			}
			r.ran("cancel_order", "", 0)
		})
	}
	t.Run("insists", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `[]`}))).up()
		r.wantFault(r.start("go"), problem.TooManyTurns)
		if n := r.model.asked(); n != 10 {
			t.Errorf("asked %d times, want 10", n)
		}
	})
	t.Run("encoded twice", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "lookup_order", `"{\"order_id\":\"A-1\"}"`}), says("ok"))).up()
		r.want(r.start("go"), store.Completed)
		r.ran("lookup_order", `{"order_id":"A-1"}`, 1)
	})
}

// C05: arguments arrive byte for byte at reviewer, journal and tool.
func TestExactArguments(t *testing.T) {
	const args = `{"z":12345678901234567890,"order_id":"A-1","a":9007199254740993,"f":1.0,"i":1,"u":"\u0000é😀 <&>","n":{"y":1,"b":2}}`
	r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", args}), says("ok"))).up()
	v := r.start("go")
	r.want(v, store.Held)
	if got := string(v.Hold.Items[0].Data); got != args {
		t.Errorf("hold shows %s", got)
	}
	r.restart()
	v = r.decide(v, approve("call_1"))
	r.want(v, store.Completed)
	s := r.state(v.ID)
	if got := string(s.Calls[0].Started.Arguments); got != args {
		t.Errorf("journal has %s", got)
	}
	// The tool repeats what it was sent; json in the ledger escapes HTML.
	if text := s.Calls[0].Finished.Text; text != "cancelled "+args {
		t.Errorf("tool got %s", text)
	}
	t.Run("lone surrogate", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "cancel_order", `{"order_id":"\ud800"}`}), says("ok"))).up()
		v := r.start("go")
		r.want(v, store.Completed)
		if o := r.state(v.ID).Calls[0].Finished.Outcome; o != journal.Invalid {
			t.Errorf("outcome %s", o)
		}
	})
}

// C07: a tool that is not there, outside the subset, or called by a name the
// model was not given.
func TestUnknownTool(t *testing.T) {
	loop := "      tools: [orders/lookup_order]\n"
	for _, name := range []string{"nope", "cancel_order", "mcp__orders__lookup_order", ""} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, loop, sequence(asks(call{"a", name, `{"order_id":"A-1"}`}), says("ok"))).up()
			v := r.start("go")
			r.want(v, store.Completed)
			f := r.state(v.ID).Calls[0].Finished
			if f.Outcome != journal.Invalid || !strings.Contains(f.Text, "lookup_order") {
				t.Errorf("finished %+v", f)
			}
			r.ran("cancel_order", "", 0)
		})
	}
}

// C08: finish reasons and shapes of replies.
func TestReplyShapes(t *testing.T) {
	for _, finish := range []string{"stop", "tool_calls", "function_call", "weird"} {
		t.Run("calls run for "+finish, func(t *testing.T) {
			r := newRig(t, usual, sequence(asksWith(finish, call{"a", "ping", `{}`}), says("ok"))).up()
			r.want(r.start("go"), store.Completed)
			r.ran("ping", "", 1)
		})
	}
	for _, finish := range []string{"length", "content_filter"} {
		t.Run("cut by "+finish, func(t *testing.T) {
			r := newRig(t, usual, sequence(asksWith(finish, call{"a", "cancel_order", `{"order_id":"A"}`}), says("ok"))).up()
			v := r.start("go")
			r.want(v, store.Completed)
			if s := r.state(v.ID); s.Holds != 0 || s.Calls[0].Finished.Outcome != journal.Invalid {
				t.Errorf("a half call got through: %+v", s.Calls[0])
			}
			r = newRig(t, usual, sequence(asksWith(finish, call{"a", "cancel_order", `{"order_id":"A"}`}))).up()
			r.wantFault(r.start("go"), problem.ModelError)
		})
	}
	for name, c := range map[string]struct{ message, want string }{
		"empty text": {`{"role":"assistant","content":""}`, `{"answer":""}`},
		"no calls":   {`{"role":"assistant","content":"x","tool_calls":[]}`, `{"answer":"x"}`},
		"null calls": {`{"role":"assistant","content":"x","tool_calls":null}`, `{"answer":"x"}`},
		"parts":      {`{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, `{"answer":"ab"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, usual, sequence(`{"choices":[{"finish_reason":"stop","message":`+c.message+`}],"usage":null}`)).up()
			v := r.start("go")
			r.want(v, store.Completed)
			if got := string(r.state(v.ID).Output); got != c.want {
				t.Errorf("output %s, want %s", got, c.want)
			}
		})
	}
	t.Run("refusal", func(t *testing.T) {
		r := newRig(t, usual, sequence(`{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":null,"refusal":"I will not"}}]}`)).up()
		v := r.start("go")
		r.wantFault(v, problem.ModelError)
		if f := r.state(v.ID).Fault; !strings.Contains(f.Message, "I will not") {
			t.Errorf("fault %+v", f)
		}
	})
	t.Run("extra fields go back", func(t *testing.T) {
		message := `{"role":"assistant","content":null,"reasoning_content":"because <b>","annotations":[{"n":12345678901234567890}],"tool_calls":[{"id":"a","type":"function","function":{"name":"ping","arguments":"{}"},"index":0}]}`
		r := newRig(t, usual, sequence(`{"choices":[{"finish_reason":"tool_calls","message":`+message+`}]}`, says("ok"))).up()
		r.want(r.start("go"), store.Completed)
		if got := string(r.model.messages(t, 2)[1]); got != message {
			t.Errorf("sent back %s", got)
		}
	})
}

// B20: content beside calls is sent back as it came.
func TestContentIsNotRewritten(t *testing.T) {
	for _, content := range []string{`"content":null,`, `"content":"",`, ``} {
		message := `{"role":"assistant",` + content + `"tool_calls":[{"id":"a","type":"function","function":{"name":"ping","arguments":"{}"}}]}`
		r := newRig(t, usual, sequence(`{"choices":[{"finish_reason":"tool_calls","message":`+message+`}]}`, says("ok"))).up()
		r.want(r.start("go"), store.Completed)
		if got := string(r.model.messages(t, 2)[1]); got != message {
			t.Errorf("sent back %s, want %s", got, message)
		}
	}
}

// B07: a run goes on with the stored call; the model is not asked again.
func TestApprovedIsWhatRuns(t *testing.T) {
	r := newRig(t, usual, func(n int, body json.RawMessage) (string, error) {
		if strings.Contains(string(body), `"role":"tool"`) {
			return says("done"), nil
		}
		return asks(call{"a", "cancel_order", fmt.Sprintf(`{"order_id":"A-%d"}`, n)}), nil
	}).up()
	v := r.start("go")
	r.want(v, store.Held)
	data := string(v.Hold.Items[0].Data)
	r.restart()
	v = r.decide(v, approve("call_1"))
	r.want(v, store.Completed)
	if n := r.model.asked(); n != 2 {
		t.Errorf("the model was asked %d times, want 2", n)
	}
	r.ran("cancel_order", data, 1)
	r.ran("cancel_order", "", 1)
}

// B08, C14: after an edit the model believes what ran; the original call again is
// a new hold.
func TestEdit(t *testing.T) {
	const proposed = `{"order_id":"A-1","reason":"x"}`
	r := newRig(t, usual, func(n int, body json.RawMessage) (string, error) {
		switch n {
		case 1:
			return asks(call{"a", "cancel_order", proposed}), nil
		case 2:
			if !strings.Contains(string(body), "A-9") || !strings.Contains(string(body), "reviewer changed") {
				t.Errorf("the model is not told of the edit: %s", body)
			}
			return asks(call{"a", "cancel_order", proposed}), nil
		}
		return says("ok"), nil
	}).up()
	v := r.start("go")
	if _, err := r.post(v.Hold.ID, holds.ItemDecision{ID: "call_1", Action: holds.Edit, Data: json.RawMessage(`{"order_id":9}`)}); problem.CodeOf(err) != problem.InvalidEdit {
		t.Errorf("an edit against the schema: %v", err)
	}
	v = r.decide(v, holds.ItemDecision{ID: "call_1", Action: holds.Edit, Data: json.RawMessage(`{"order_id":"A-9","reason":"x"}`)})
	r.want(v, store.Held)
	if v.Hold.Items[0].ID != "call_2" || string(v.Hold.Items[0].Data) != proposed {
		t.Errorf("second hold %+v", v.Hold.Items[0])
	}
	r.ran("cancel_order", "A-9", 1)
	r.ran("cancel_order", "A-1", 0)
	r.want(r.decide(v, holds.ItemDecision{ID: "call_2", Action: holds.Reject}), store.Completed)
	r.ran("cancel_order", "", 1)
}

// B17, B03: the provider repeats one id in every turn.
func TestRepeatedProviderIDs(t *testing.T) {
	r := newRig(t, usual, sequence(
		asks(call{"call_0", "lookup_order", `{"order_id":"A-1"}`}),
		asks(call{"call_0", "cancel_order", `{"order_id":"A-2"}`}),
		asks(call{"call_0", "lookup_order", `{"order_id":"A-3"}`}),
		asks(call{"call_0", "cancel_order", `{"order_id":"A-4"}`}),
		says("ok"))).up()
	v := r.start("go")
	r.want(v, store.Held)
	r.restart()
	first := v.Hold
	v = r.decide(v, approve("call_2"))
	r.want(v, store.Held)
	second := v.Hold
	if _, err := r.post(first.ID, approve("call_2")); err != nil {
		t.Errorf("identical repeat on the first hold: %v", err)
	}
	for name, c := range map[string]struct {
		hold string
		post holds.Post
		code problem.Code
	}{
		"first item to second hold":     {second.ID, holds.Post{By: "ann", Decisions: []holds.ItemDecision{approve("call_2")}}, problem.InvalidDecision},
		"second item to first hold":     {first.ID, holds.Post{By: "ann", Decisions: []holds.ItemDecision{approve("call_4")}}, problem.HoldDecided},
		"first revision to second hold": {second.ID, holds.Post{By: "ann", Revision: first.Revision, Decisions: []holds.ItemDecision{approve("call_4")}}, problem.HoldStale},
	} {
		if _, err := r.engine.Decide(r.ctx(), "default", c.hold, c.post); problem.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	r.ran("cancel_order", "A-4", 0)
	r.want(r.decide(v, holds.ItemDecision{ID: "call_4", Action: holds.Reject}), store.Completed)
	for _, part := range []string{"A-1", "A-3"} {
		r.ran("lookup_order", part, 1)
	}
	r.ran("cancel_order", "A-2", 1)
}

// C34: limits hold and end with a named error.
func TestLimits(t *testing.T) {
	t.Run("200 calls in one turn", func(t *testing.T) {
		calls := make([]call, 200)
		for i := range calls {
			calls[i] = call{fmt.Sprint("c", i), "ping", fmt.Sprintf(`{"n":%d}`, i)}
		}
		r := newRig(t, usual, sequence(asks(calls...), says("ok"))).up()
		r.want(r.start("go"), store.Completed)
		r.ran("ping", "", 200)
	})
	t.Run("one call for ever", func(t *testing.T) {
		r := newRig(t, usual+"      max_turns: 4\n", sequence(asks(call{"a", "ping", `{}`}))).up()
		r.wantFault(r.start("go"), problem.TooManyTurns)
		r.ran("ping", "", 3) // what the last turn asks for is not executed
	})
	t.Run("tokens", func(t *testing.T) {
		reply := strings.Replace(asks(call{"a", "ping", `{}`}), `"usage":null`, `"usage":{"prompt_tokens":50,"completion_tokens":10,"total_tokens":60}`, 1)
		r := newRig(t, usual+"      max_tokens: 100\n", sequence(reply)).up()
		r.wantFault(r.start("go"), problem.TokenBudgetExceeded)
		if n := r.model.asked(); n != 2 {
			t.Errorf("asked %d times, want 2", n)
		}
	})
	t.Run("a result of 3 MB", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "big", `{}`}), says("ok"))).up()
		v := r.start("go")
		r.want(v, store.Completed)
		f := r.state(v.ID).Calls[0].Finished
		if !f.Truncated || len(f.Text) > 300<<10 {
			t.Errorf("truncated %v, %d bytes", f.Truncated, len(f.Text))
		}
	})
	t.Run("active time", func(t *testing.T) {
		r := newRig(t, usual, sequence(asks(call{"a", "wait", `{"ms":60000}`}), says("ok")))
		r.loop = "      max_turns: 5\n    timeout: 300ms\n"
		r.loop = strings.Replace(r.loop, "    timeout: 300ms\n", "", 1)
		r.up()
		r.agent.Manifest.Capabilities["support"].Timeout = 2 * time.Second
		v := r.start("go")
		r.wantFault(v, problem.Timeout)
		if o := r.state(v.ID).Calls[0].Finished.Outcome; o != journal.Unknown && o != journal.Timeout {
			t.Errorf("outcome %s", o)
		}
	})
}

// C35: output that does not fit is corrected, twice at most.
func TestStructuredOutput(t *testing.T) {
	up := func(t *testing.T, replies ...string) (*rig, store.View) {
		t.Helper()
		r := newRig(t, "", sequence(replies...))
		r.loop = "      max_turns: 10\n"
		r.up()
		c := r.agent.Manifest.Capabilities["support"]
		c.Output = json.RawMessage(`{"type":"object","properties":{"answer":{"type":"string"},"confidence":{"type":"number"}},"required":["answer","confidence"]}`)
		c.OutputSchema = compile(t, c.Output)
		return r, r.start("go")
	}
	r, v := up(t, says("it is fine"), says(`{"answer":"fine"`), says(`{"answer":"fine","confidence":0.90}`))
	r.want(v, store.Completed)
	if got := string(r.state(v.ID).Output); got != `{"answer":"fine","confidence":0.90}` {
		t.Errorf("output %s", got)
	}
	last := r.model.messages(t, 2)
	if text, _ := rawjson.Text(rawjson.Get(last[len(last)-1], "content")); !strings.Contains(text, "not JSON") {
		t.Errorf("correction %q", text)
	}
	r, v = up(t, says("a"), says("b"), says(`{"answer":"x"}`))
	r.wantFault(v, problem.InvalidOutput)
	if n := r.model.asked(); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
}

// C20: one key is one run.
func TestIdempotentStart(t *testing.T) {
	r := newRig(t, usual, sequence(says("ok"))).up()
	req := runtime.StartRequest{Env: "default", Agent: "shop", Capability: "support", Input: json.RawMessage(`{"message":"hi"}`), Key: "k1", Requester: "tester"}
	ids := make(chan string, 20)
	for range 20 {
		go func() {
			v, err := r.engine.Start(r.ctx(), req)
			if err != nil {
				t.Errorf("start: %v", err)
			}
			ids <- v.ID
		}()
	}
	first := <-ids
	for range 19 {
		if id := <-ids; id != first {
			t.Errorf("run %s beside %s", id, first)
		}
	}
	r.want(r.wait(first), store.Completed)
	if n := r.model.asked(); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	req.Input = json.RawMessage(`{"message":"other"}`)
	if _, err := r.engine.Start(r.ctx(), req); problem.CodeOf(err) != problem.IdempotencyConflict {
		t.Errorf("same key, other request: %v", err)
	}
}

func TestStartRefuses(t *testing.T) {
	r := newRig(t, usual, sequence(says("ok"))).up()
	good := runtime.StartRequest{Env: "default", Agent: "shop", Capability: "support", Input: json.RawMessage(`{"message":"hi"}`)}
	for code, change := range map[problem.Code]func(*runtime.StartRequest){
		problem.EnvNotFound:        func(q *runtime.StartRequest) { q.Env = "prod" },
		problem.AgentNotFound:      func(q *runtime.StartRequest) { q.Agent = "x" },
		problem.CapabilityNotFound: func(q *runtime.StartRequest) { q.Capability = "x" },
		problem.InvalidInput:       func(q *runtime.StartRequest) { q.Input = json.RawMessage(`{"message":5}`) },
	} {
		req := good
		change(&req)
		if _, err := r.engine.Start(r.ctx(), req); problem.CodeOf(err) != code {
			t.Errorf("%v, want %s", err, code)
		}
	}
}

func TestIdleEntriesAreReported(t *testing.T) {
	r := newRig(t, "      tools: [orders/lookup_order, orders/lokup_order]\n      deny: [\"drop_*\"]\n", sequence(says("ok"))).up()
	r.want(r.start("go"), store.Completed) // the servers are connected now
	got := strings.Join(r.agent.Idle(), "\n")
	for _, want := range []string{"tools: orders/lokup_order matches no tool", "rule deny:drop_* matches no tool"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Contains(got, "orders/lookup_order ") {
		t.Errorf("a good entry is reported: %s", got)
	}
}
