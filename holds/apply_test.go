package holds

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/problem"
)

var opened = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sample() Hold {
	schema := json.RawMessage(`{"type":"object","properties":{"order_id":{"type":"string"},"n":{"type":"integer"}},"required":["order_id"],"additionalProperties":false}`)
	return Hold{
		ID: "h_1_1", RunID: "r_1", Kind: ToolCall, Status: Pending, Actions: Actions(ToolCall), Revision: 3,
		CreatedAt: opened, ExpiresAt: opened.Add(time.Hour),
		Items: []Item{
			{ID: "call_1", Title: "cancel_order", Data: json.RawMessage(`{"order_id":"A-1"}`), Schema: schema},
			{ID: "call_3", Title: "cancel_order", Data: json.RawMessage(`{"order_id":"A-3","n":9007199254740993}`), Schema: schema},
		},
	}
}

func post(by string, ds ...ItemDecision) Post { return Post{Decisions: ds, By: by} }

func approve(id string) ItemDecision { return ItemDecision{ID: id, Action: Approve} }

func TestApplyRefuses(t *testing.T) {
	half, _, err := Apply(sample(), post("ann", approve("call_1")), opened)
	if err != nil {
		t.Fatal(err)
	}
	closed := sample().Closed(Cancelled, 9)
	for _, c := range []struct {
		name string
		hold Hold
		post Post
		at   time.Duration
		code problem.Code
		want string // in the message or the details
	}{
		{"nothing decided", sample(), post("ann"), 0, problem.InvalidDecision, "at least one"},
		{"unknown item", sample(), post("ann", approve("call_2")), 0, problem.InvalidDecision, "call_1, call_3"},
		{"one good, one unknown", sample(), post("ann", approve("call_1"), approve("x")), 0, problem.InvalidDecision, `no item "x"`},
		{"action not offered", sample(), post("ann", ItemDecision{ID: "call_1", Action: Retry}), 0, problem.InvalidDecision, "approve, edit, reject"},
		{"edit without data", sample(), post("ann", ItemDecision{ID: "call_1", Action: Edit}), 0, problem.InvalidDecision, "/decisions/0/data"},
		{"edit with an array", sample(), post("ann", ItemDecision{ID: "call_1", Action: Edit, Data: json.RawMessage(`[]`)}), 0, problem.InvalidDecision, "must be an object"},
		{"approve with other data", sample(), post("ann", ItemDecision{ID: "call_1", Action: Approve, Data: json.RawMessage(`{"order_id":"A-2"}`)}), 0, problem.InvalidDecision, "use edit"},
		{"reject with data", sample(), post("ann", ItemDecision{ID: "call_1", Action: Reject, Data: json.RawMessage(`{}`)}), 0, problem.InvalidDecision, "does not apply"},
		{"item twice", sample(), post("ann", approve("call_1"), approve("call_1")), 0, problem.InvalidDecision, "twice"},
		{"long reason", sample(), post("ann", ItemDecision{ID: "call_1", Action: Reject, Reason: strings.Repeat("x", 5000)}), 0, problem.InvalidDecision, "4096"},
		{"edit adds a property", sample(), post("ann", ItemDecision{ID: "call_1", Action: Edit, Data: json.RawMessage(`{"order_id":"A-2","x":1}`)}), 0, problem.InvalidEdit, "/decisions/0/data"},
		{"edit of a wrong type", sample(), post("ann", ItemDecision{ID: "call_1", Action: Edit, Data: json.RawMessage(`{"order_id":5}`)}), 0, problem.InvalidEdit, "/decisions/0/data/order_id"},
		{"stale revision", sample(), Post{By: "ann", Revision: 2, Decisions: []ItemDecision{approve("call_1")}}, 0, problem.HoldStale, "revision 3"},
		{"at the deadline", sample(), post("ann", approve("call_1")), time.Hour, problem.HoldExpired, "expired"},
		{"cancelled", closed, post("ann", approve("call_1")), 0, problem.HoldCancelled, "cancelled"},
		{"decided otherwise", half, post("ann", ItemDecision{ID: "call_1", Action: Reject}), 0, problem.HoldDecided, "approve by ann"},
		{"decided by another person", half, post("bob", approve("call_1")), 0, problem.HoldDecided, "approve by ann"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, _ := json.Marshal(c.hold)
			got, changed, err := Apply(c.hold, c.post, opened.Add(c.at))
			if problem.CodeOf(err) != c.code || changed {
				t.Fatalf("Apply = changed %v, %v; want code %s", changed, err, c.code)
			}
			p := problem.From(err)
			text := p.Message
			var textSb72 strings.Builder
			for _, d := range p.Details {
				textSb72.WriteString(" " + d.Path + " " + d.Message)
			}
			text += textSb72.String()
			if !strings.Contains(text, c.want) {
				t.Errorf("error %q does not tell %q", text, c.want)
			}
			after, _ := json.Marshal(got)
			if diff := cmp.Diff(string(before), string(after)); diff != "" {
				t.Errorf("the refused hold changed: %s", diff)
			}
		})
	}
}

func TestApplyPartThenRest(t *testing.T) {
	h := sample()
	half, changed, err := Apply(h, post("ann", approve("call_1")), opened.Add(time.Hour-time.Millisecond))
	if err != nil || !changed || half.Status != Pending || h.Items[0].Decision != nil {
		t.Fatalf("first part: %v changed %v status %s; the old hold must stay as it was", err, changed, half.Status)
	}
	if _, changed, err := Apply(half, post("ann", approve("call_1")), opened); err != nil || changed {
		t.Errorf("the identical repeat: changed %v, %v", changed, err)
	}
	edit := ItemDecision{ID: "call_3", Action: Edit, Data: json.RawMessage(`{"n":9007199254740993,"order_id":"A-9"}`), Reason: "typo"}
	done, changed, err := Apply(half, post("bob", edit), opened.Add(time.Minute))
	if err != nil || !changed || done.Status != Decided {
		t.Fatalf("second part: %v changed %v status %s", err, changed, done.Status)
	}
	want := &Decision{Action: Edit, Data: edit.Data, Reason: "typo", By: "bob", At: opened.Add(time.Minute)}
	if diff := cmp.Diff(want, done.Items[1].Decision); diff != "" {
		t.Error(diff)
	}
	// The repeat of an edit is recognised whatever the order of its names.
	edit.Data = json.RawMessage(`{"order_id":"A-9","n":9007199254740993}`)
	if _, changed, err := Apply(done, post("bob", edit), opened.Add(9*time.Hour)); err != nil || changed {
		t.Errorf("repeat after the end: changed %v, %v", changed, err)
	}
	if _, _, err := Apply(done, post("eve", ItemDecision{ID: "call_1", Action: Reject}), opened); problem.CodeOf(err) != problem.HoldDecided {
		t.Errorf("a late other decision: %v", err)
	}
}

func TestApplyIdempotencyKey(t *testing.T) {
	p := post("ann", approve("call_1"))
	p.Key = "k"
	h, _, err := Apply(sample(), p, opened)
	if err != nil {
		t.Fatal(err)
	}
	if _, changed, err := Apply(h, p, opened.Add(2*time.Hour)); err != nil || changed {
		t.Errorf("same key, same request: changed %v, %v", changed, err)
	}
	p.Decisions = []ItemDecision{approve("call_3")}
	if _, _, err := Apply(h, p, opened); problem.CodeOf(err) != problem.IdempotencyConflict {
		t.Errorf("same key, other request: %v", err)
	}
}

func TestUnknownOutcomeActions(t *testing.T) {
	h := sample()
	h.Kind, h.Actions = OutcomeUnknown, Actions(OutcomeUnknown)
	if _, _, err := Apply(h, post("ann", ItemDecision{ID: "call_1", Action: Ran}), opened); problem.CodeOf(err) != problem.InvalidDecision {
		t.Errorf("ran without a result: %v", err)
	}
	got, _, err := Apply(h, post("ann", ItemDecision{ID: "call_1", Action: Ran, Data: json.RawMessage(`"done"`)}, ItemDecision{ID: "call_3", Action: Skip}), opened)
	if err != nil || got.Status != Decided {
		t.Errorf("ran and skip: %v, %s", err, got.Status)
	}
}
