package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// failing answers every write with err; what it does not have is not called.
type failing struct {
	store.Store
	err error
}

func (f failing) Create(context.Context, store.Create) (store.Created, error) {
	return store.Created{Existing: true}, f.err
}

func (f failing) Commit(context.Context, store.Lease, store.Tx) (store.Committed, error) {
	return store.Committed{CancelBy: "c"}, f.err
}

func (f failing) Decide(context.Context, store.Decide) (store.Decided, error) {
	return store.Decided{Lease: store.Lease{Epoch: 7}}, f.err
}

func (f failing) Cancel(context.Context, store.Cancel) (bool, error) { return true, f.err }

// Each write passes a point before and, when it succeeded, one after it, and its
// answer comes through unchanged.
func TestFaultPoints(t *testing.T) {
	t.Parallel()
	entries := func(types ...journal.Type) []journal.New {
		var out []journal.New
		for _, ty := range types {
			out = append(out, journal.New{Type: ty})
		}
		return out
	}
	broken := errors.New("broken")
	for _, cause := range []error{nil, broken} {
		var got []string
		f := store.Fault{Store: failing{err: cause}, At: func(_ context.Context, p store.Point) { got = append(got, p.String()) }}
		created, err1 := f.Create(t.Context(), store.Create{Entry: journal.New{Type: journal.RunCreated}})
		committed, err2 := f.Commit(t.Context(), store.Lease{}, store.Tx{Entries: entries(journal.ModelAnswered, journal.CallStarted, journal.CallStarted)})
		_, err3 := f.Commit(t.Context(), store.Lease{}, store.Tx{})
		decided, err4 := f.Decide(t.Context(), store.Decide{Entries: entries(journal.HoldDecided, journal.HoldClosed)})
		requested, err5 := f.Cancel(t.Context(), store.Cancel{Entries: entries(journal.RunCancelled)})
		for i, err := range []error{err1, err2, err3, err4, err5} {
			if !errors.Is(err, cause) {
				t.Errorf("write %d: %v, want %v", i+1, err, cause)
			}
		}
		if !created.Existing || committed.CancelBy != "c" || decided.Lease.Epoch != 7 || !requested {
			t.Errorf("answers: %+v %+v %+v %t", created, committed, decided, requested)
		}
		var want []string
		for _, name := range []string{"run.created", "model.answered+call.started", "commit", "hold.decided+hold.closed", "run.cancelled"} {
			want = append(want, "before:"+name)
			if cause == nil {
				want = append(want, "after:"+name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("points with error %v (-want +got):\n%s", cause, diff)
		}
	}
}
