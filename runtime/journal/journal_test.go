package journal

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/holds"
	"agentos/holds/policy"
)

// record builds a journal entry by entry.
type record struct {
	t       *testing.T
	entries []Entry
}

func (r *record) add(typ Type, v any) *record {
	r.t.Helper()
	n, err := Encode(typ, v)
	if err != nil {
		r.t.Fatal(err)
	}
	r.entries = append(r.entries, Entry{Seq: int64(len(r.entries) + 1), At: time.Unix(0, 0), Type: typ, Data: n.Data})
	return r
}

func asked(id, provider string, effect policy.Effect, args string) Asked {
	return Asked{
		ID: id, ProviderID: provider, Name: "cancel_order", Server: "orders", Tool: "cancel_order",
		Arguments: json.RawMessage(args), Verdict: policy.Verdict{Effect: effect},
	}
}

func toolCalls(ids ...string) json.RawMessage {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = `{"type":"function","id":"` + id + `","function":{"name":"cancel_order","arguments":"{}"},"x":1}`
	}
	return json.RawMessage(`{"content":null,"role":"assistant","tool_calls":[` + strings.Join(parts, ",") + `],"reasoning_content":"<why>"}`)
}

// heldRun is a run with a mixed batch: a free call, an approved and a rejected
// one, all with the same provider id, then an answer.
func heldRun(t *testing.T) *record {
	t.Helper()
	r := &record{t: t}
	item := func(id string) holds.Item {
		return holds.Item{ID: id, Title: "cancel_order", Data: json.RawMessage(`{}`)}
	}
	h := holds.Hold{ID: "h_1_1", Kind: holds.ToolCall, Status: holds.Pending, Items: []holds.Item{item("call_1"), item("call_3")}}
	return r.
		add(RunCreated, Created{Agent: "a", Input: json.RawMessage(`{}`), System: "be good", Prompt: "go"}).
		add(ModelAnswered, Answered{Turn: 1, Message: toolCalls("d", "d", ""), Usage: &Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}, Calls: []Asked{
			asked("call_1", "d", policy.Ask, `{}`), asked("call_2", "d", policy.Allow, `{}`), asked("call_3", "", policy.Ask, `{}`),
		}}).
		add(CallStarted, Started{Call: "call_2", Effect: "read"}).
		add(CallFinished, Finished{Call: "call_2", Outcome: Success, Text: "free", ActiveMS: 40}).
		add(HoldOpened, Opened{Hold: h}).
		add(HoldDecided, HoldDecision{HoldID: "h_1_1", By: "ann", Items: []DecidedItem{
			{ID: "call_3", Proposed: json.RawMessage(`{}`), Decision: holds.Decision{Action: holds.Reject, By: "ann"}},
			{ID: "call_1", Proposed: json.RawMessage(`{}`), Decision: holds.Decision{Action: holds.Edit, Data: json.RawMessage(`{"a":1}`), By: "ann"}},
		}}).
		add(HoldClosed, Closed{HoldID: "h_1_1", Why: holds.Decided}).
		add(CallFinished, Finished{Call: "call_3", Outcome: Rejected, Text: "declined"}).
		add(CallStarted, Started{Call: "call_1", Effect: "once"}).
		add(CallFinished, Finished{Call: "call_1", Outcome: Success, Text: "cancelled", ActiveMS: 90}).
		add(ModelAnswered, Answered{Turn: 2, Message: json.RawMessage(`{"role":"assistant","content":""}`), Correction: "say something"}).
		add(ModelAnswered, Answered{Turn: 3, Message: json.RawMessage(`{"role":"assistant","content":"done"}`)}).
		add(RunCompleted, Completed{Output: json.RawMessage(`{"answer":"done"}`)})
}

func TestFold(t *testing.T) {
	s, err := Fold(heldRun(t).entries)
	if err != nil {
		t.Fatal(err)
	}
	if s.End != RunCompleted || string(s.Output) != `{"answer":"done"}` || s.Usage.TotalTokens != 7 || s.ActiveMS != 90 || s.Holds != 1 || s.Hold != nil {
		t.Errorf("state = %+v", s)
	}
	if got := string(s.Call("call_1").Effective()); got != `{"a":1}` {
		t.Errorf("call_1 runs with %s", got)
	}
	if !s.Call("call_1").Approved() || s.Call("call_3").Approved() || s.Call("call_2").Decision != nil {
		t.Error("decisions are on the wrong calls")
	}
}

func TestHistory(t *testing.T) {
	entries := heldRun(t).entries
	s, err := Fold(entries[:10]) // up to the last result
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.History()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"role":"system","content":"be good"}`,
		`{"role":"user","content":"go"}`,
		`{"content":null,"role":"assistant","tool_calls":[` +
			`{"type":"function","id":"d","function":{"name":"cancel_order","arguments":"{}"},"x":1},` +
			`{"type":"function","id":"call_2","function":{"name":"cancel_order","arguments":"{}"},"x":1},` +
			`{"type":"function","id":"call_3","function":{"name":"cancel_order","arguments":"{}"},"x":1}],"reasoning_content":"<why>"}`,
		`{"role":"tool","tool_call_id":"d","content":"cancelled"}`,
		`{"role":"tool","tool_call_id":"call_2","content":"free"}`,
		`{"role":"tool","tool_call_id":"call_3","content":"declined"}`,
	}
	var texts []string
	for _, m := range got {
		texts = append(texts, string(m))
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
	// An answer that says nothing is not sent back; its correction is.
	s, err = Fold(entries[:11])
	if err != nil {
		t.Fatal(err)
	}
	got, err = s.History()
	if err != nil {
		t.Fatal(err)
	}
	if last := string(got[len(got)-1]); len(got) != 7 || last != `{"role":"user","content":"say something"}` {
		t.Errorf("%d messages, last %s", len(got), last)
	}
}

// A message that needs no other ids goes back as the very same bytes.
func TestHistoryKeepsBytes(t *testing.T) {
	for _, raw := range []string{
		`{"role":"assistant","content":null,"tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
		`{"role":"assistant","content":"","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{ }"}}]}`,
		`{"role":"assistant", "tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}], "extra":{"n":12345678901234567890}}`,
	} {
		r := (&record{t: t}).add(RunCreated, Created{Prompt: "p"}).
			add(ModelAnswered, Answered{Turn: 1, Message: json.RawMessage(raw), Calls: []Asked{asked("call_1", "x", policy.Allow, `{}`)}}).
			add(CallFinished, Finished{Call: "call_1", Outcome: Success, Text: "ok"})
		s, err := Fold(r.entries)
		if err != nil {
			t.Fatal(err)
		}
		h, err := s.History()
		if err != nil {
			t.Fatal(err)
		}
		var compact string
		if b, err := json.Marshal(json.RawMessage(raw)); err == nil {
			compact = string(b)
		}
		if string(h[1]) != compact {
			t.Errorf("sent back %s, want %s", h[1], compact)
		}
	}
}

func TestHistoryOfRepeatedIDsOverTurns(t *testing.T) {
	r := (&record{t: t}).add(RunCreated, Created{Prompt: "p"})
	for turn := 1; turn <= 3; turn++ {
		id := "call_" + strconv.Itoa(turn)
		r.add(ModelAnswered, Answered{Turn: turn, Message: toolCalls("call_0"), Calls: []Asked{asked(id, "call_0", policy.Allow, `{}`)}}).
			add(CallFinished, Finished{Call: id, Outcome: Success, Text: "result " + id})
	}
	s, err := Fold(r.entries)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.History()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`"tool_call_id":"call_0","content":"result call_1"`, `"tool_call_id":"call_2","content":"result call_2"`, `"tool_call_id":"call_3","content":"result call_3"`} {
		if got := string(h[2+2*i]); !strings.Contains(got, want) {
			t.Errorf("tool message %d = %s, want %s", i, got, want)
		}
	}
}

func TestLegacyFunctionCall(t *testing.T) {
	r := (&record{t: t}).add(RunCreated, Created{Prompt: "p"}).
		add(ModelAnswered, Answered{
			Turn: 1, Message: json.RawMessage(`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`),
			Calls: []Asked{{ID: "call_1", Name: "f", Verdict: policy.Verdict{Effect: policy.Allow}}},
		}).
		add(CallFinished, Finished{Call: "call_1", Outcome: Success, Text: "ok"})
	s, err := Fold(r.entries)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.History()
	if err != nil || string(h[2]) != `{"role":"function","name":"f","content":"ok"}` {
		t.Errorf("history = %s, %v", h, err)
	}
}

// Any prefix of a valid journal folds; where the model is called next, its
// history is valid.
func TestEveryPrefixFolds(t *testing.T) {
	entries := heldRun(t).entries
	for n := 1; n <= len(entries); n++ {
		s, err := Fold(entries[:n])
		if err != nil {
			t.Errorf("prefix of %d: %v", n, err)
			continue
		}
		_, err = s.History()
		if complete := len(s.Open()) == 0; complete != (err == nil) {
			t.Errorf("prefix of %d: complete %v, history error %v", n, complete, err)
		}
	}
}

func TestFoldRefuses(t *testing.T) {
	good := func() []Entry { return heldRun(t).entries }
	for name, entries := range map[string][]Entry{
		"no creation":         good()[1:],
		"a gap":               append(good()[:3:3], good()[4]),
		"an entry after last": append(good(), Entry{Seq: 14, Type: RunRecovered, Data: json.RawMessage(`{}`)}),
		"unknown type":        {good()[0], {Seq: 2, Type: "run.bogus", Data: json.RawMessage(`{}`)}},
		"finish of nothing":   {good()[0], {Seq: 2, Type: CallFinished, Data: json.RawMessage(`{"call":"call_1"}`)}},
		"finish twice":        append(good()[:4:4], Entry{Seq: 5, Type: CallFinished, Data: good()[3].Data}),
		"answer while open":   append(good()[:2:2], Entry{Seq: 3, Type: ModelAnswered, Data: json.RawMessage(`{"turn":2}`)}),
		"decision of nothing": append(good()[:4:4], Entry{Seq: 5, Type: HoldDecided, Data: good()[5].Data}),
		"hold in a hold":      append(good()[:5:5], Entry{Seq: 6, Type: HoldOpened, Data: good()[4].Data}),
		"end while held":      append(good()[:5:5], Entry{Seq: 6, Type: RunCompleted, Data: json.RawMessage(`{}`)}),
		"broken data":         {good()[0], {Seq: 2, Type: ModelAnswered, Data: json.RawMessage(`{"turn":`)}},
		"wrong call id":       {good()[0], {Seq: 2, Type: ModelAnswered, Data: json.RawMessage(`{"turn":1,"calls":[{"id":"call_7"}]}`)}},
	} {
		if _, err := Fold(entries); err == nil {
			t.Errorf("%s: folded", name)
		}
	}
}

func TestProveRefuses(t *testing.T) {
	const call = `{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b"}]}`
	for name, msgs := range map[string][]string{
		"missing result":   {call, `{"role":"tool","tool_call_id":"a"}`},
		"wrong order":      {call, `{"role":"tool","tool_call_id":"b"}`, `{"role":"tool","tool_call_id":"a"}`},
		"user in between":  {call, `{"role":"tool","tool_call_id":"a"}`, `{"role":"user"}`},
		"stray result":     {`{"role":"tool","tool_call_id":"a"}`},
		"result twice":     {call, `{"role":"tool","tool_call_id":"a"}`, `{"role":"tool","tool_call_id":"b"}`, `{"role":"tool","tool_call_id":"b"}`},
		"empty id":         {`{"role":"assistant","tool_calls":[{"id":""}]}`, `{"role":"tool","tool_call_id":""}`},
		"id used before":   {`{"role":"assistant","tool_calls":[{"id":"a"}]}`, `{"role":"tool","tool_call_id":"a"}`, `{"role":"assistant","tool_calls":[{"id":"a"}]}`, `{"role":"tool","tool_call_id":"a"}`},
		"calls not a list": {`{"role":"assistant","tool_calls":5}`},
		"not an object":    {`5`},
	} {
		raw := make([]json.RawMessage, len(msgs))
		for i, m := range msgs {
			raw[i] = json.RawMessage(m)
		}
		if Prove(raw) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzFold(f *testing.F) {
	r := heldRun(&testing.T{})
	for _, e := range r.entries {
		f.Add(string(e.Type), []byte(e.Data), string(r.entries[1].Type), []byte(r.entries[1].Data))
	}
	f.Fuzz(func(t *testing.T, t1 string, d1 []byte, t2 string, d2 []byte) {
		entries := []Entry{
			{Seq: 1, Type: RunCreated, Data: json.RawMessage(`{"prompt":"p"}`)},
			{Seq: 2, Type: Type(t1), Data: d1},
			{Seq: 3, Type: Type(t2), Data: d2},
		}
		for n := range entries {
			s, err := Fold(entries[:n+1])
			if err != nil {
				return
			}
			if msgs, err := s.History(); err == nil {
				if err := Prove(msgs); err != nil {
					t.Fatalf("history accepted and not valid: %v", err)
				}
			}
		}
	})
}

// Journals that released versions have written fold for ever. Files are added
// with a change of format and never edited.
func TestJournalsOfOldVersionsFold(t *testing.T) {
	files, err := filepath.Glob("testdata/v*/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d journals, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(path, func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := &State{}
			for line := range bytes.Lines(raw) {
				var e Entry
				if err := json.Unmarshal(line, &e); err != nil {
					t.Fatal(err)
				}
				if err := s.Add(e); err != nil {
					t.Fatal(err)
				}
				if len(s.Open()) > 0 {
					continue
				}
				if _, err := s.History(); err != nil {
					t.Errorf("after entry %d: %v", e.Seq, err)
				}
			}
			if s.End == "" {
				t.Error("the journal has no end")
			}
		})
	}
}
