package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// ttl is the lease that cases give: long, so that a clock that runs by itself
// does not end it.
const ttl = time.Minute

// kit is what a case works with.
type kit struct {
	T
	h   Harness
	s   store.Store
	ctx context.Context //nolint:containedctx // the test's, as in testing.T
	ops atomic.Int64
	// damaged are runs whose journal the case has broken.
	damaged map[string]bool
}

func newKit(t T, h Harness) *kit {
	return &kit{T: t, h: h, s: h.Store, ctx: t.Context(), damaged: map[string]bool{}}
}

// op returns an operation token nobody has used.
func (k *kit) op() string { return fmt.Sprintf("op%d", k.ops.Add(1)) }

// runID returns a run id that is valid and tells its number.
func runID(n int) string { return fmt.Sprintf("r_%026d", n) }

// entry makes an entry whose data tells it from others.
func entry(t journal.Type, text string) journal.New {
	data, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		panic(err) // strings encode
	}
	return journal.New{Type: t, Data: data}
}

// entries makes n entries of a run that goes on.
func entries(n int) []journal.New {
	out := make([]journal.New, n)
	for i := range out {
		out[i] = entry(journal.ModelAnswered, fmt.Sprint("answer ", i))
	}
	return out
}

// creation is a run that differs from others in its id only.
func (k *kit) creation(id string, lease time.Duration) store.Create {
	return store.Create{
		Op: k.op(), RunID: id, Request: "sha256:" + id, Env: "prod", Agent: "clerk", Capability: "answer", SessionID: "s1",
		Entry: entry(journal.RunCreated, id), Summary: json.RawMessage(`{"for":"lists"}`), Lease: lease,
	}
}

func (k *kit) create(id string, lease time.Duration) store.Created {
	k.Helper()
	return k.createAs(k.creation(id, lease))
}

func (k *kit) createAs(c store.Create) store.Created {
	k.Helper()
	got, err := k.s.Create(k.ctx, c)
	k.ok(err)
	return got
}

func (k *kit) claim(n int) []store.Claimed {
	k.Helper()
	got, err := k.s.Claim(k.ctx, n, ttl)
	k.ok(err)
	return got
}

// claimOnly claims, and wants exactly the run.
func (k *kit) claimOnly(id string) store.Claimed {
	k.Helper()
	got := k.claim(10)
	if len(got) != 1 || got[0].Record.ID != id {
		k.Fatalf("claimed %v, want only %s", claimedIDs(got), id)
	}
	return got[0]
}

func (k *kit) claimNone(why string) {
	k.Helper()
	if got := k.claim(10); len(got) != 0 {
		k.Fatalf("%s: claimed %v, want none", why, claimedIDs(got))
	}
}

func claimedIDs(list []store.Claimed) []string {
	var ids []string
	for _, c := range list {
		ids = append(ids, c.Record.ID)
	}
	return ids
}

func (k *kit) commit(l store.Lease, tx store.Tx) store.Committed {
	k.Helper()
	if tx.Op == "" {
		tx.Op = k.op()
	}
	got, err := k.s.Commit(k.ctx, l, tx)
	k.ok(err)
	return got
}

// finish completes a run.
func (k *kit) finish(l store.Lease) {
	k.Helper()
	k.commit(l, completed())
}

func completed() store.Tx {
	return store.Tx{Status: store.Completed, Entries: []journal.New{entry(journal.RunCompleted, "done")}}
}

// running is a commit that goes on.
func running(n int) store.Tx {
	return store.Tx{Status: store.Running, Entries: entries(n), Lease: ttl}
}

// hold makes the n-th hold of a run with two items.
func hold(runID string, n int, revision int64, created time.Time, open time.Duration) holds.Hold {
	return holds.Hold{
		ID: store.HoldID(runID, n), RunID: runID, Env: "prod", Agent: "clerk", Capability: "answer",
		Kind: holds.ToolCall, Status: holds.Pending, Intent: "refund <b>&\u2028 42", Actions: holds.Actions(holds.ToolCall),
		Items: []holds.Item{
			{ID: "call_1", Title: "refund", Server: "orders", Tool: "refund", Data: json.RawMessage(awkward)},
			{ID: "call_2", Title: "mail", Server: "mail", Tool: "send", Data: json.RawMessage(`{"to":"a@b.c"}`), Rules: []string{"r1"}},
		},
		Revision: revision, CreatedAt: created, ExpiresAt: created.Add(open),
	}
}

// awkward is JSON that most ways of storing change: integers beyond 2^53, other
// spellings of numbers, names in an order of their own, escapes, characters
// outside the BMP and those that HTML or JavaScript are afraid of.
const awkward = `{"z":9007199254740993,"a":12345678901234567890.10,"n":-0.0,"e":1E+2,"s":"<&> é \u00e9 🦊 \ud83e\udd8a \u2028 ` +
	"\u2028" + `","nil":null,"empty":{},"list":[]}`

// held creates a run that waits on a hold which is open for the time given.
func (k *kit) held(id string, open time.Duration) holds.Hold {
	k.Helper()
	c := k.create(id, ttl)
	h := hold(id, 1, 2, c.Entry.At, open)
	k.commit(c.Lease, store.Tx{Status: store.Held, Hold: &h, Entries: []journal.New{entry(journal.HoldOpened, h.ID)}})
	return h
}

// decision decides one item of h, or all.
func (k *kit) decision(h holds.Hold, all bool, lease time.Duration) store.Decide {
	d := store.Decide{Op: k.op(), Seen: h.Revision, Lease: lease, Entries: []journal.New{entry(journal.HoldDecided, h.ID)}}
	h.Items = append([]holds.Item(nil), h.Items...)
	for i := range h.Items {
		if h.Items[i].Decision == nil {
			h.Items[i].Decision = &holds.Decision{Action: holds.Approve, By: "ann", At: h.CreatedAt}
			if !all {
				break
			}
		}
	}
	h.Revision++
	if len(h.Pending()) == 0 {
		h.Status = holds.Decided
		h.Revision++
		d.Entries = append(d.Entries, entry(journal.HoldClosed, h.ID))
	}
	d.Hold = h
	return d
}

// cancellation cancels a run at seen entries, with its hold if it has one.
func (k *kit) cancellation(id string, seen int64, h *holds.Hold) store.Cancel {
	c := store.Cancel{Op: k.op(), RunID: id, By: "ann", Seen: seen, Entries: []journal.New{entry(journal.RunCancelled, "ann")}}
	if h != nil {
		closed := h.Closed(holds.Cancelled, seen+1)
		c.Hold = &closed
	}
	return c
}

func (k *kit) view(id string) store.View {
	k.Helper()
	v, err := k.s.Run(k.ctx, id)
	k.ok(err)
	return v
}

func (k *kit) journal(id string) []journal.Entry {
	k.Helper()
	list, err := k.s.Journal(k.ctx, id, 0)
	k.ok(err)
	return list
}

func (k *kit) holdOf(id string) holds.Hold {
	k.Helper()
	h, err := k.s.Hold(k.ctx, id)
	k.ok(err)
	return h.Hold
}

// restart goes on with the store reopened, if the driver can.
func (k *kit) restart() {
	if k.h.Restart != nil {
		k.s = k.h.Restart()
	}
}

// handles are the store and, if the driver allows it, a second handle.
func (k *kit) handles() []store.Store {
	if k.h.Second == nil {
		return []store.Store{k.s, k.s}
	}
	return []store.Store{k.s, k.h.Second()}
}

// nearly is the time before a moment at which it has not come yet.
func (k *kit) nearly() time.Duration {
	if k.h.Frozen {
		return time.Millisecond
	}
	return 30 * time.Second
}

func (k *kit) ok(err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("unexpected error: %v", err)
	}
}

// refused wants the error of the contract, and none other.
func (k *kit) refused(err, want error) {
	k.Helper()
	for _, e := range contractErrors {
		if errors.Is(err, e) != errors.Is(e, want) {
			k.Fatalf("error is %v, want %v", err, want)
		}
	}
}

var contractErrors = []error{
	store.ErrNotFound, store.ErrIdempotencyConflict, store.ErrLeaseLost, store.ErrConflict,
	store.ErrLocked, store.ErrDamaged, store.ErrUnavailable,
}

// invalid wants an error that is the caller's fault.
func (k *kit) invalid(what string, err error) {
	k.Helper()
	if err == nil {
		k.Fatalf("%s: accepted", what)
	}
	for _, e := range contractErrors {
		if errors.Is(err, e) {
			k.Fatalf("%s: error is %v, want one that is the caller's fault", what, err)
		}
	}
}

// rawEqual compares JSON by its bytes, and quickly. nil and empty are the same.
var rawEqual = cmp.Comparer(func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })

func (k *kit) equal(what string, got, want any) {
	k.Helper()
	if diff := cmp.Diff(want, got, rawEqual); diff != "" {
		k.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func (k *kit) sameBytes(what string, got, want []byte) {
	k.Helper()
	if !bytes.Equal(got, want) {
		k.Fatalf("%s: %d bytes %.200q, want %d bytes %.200q", what, len(got), got, len(want), want)
	}
}

// types wants the journal of the run to have the types, in order.
func (k *kit) types(id string, want ...journal.Type) {
	k.Helper()
	var got []journal.Type
	for _, e := range k.journal(id) {
		got = append(got, e.Type)
	}
	k.equal("journal of "+id, got, want)
}

// together calls f n times at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}
