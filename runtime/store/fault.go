package store

import (
	"context"
	"slices"
	"strings"

	"agentos/runtime/journal"
)

// Point is a place just before or just after something becomes durable: where a
// process that dies leaves a state that another one finds.
type Point struct {
	// After says that it is written.
	After bool
	// Op is the operation: create, commit, decide or cancel.
	Op string
	// Entries are the types of the entries it writes, in order.
	Entries []journal.Type
}

// String returns "before:" or "after:" and the entries joined by "+", such as
// "after:model.answered+call.started"; without entries the operation stands for
// them.
func (p Point) String() string {
	when := "before:"
	if p.After {
		when = "after:"
	}
	if len(p.Entries) == 0 {
		return when + p.Op
	}
	names := make([]string, len(p.Entries))
	for i, e := range p.Entries {
		names[i] = string(e)
	}
	return when + strings.Join(slices.Compact(names), "+")
}

// Fault is a Store that says where it is, so that a test or the conformance kit
// can end the process there. It changes nothing else: every operation is the one
// of Store.
type Fault struct {
	Store
	// At is called at each point of an operation that writes to a run. The
	// operation goes on when it returns. After a failed operation there is no
	// after-point.
	At func(ctx context.Context, p Point)
}

var _ Store = Fault{}

// points calls At around op.
func (f Fault) points(ctx context.Context, op string, entries []journal.New, do func() error) error {
	p := Point{Op: op}
	for _, e := range entries {
		p.Entries = append(p.Entries, e.Type)
	}
	f.At(ctx, p)
	if err := do(); err != nil {
		return err
	}
	p.After = true
	f.At(ctx, p)
	return nil
}

// Create is Store.Create between two points.
func (f Fault) Create(ctx context.Context, c Create) (out Created, err error) {
	err = f.points(ctx, "create", []journal.New{c.Entry}, func() error {
		out, err = f.Store.Create(ctx, c)
		return err
	})
	return out, err
}

// Commit is Store.Commit between two points.
func (f Fault) Commit(ctx context.Context, l Lease, tx Tx) (out Committed, err error) {
	err = f.points(ctx, "commit", tx.Entries, func() error {
		out, err = f.Store.Commit(ctx, l, tx)
		return err
	})
	return out, err
}

// Decide is Store.Decide between two points.
func (f Fault) Decide(ctx context.Context, d Decide) (out Decided, err error) {
	err = f.points(ctx, "decide", d.Entries, func() error {
		out, err = f.Store.Decide(ctx, d)
		return err
	})
	return out, err
}

// Cancel is Store.Cancel between two points.
func (f Fault) Cancel(ctx context.Context, c Cancel) (requested bool, err error) {
	err = f.points(ctx, "cancel", c.Entries, func() error {
		requested, err = f.Store.Cancel(ctx, c)
		return err
	})
	return requested, err
}
