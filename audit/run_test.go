package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/audit"
	"agentos/holds"
	"agentos/internal/rawjson"
	"agentos/runtime/journal"
)

const (
	asked  = `{"order_id":"A-1","n":9007199254740993}`
	edited = `{"order_id":"A-2","n":9007199254740993}`
)

// script writes a journal.
type script struct {
	t       *testing.T
	entries []journal.Entry
}

func (s *script) add(t journal.Type, v any) *script {
	s.t.Helper()
	n, err := journal.Encode(t, v)
	if err != nil {
		s.t.Fatal(err)
	}
	seq := int64(len(s.entries) + 1)
	s.entries = append(s.entries, journal.Entry{Seq: seq, At: time.Unix(1000+seq, 0), Type: t, Data: n.Data})
	return s
}

// begin is a run whose model has asked for n calls.
func begin(t *testing.T, n int) *script {
	t.Helper()
	s := &script{t: t}
	s.add(journal.RunCreated, journal.Created{Agent: "shop", Capability: "support", Input: json.RawMessage(`{}`), Requester: "rita"})
	a := journal.Answered{Turn: 1, Message: json.RawMessage(`{"role":"assistant"}`)}
	for i := range n {
		a.Calls = append(a.Calls, journal.Asked{ID: fmt.Sprintf("call_%d", i+1), Name: "cancel", Server: "orders", Tool: "cancel_order", Arguments: json.RawMessage(asked)})
	}
	return s.add(journal.ModelAnswered, a)
}

func (s *script) hold(n int, kind holds.Kind, require int, data string, calls ...string) *script {
	s.t.Helper()
	h := holds.Hold{ID: fmt.Sprintf("h_1_%d", n), RunID: "r_1", Kind: kind, Status: holds.Pending}
	for _, c := range calls {
		it := holds.Item{ID: c, Server: "orders", Tool: "cancel_order", ToolDigest: "sha256:tool", Data: json.RawMessage(data)}
		it.Reviewers.Require = require
		h.Items = append(h.Items, it)
	}
	return s.add(journal.HoldOpened, journal.Opened{Hold: h})
}

func (s *script) decide(n int, by string, open bool, action holds.Action, data, proposed string, calls ...string) *script {
	s.t.Helper()
	d := journal.HoldDecision{HoldID: fmt.Sprintf("h_1_%d", n), By: by}
	for _, c := range calls {
		made := holds.Decision{Action: action, By: by, From: "192.0.2.7", Reason: "because"}
		if data != "" {
			made.Data = json.RawMessage(data)
		}
		d.Items = append(d.Items, journal.DecidedItem{ID: c, Proposed: json.RawMessage(proposed), Decision: made, Open: open})
	}
	return s.add(journal.HoldDecided, d)
}

func (s *script) closed(n int, why holds.Status, reason string) *script {
	s.t.Helper()
	return s.add(journal.HoldClosed, journal.Closed{HoldID: fmt.Sprintf("h_1_%d", n), Why: why, Reason: reason})
}

func (s *script) ran(call, args string, outcome journal.Outcome) *script {
	s.t.Helper()
	s.add(journal.CallStarted, journal.Started{Call: call, Server: "orders", Tool: "cancel_order", ToolDigest: "sha256:tool", Arguments: json.RawMessage(args)})
	return s.ended(call, outcome)
}

func (s *script) ended(call string, outcome journal.Outcome) *script {
	s.t.Helper()
	return s.add(journal.CallFinished, journal.Finished{Call: call, Outcome: outcome})
}

// lines are what FromRun tells, shortly.
func (s *script) lines() []string {
	s.t.Helper()
	list, err := audit.FromRun("prod", "r_1", s.entries)
	if err != nil {
		s.t.Fatal(err)
	}
	return describe(list)
}

// named are digests by what they are of.
func named(digest string) string {
	for _, text := range []string{asked, edited, `{"done":true}`} {
		if digest == rawjson.Digest([]byte(text)) {
			return text
		}
	}
	return digest
}

func describe(list []audit.Keyed) []string {
	var out []string
	for _, k := range list {
		e := k.Entry
		var line strings.Builder
		fmt.Fprint(&line, k.Key, " ", e.Event)
		for _, part := range []string{e.By, e.From, e.Hold, e.Reason} {
			if part != "" {
				line.WriteString(" " + part)
			}
		}
		for _, it := range e.Items {
			fmt.Fprintf(&line, " [%s %s saw %s decided %s %s", it.Call, it.Action, named(it.Seen), named(it.Decided), it.Reason)
			if it.Open {
				line.WriteString(" open")
			}
			line.WriteString("]")
		}
		if e.Call != nil {
			fmt.Fprintf(&line, " [%s %s %s]", e.Call.ID, named(e.Call.Arguments), e.Call.Outcome)
		}
		out = append(out, strings.ReplaceAll(line.String(), ",\"n\":9007199254740993", ""))
	}
	return out
}

func TestFromRun(t *testing.T) {
	t.Parallel()
	const a, b = `{"order_id":"A-1"}`, `{"order_id":"A-2"}`
	for name, c := range map[string]struct {
		run  *script
		want []string
	}{
		"nobody was asked": {begin(t, 1).ran("call_1", asked, journal.Success).add(journal.RunCompleted, journal.Completed{Output: json.RawMessage(`{}`)}), nil},
		"approved": {
			begin(t, 1).hold(1, holds.ToolCall, 0, asked, "call_1").decide(1, "ann", false, holds.Approve, "", asked, "call_1").closed(1, holds.Decided, "").ran("call_1", asked, journal.Success),
			[]string{
				"r_1/4 hold.decided ann 192.0.2.7 h_1_1 [call_1 approve saw " + a + " decided " + a + " because]",
				"r_1/7 call.ran [call_1 " + a + " success]",
			},
		},
		"edited, failed": {
			begin(t, 1).hold(1, holds.ToolCall, 0, asked, "call_1").decide(1, "ann", false, holds.Edit, edited, asked, "call_1").closed(1, holds.Decided, "").ran("call_1", edited, journal.Error),
			[]string{
				"r_1/4 hold.decided ann 192.0.2.7 h_1_1 [call_1 edit saw " + a + " decided " + b + " because]",
				"r_1/7 call.ran [call_1 " + b + " error]",
			},
		},
		"one of two rejected, then cancelled": {
			begin(t, 2).hold(1, holds.ToolCall, 0, asked, "call_1", "call_2").decide(1, "ann", false, holds.Reject, "", asked, "call_2").
				closed(1, holds.Cancelled, "").ended("call_1", journal.Denied).ended("call_2", journal.Rejected).add(journal.RunCancelled, journal.Cancel{By: "bob"}),
			[]string{
				"r_1/4 hold.decided ann 192.0.2.7 h_1_1 [call_2 reject saw " + a + " decided  because]",
				"r_1/5 hold.cancelled h_1_1",
				"r_1/8 run.cancelled bob",
			},
		},
		"two people, the first of whom edits": {
			begin(t, 1).hold(1, holds.ToolCall, 2, asked, "call_1").decide(1, "ann", true, holds.Edit, edited, asked, "call_1").
				decide(1, "bob", false, holds.Approve, "", edited, "call_1").closed(1, holds.Decided, "").ran("call_1", edited, journal.Success),
			[]string{
				"r_1/4 hold.decided ann 192.0.2.7 h_1_1 [call_1 edit saw " + a + " decided " + b + " because open]",
				"r_1/5 hold.decided bob 192.0.2.7 h_1_1 [call_1 approve saw " + b + " decided " + b + " because]",
				"r_1/8 call.ran [call_1 " + b + " success]",
			},
		},
		"run again because nobody saw the end": {
			begin(t, 1).add(journal.CallStarted, journal.Started{Call: "call_1", Server: "orders", Tool: "cancel_order", Arguments: json.RawMessage(asked)}).
				hold(1, holds.OutcomeUnknown, 0, asked, "call_1").decide(1, "ann", false, holds.Retry, "", asked, "call_1").closed(1, holds.Decided, "").ran("call_1", asked, journal.Success),
			[]string{
				"r_1/5 hold.decided ann 192.0.2.7 h_1_1 [call_1 retry saw " + a + " decided " + a + " because]",
				"r_1/8 call.ran [call_1 " + a + " success]",
			},
		},
		"approved, and nobody saw the end": {
			begin(t, 1).hold(1, holds.ToolCall, 0, asked, "call_1").decide(1, "ann", false, holds.Approve, "", asked, "call_1").closed(1, holds.Decided, "").
				add(journal.CallStarted, journal.Started{Call: "call_1", Server: "orders", Tool: "cancel_order", Arguments: json.RawMessage(asked)}).
				hold(2, holds.OutcomeUnknown, 0, asked, "call_1").decide(2, "bob", false, holds.Skip, "", asked, "call_1").closed(2, holds.Decided, "").ended("call_1", journal.Unknown),
			[]string{
				"r_1/4 hold.decided ann 192.0.2.7 h_1_1 [call_1 approve saw " + a + " decided " + a + " because]",
				"r_1/8 hold.decided bob 192.0.2.7 h_1_2 [call_1 skip saw " + a + " decided  because]",
				"r_1/10 call.ran [call_1 " + a + " unknown]",
			},
		},
		"said to have run": {
			begin(t, 1).add(journal.CallStarted, journal.Started{Call: "call_1", Server: "orders", Tool: "cancel_order", Arguments: json.RawMessage(asked)}).
				hold(1, holds.OutcomeUnknown, 0, asked, "call_1").decide(1, "ann", false, holds.Ran, `{"done":true}`, asked, "call_1").closed(1, holds.Decided, "").ended("call_1", journal.Success),
			[]string{`r_1/5 hold.decided ann 192.0.2.7 h_1_1 [call_1 ran saw ` + a + ` decided {"done":true} because]`},
		},
		"expired": {
			begin(t, 1).hold(1, holds.ToolCall, 0, asked, "call_1").closed(1, holds.Expired, "").ended("call_1", journal.Expired),
			[]string{"r_1/4 hold.expired h_1_1"},
		},
		"switched off, and asked about again": {
			begin(t, 2).hold(1, holds.ToolCall, 0, asked, "call_1", "call_2").decide(1, "ann", false, holds.Approve, "", asked, "call_1").closed(1, holds.Cancelled, "off").
				hold(2, holds.ToolCall, 0, asked, "call_1").closed(2, holds.Expired, "").ended("call_1", journal.Expired).ended("call_2", journal.Denied),
			[]string{
				"r_1/4 hold.decided ann 192.0.2.7 h_1_1 [call_1 approve saw " + a + " decided " + a + " because]",
				"r_1/5 hold.cancelled h_1_1 off",
				"r_1/7 hold.expired h_1_2",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.run.lines()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What was told of a part of a journal is told of the whole one, under the same
// keys: however often it is read, an entry is made once.
func TestFromRunGrows(t *testing.T) {
	t.Parallel()
	s := begin(t, 2).hold(1, holds.ToolCall, 0, asked, "call_1", "call_2").decide(1, "ann", false, holds.Approve, "", asked, "call_1").
		decide(1, "bob", false, holds.Reject, "", asked, "call_2").closed(1, holds.Decided, "").ran("call_1", asked, journal.Success).ended("call_2", journal.Rejected)
	whole := s.lines()
	if len(whole) != 3 {
		t.Fatal(whole)
	}
	for n := range s.entries {
		part := (&script{t: t, entries: s.entries[:n]}).lines()
		if diff := cmp.Diff(whole[:len(part)], part, cmp.Transformer("nil", func(l []string) []string { return append([]string{}, l...) })); diff != "" {
			t.Errorf("of %d entries: %s", n, diff)
		}
	}
	for i, e := range s.entries {
		told := 0
		for _, line := range whole {
			if strings.HasPrefix(line, fmt.Sprintf("r_1/%d ", i+1)) {
				told++
			}
		}
		if told > 0 && !audit.Concerns(e.Type, true) {
			t.Errorf("%s is told of, and Concerns says it is not", e.Type)
		}
	}
	if audit.Concerns(journal.CallFinished, false) {
		t.Error("the end of a call concerns the audit where nobody was ever asked")
	}
}

// A journal that cannot be folded tells what comes before the fault.
func TestFromRunDamaged(t *testing.T) {
	t.Parallel()
	s := begin(t, 1).hold(1, holds.ToolCall, 0, asked, "call_1").decide(1, "ann", false, holds.Approve, "", asked, "call_1")
	s.entries = append(s.entries, journal.Entry{Seq: 9, Type: journal.CallFinished, Data: json.RawMessage(`{}`)})
	list, err := audit.FromRun("prod", "r_1", s.entries)
	if err == nil || len(list) != 1 {
		t.Errorf("%d entries, %v", len(list), err)
	}
}
