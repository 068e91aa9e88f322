package fsck_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/ids"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = time.Hour

// runID returns a run id that tells its number.
func runID(n int) string { return fmt.Sprintf("r_%026d", n) }

// The runs of a world, one in each state.
var (
	queued    = runID(1)
	running   = runID(2) // leased, in the middle of a call
	held      = runID(3)
	completed = runID(4) // after a hold that was approved
	cancelled = runID(5) // while it was held
	failed    = runID(6) // after a hold that expired in a claim's hands, and a retry
	parked    = runID(7) // for its model, after a call; without a lease
	keyed     = runID(8) // queued, with an idempotency key
)

// theKey is the idempotency key of keyed: runs end with theirs.
var theKey = keyed[len(keyed)-ids.KeyLength:]

func holdOf(run string) string { return store.HoldID(run, 1) }

// author writes runs as the engine does.
type author struct {
	t     testing.TB
	s     store.Store
	ops   int
	lease map[string]store.Lease
	hold  map[string]holds.Hold
	// seq is the number of entries, now the time of the newest.
	seq map[string]int64
	now time.Time
}

func newAuthor(tb testing.TB, s store.Store) *author {
	tb.Helper()
	return &author{t: tb, s: s, lease: map[string]store.Lease{}, hold: map[string]holds.Hold{}, seq: map[string]int64{}}
}

func (a *author) ok(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *author) op() string {
	a.ops++
	return fmt.Sprintf("%p-%d", a, a.ops)
}

func encode(tb testing.TB, typ journal.Type, v any) journal.New {
	tb.Helper()
	n, err := journal.Encode(typ, v)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func created(tb testing.TB) journal.New {
	tb.Helper()
	return encode(tb, journal.RunCreated, journal.Created{Agent: "clerk", Capability: "answer", Input: json.RawMessage(`{}`), Prompt: "go"})
}

// create makes a run, leased unless lease is 0.
func (a *author) create(id string, lease time.Duration) {
	a.t.Helper()
	a.createWith(id, "", lease)
}

func (a *author) createWith(id, key string, lease time.Duration) {
	a.t.Helper()
	c, err := a.s.Create(a.t.Context(), store.Create{
		Op: a.op(), RunID: id, Key: key, Request: "sha256:" + id, Env: "prod", Agent: "clerk", Capability: "answer", SessionID: "s1",
		Entry: created(a.t), Summary: json.RawMessage(`{}`), Lease: lease,
	})
	a.ok(err)
	a.lease[id], a.seq[id], a.now = c.Lease, 1, c.Entry.At
}

func (a *author) commit(id string, tx store.Tx) {
	a.t.Helper()
	tx.Op = a.op()
	if tx.Status == store.Running && tx.Due == 0 {
		tx.Lease = ttl
	}
	c, err := a.s.Commit(a.t.Context(), a.lease[id], tx)
	a.ok(err)
	a.lease[id] = c.Lease
	a.seq[id] += int64(len(tx.Entries))
}

func (a *author) entries(id string, entries ...journal.New) {
	a.t.Helper()
	a.commit(id, store.Tx{Status: store.Running, Entries: entries})
}

// answer is a model's answer that asks for one call, which policy asks about.
func answer(tb testing.TB) journal.New {
	tb.Helper()
	return encode(tb, journal.ModelAnswered, journal.Answered{
		Turn:    1,
		Message: json.RawMessage(`{"role":"assistant","tool_calls":[{"id":"p1","type":"function","function":{"name":"refund","arguments":"{}"}}]}`),
		Calls: []journal.Asked{{
			ID: "call_1", ProviderID: "p1", Name: "refund", Server: "orders", Tool: "refund",
			Arguments: json.RawMessage(`{"n":9007199254740993}`), Verdict: policy.Verdict{Effect: policy.Ask},
		}},
	})
}

func started(tb testing.TB, effect string) journal.New {
	tb.Helper()
	return encode(tb, journal.CallStarted, journal.Started{
		Call: "call_1", Server: "orders", Tool: "refund", Arguments: json.RawMessage(`{"n":9007199254740993}`), Effect: effect,
	})
}

func finished(tb testing.TB) journal.New {
	tb.Helper()
	return encode(tb, journal.CallFinished, journal.Finished{Call: "call_1", Outcome: journal.Success, Text: "done"})
}

// open holds the run on its call.
func (a *author) open(id string, kind holds.Kind) {
	a.t.Helper()
	h := holds.Hold{
		ID: holdOf(id), RunID: id, Env: "prod", Agent: "clerk", Capability: "answer", Kind: kind, Status: holds.Pending,
		Intent: "Run refund?", Actions: holds.Actions(kind),
		Items:    []holds.Item{{ID: "call_1", Title: "refund", Server: "orders", Tool: "refund", Data: json.RawMessage(`{"n":9007199254740993}`)}},
		Revision: a.seq[id] + 1, CreatedAt: a.now, ExpiresAt: a.now.Add(24 * time.Hour), OnExpire: policy.RejectOnExpire,
	}
	a.hold[id] = h
	a.commit(id, store.Tx{Status: store.Held, Hold: &h, Entries: []journal.New{encode(a.t, journal.HoldOpened, journal.Opened{Hold: h})}})
}

func (a *author) decide(id string, action holds.Action) {
	a.t.Helper()
	h := a.hold[id]
	next, changed, err := holds.Apply(h, holds.Post{By: "ann", Decisions: []holds.ItemDecision{{ID: "call_1", Action: action}}}, a.now)
	a.ok(err)
	if !changed {
		a.t.Fatal("the decision changed nothing")
	}
	next.Revision = a.seq[id] + 2
	d, err := a.s.Decide(a.t.Context(), store.Decide{
		Op: a.op(), Hold: next, Seen: h.Revision, Lease: ttl, Entries: []journal.New{
			encode(a.t, journal.HoldDecided, journal.HoldDecision{HoldID: h.ID, By: "ann", Items: []journal.DecidedItem{
				{ID: "call_1", Proposed: h.Items[0].Data, Decision: *next.Items[0].Decision},
			}}),
			encode(a.t, journal.HoldClosed, journal.Closed{HoldID: h.ID, Why: holds.Decided}),
		},
	})
	a.ok(err)
	a.lease[id], a.hold[id] = d.Lease, next
	a.seq[id] += 2
}

func (a *author) cancel(id string) {
	a.t.Helper()
	closed := a.hold[id].Closed(holds.Cancelled, a.seq[id]+2)
	_, err := a.s.Cancel(a.t.Context(), store.Cancel{
		Op: a.op(), RunID: id, By: "ann", Seen: a.seq[id], Hold: &closed, Entries: []journal.New{
			encode(a.t, journal.HoldClosed, journal.Closed{HoldID: closed.ID, Why: holds.Cancelled}),
			encode(a.t, journal.RunCancelled, journal.Cancel{By: "ann"}),
		},
	})
	a.ok(err)
}

func (a *author) complete(id string) {
	a.t.Helper()
	a.commit(id, store.Tx{Status: store.Completed, Entries: []journal.New{
		encode(a.t, journal.RunCompleted, journal.Completed{Output: json.RawMessage(`{"ok":true}`)}),
	}})
}

// approved takes a run from nothing to its end, with a hold on the way.
func (a *author) approved(id string) {
	a.t.Helper()
	a.create(id, ttl)
	a.entries(id, answer(a.t))
	a.open(id, holds.ToolCall)
	a.decide(id, holds.Approve)
	a.entries(id, started(a.t, "once"))
	a.entries(id, finished(a.t))
	a.complete(id)
}

// world makes every run of a world.
func world(tb testing.TB, s store.Store) {
	tb.Helper()
	a := newAuthor(tb, s)
	a.create(queued, 0)
	a.create(running, ttl)
	a.entries(running, answer(tb), started(tb, "once"))
	a.create(held, ttl)
	a.entries(held, answer(tb))
	a.open(held, holds.ToolCall)
	a.approved(completed)
	a.create(cancelled, ttl)
	a.entries(cancelled, answer(tb))
	a.open(cancelled, holds.ToolCall)
	a.cancel(cancelled)
	a.create(failed, ttl)
	a.entries(failed, answer(tb), started(tb, "once"))
	a.open(failed, holds.OutcomeUnknown)
	a.decide(failed, holds.Retry)
	a.entries(failed, started(tb, "once"))
	a.commit(failed, store.Tx{Status: store.Failed, Entries: []journal.New{
		encode(tb, journal.RunFailed, journal.Failed{Error: journal.Fault{Code: "timeout", Message: "too slow"}}),
	}})
	a.create(parked, ttl)
	a.entries(parked, answer(tb), started(tb, "once"), finished(tb))
	a.commit(parked, store.Tx{Status: store.Running, Due: time.Minute})
	a.createWith(keyed, theKey, 0)
	a.ok(s.SetDocument(tb.Context(), "prod", "keys", store.Document{Version: 1, Text: json.RawMessage(`{}`)}))
	a.ok(s.PutState(tb.Context(), "run/"+held, "k", json.RawMessage(`1`)))
	a.ok(s.PutState(tb.Context(), "session/prod/clerk/s1", "k", json.RawMessage(`1`)))
}

// entriesOf is a journal as a store hands it out.
func entriesOf(list ...journal.New) []journal.Entry {
	out := make([]journal.Entry, len(list))
	for i, n := range list {
		out[i] = journal.Entry{Seq: int64(i) + 1, At: time.Unix(0, 0).UTC(), Type: n.Type, Data: n.Data}
	}
	return out
}

func replace(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
