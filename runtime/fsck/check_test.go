package fsck_test

import (
	"encoding/json"
	"slices"
	"testing"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/runtime/fsck"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// plain is a run that goes on, without a hold.
func plain(t *testing.T, entries ...journal.New) store.Inspection {
	t.Helper()
	list := append([]journal.New{created(t)}, entries...)
	return store.Inspection{
		Record:  &store.Record{ID: queued, Env: "prod", Agent: "clerk", Capability: "answer", Status: store.Running, Seq: int64(len(list))},
		Journal: entriesOf(list...),
	}
}

// change is an inspection with a change.
func change(in store.Inspection, f func(*store.Inspection)) store.Inspection {
	f(&in)
	return in
}

func pending(edit func(*holds.Hold)) holds.Hold {
	h := holds.Hold{
		ID: holdOf(queued), RunID: queued, Env: "prod", Agent: "clerk", Kind: holds.ToolCall, Status: holds.Pending,
		Items: []holds.Item{{ID: "call_1", Server: "orders", Tool: "refund", Data: json.RawMessage(`{"n":9007199254740993}`)}},
	}
	if edit != nil {
		edit(&h)
	}
	return h
}

func TestCheckOfOneRun(t *testing.T) {
	t.Parallel()
	opened := encode(t, journal.HoldOpened, journal.Opened{Hold: pending(nil)})
	closed := encode(t, journal.HoldClosed, journal.Closed{HoldID: holdOf(queued), Why: holds.Expired})
	on := func(h holds.Hold) func(*store.Inspection) {
		return func(in *store.Inspection) {
			in.Record.Status, in.Record.HoldID, in.Holds = store.Held, h.ID, []holds.Hold{h}
		}
	}
	waiting := func(h holds.Hold) store.Inspection { return change(plain(t, answer(t), opened), on(h)) }
	repeated := encode(t, journal.ModelAnswered, journal.Answered{
		Turn:    2,
		Message: json.RawMessage(`{"role":"assistant","content":"again"}`),
	})
	// A reply whose calls are no list of calls is proven wrong before the next one.
	odd := encode(t, journal.ModelAnswered, journal.Answered{
		Turn: 1, Message: json.RawMessage(`{"role":"assistant","tool_calls":[{"id":"p1"},{"id":"p2"}]}`),
		Calls: []journal.Asked{{ID: "call_1", ProviderID: "p1", Name: "refund", Verdict: policy.Verdict{Effect: policy.Allow}}},
	})
	ended := encode(t, journal.RunFailed, journal.Failed{Error: journal.Fault{Code: "invalid_history"}})
	for name, c := range map[string]struct {
		in   store.Inspection
		want []store.FindingCode
	}{
		"nothing":                     {in: store.Inspection{}},
		"in the middle of a call":     {in: plain(t, answer(t), started(t, "once"))},
		"queued":                      {in: change(plain(t), func(in *store.Inspection) { in.Record.Status = store.Queued })},
		"waits":                       {in: waiting(pending(nil))},
		"what only explains differs":  {in: waiting(pending(func(h *holds.Hold) { h.Intent = "?"; h.Items[0].Reason = "because" }))},
		"expired":                     {in: change(plain(t, answer(t), opened, closed), func(in *store.Inspection) { in.Holds = []holds.Hold{pending(nil).Closed(holds.Expired, 4)} })},
		"started twice, idempotent":   {in: plain(t, answer(t), started(t, "idempotent"), started(t, "idempotent"))},
		"the journal was told broken": {in: change(plain(t), func(in *store.Inspection) { in.Journal = nil })},

		"started twice, once":      {in: plain(t, answer(t), started(t, "once"), started(t, "once")), want: []store.FindingCode{store.CallRepeated}},
		"started as another class": {in: plain(t, answer(t), started(t, "once"), started(t, "read")), want: []store.FindingCode{store.CallRepeated}},
		"no such status":           {in: change(plain(t), func(in *store.Inspection) { in.Record.Status = "" }), want: []store.FindingCode{store.RecordDamaged}},
		"no environment":           {in: change(plain(t), func(in *store.Inspection) { in.Record.Env = "" }), want: []store.FindingCode{store.RecordDamaged}},
		"another agent":            {in: change(plain(t), func(in *store.Inspection) { in.Record.Agent = "cook" }), want: []store.FindingCode{store.StatusDiffers}},
		"another run's hold":       {in: change(plain(t), func(in *store.Inspection) { in.Record.HoldID = holdOf(held) }), want: []store.FindingCode{store.RecordDamaged}},
		"too few entries":          {in: change(plain(t), func(in *store.Inspection) { in.Record.Seq = 2 }), want: []store.FindingCode{store.JournalIncomplete}},
		"held, by the record only": {in: change(plain(t), func(in *store.Inspection) { in.Record.Status = store.Held }), want: []store.FindingCode{store.StatusDiffers}},
		"held, by the journal only": {
			in:   change(waiting(pending(nil)), func(in *store.Inspection) { in.Record.Status, in.Record.HoldID = store.Running, "" }),
			want: []store.FindingCode{store.StatusDiffers},
		},
		"waits on a later hold": {
			in:   change(waiting(pending(nil)), func(in *store.Inspection) { in.Record.HoldID = store.HoldID(queued, 2) }),
			want: []store.FindingCode{store.StatusDiffers},
		},
		"failed, and completed by its record": {
			in:   change(plain(t, ended), func(in *store.Inspection) { in.Record.Status = store.Completed }),
			want: []store.FindingCode{store.StatusDiffers},
		},
		"a conversation no provider accepts": {in: plain(t, odd, finished(t)), want: []store.FindingCode{store.HistoryInvalid}},
		"the same, found by the engine":      {in: change(plain(t, odd, finished(t), ended), func(in *store.Inspection) { in.Record.Status = store.Failed })},
		"the same, sent to a provider":       {in: plain(t, odd, finished(t), repeated), want: []store.FindingCode{store.HistoryInvalid}},
		"a finish of nothing":                {in: plain(t, finished(t)), want: []store.FindingCode{store.JournalInvalid}},
		"a hold is missing":                  {in: change(waiting(pending(nil)), func(in *store.Inspection) { in.Holds = nil }), want: []store.FindingCode{store.HoldMissing}},
		"a hold too many": {
			in:   change(plain(t, answer(t)), func(in *store.Inspection) { in.Holds = []holds.Hold{pending(nil)} }),
			want: []store.FindingCode{store.HoldStray},
		},
		"other arguments":     {in: waiting(pending(func(h *holds.Hold) { h.Items[0].Data = json.RawMessage(`{"n":9007199254740992}`) })), want: []store.FindingCode{store.HoldDiffers}},
		"another tool":        {in: waiting(pending(func(h *holds.Hold) { h.Items[0].ToolDigest = "x" })), want: []store.FindingCode{store.HoldDiffers}},
		"another agent's":     {in: waiting(pending(func(h *holds.Hold) { h.Agent = "cook" })), want: []store.FindingCode{store.HoldDiffers}},
		"one item more":       {in: waiting(pending(func(h *holds.Hold) { h.Items = append(h.Items, h.Items[0]) })), want: []store.FindingCode{store.HoldDiffers}},
		"decided by no entry": {in: waiting(pending(func(h *holds.Hold) { h.Items[0].Decision = &holds.Decision{Action: holds.Approve} })), want: []store.FindingCode{store.HoldDiffers}},
		"closed by no entry":  {in: waiting(pending(nil).Closed(holds.Decided, 9)), want: []store.FindingCode{store.HoldDiffers}},
	} {
		var got []store.FindingCode
		for _, f := range fsck.Check(c.in) {
			t.Logf("%s: %s %s", name, f.Code, f.Message)
			if f.RunID != queued {
				t.Errorf("%s: the finding is about run %q", name, f.RunID)
			}
			got = append(got, f.Code)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
}

// codes are all codes there are.
func codes() []store.FindingCode {
	return []store.FindingCode{
		store.DueMissing, store.DueTime, store.DueStray, store.RunListMissing, store.RunListStray, store.HoldListMissing, store.HoldListStray,
		store.EnvMissing, store.ExpiryMissing, store.ExpiryUneven, store.ExpiryStray, store.RetireMissing, store.RetireStray, store.KeyMissing, store.KeyStray, store.FileIndex,
		store.RecordDamaged, store.LeaseStray, store.JournalIncomplete, store.JournalInvalid, store.HistoryInvalid, store.StatusDiffers, store.CallRepeated,
		store.HoldMissing, store.HoldDamaged, store.HoldDiffers, store.HoldStray, store.JournalOrphan, store.HoldOrphan, store.StateOrphan, store.DocumentDamaged, store.FileDamaged,
	}
}

func TestEveryCodeHasAMeaning(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range codes() {
		if m := c.Meaning(); m == string(c) || seen[m] {
			t.Errorf("%s means %q", c, m)
		}
		seen[c.Meaning()] = true
	}
}
