// Package fsck checks that a store keeps its invariants: that indexes agree with
// records, and that records, journals and holds tell one story. It owns the
// comparison and the order of the check; what a driver keeps beside the contract
// (indexes, expiries, orphans) the driver inspects itself. Others may work with
// the store meanwhile. Only cmd/agentos uses it.
package fsck

import (
	"context"
	"errors"
	"time"

	"agentos/internal/clock"
	"agentos/runtime/store"
)

// pause is how long after the first look at a page the second one follows. Parts
// of a finished run that expire together are gone one after the other, within
// milliseconds.
const pause = 50 * time.Millisecond

// Options say what to check.
type Options struct {
	// Store is checked. Required, as is Clock, which only paces the second look.
	Store store.Inspector
	Clock clock.Clock
	// Repair sets indexes right from the records. Records, journals and holds are
	// never changed, and nothing is repaired of a run whose record, journal and
	// holds do not agree: what its indexes should say is in doubt then.
	Repair bool
	// Report is called with each finding once, from the goroutine of Run; its
	// error ends the check. Required.
	Report func(store.Finding) error
	// Progress, when set, is called after each page.
	Progress func(Summary)
}

// Summary counts what was checked.
type Summary struct {
	// Runs is the number of runs that were inspected. A run that the store shows
	// more than once is counted as often.
	Runs int `json:"runs"`
	// Findings counts all breaches, Repaired those among them that are repaired.
	Findings int `json:"findings"`
	Repaired int `json:"repaired"`
}

// Clean reports whether no breach remains.
func (s Summary) Clean() bool { return s.Findings == s.Repaired }

// Run checks the store. A breach is reported when it is there in two looks, each
// of which reads a run at one moment, so work that goes on is not taken for
// damage. An error means that the check did not come to its end.
func Run(ctx context.Context, o Options) (Summary, error) {
	if o.Store == nil || o.Clock == nil || o.Report == nil {
		return Summary{}, errors.New("fsck: Options.Store, Clock and Report are required")
	}
	r := &runner{Options: o, told: map[key]bool{}}
	err := o.Store.Traces(ctx, func(page []store.Trace) error { return r.page(ctx, page) })
	return r.sum, err
}

// key tells breaches apart. Messages do not, where there is a run: they have
// numbers that move.
type key struct {
	code      store.FindingCode
	run, hold string
	message   string
}

func keyOf(f store.Finding) key {
	k := key{code: f.Code, run: f.RunID, hold: f.HoldID}
	if f.RunID == "" {
		k.message = f.Message
	}
	return k
}

// runner is one check under way.
type runner struct {
	Options
	sum Summary
	// told are the breaches that were reported: no more than there is damage.
	told map[key]bool
}

// page looks at each trace, and again at those with a breach.
func (r *runner) page(ctx context.Context, page []store.Trace) error {
	var suspects []suspect
	for _, t := range page {
		in, err := r.Store.Inspect(ctx, t, false)
		if err != nil {
			return err
		}
		if in.Record != nil && t.Part == "" {
			r.sum.Runs++
		}
		s := suspect{Trace: t, first: map[key]bool{}, repair: r.Repair}
		for _, f := range findings(in) {
			s.first[keyOf(f)] = true
			s.repair = s.repair && f.Code.Repairable()
		}
		if len(s.first) > 0 {
			suspects = append(suspects, s)
		}
	}
	if len(suspects) > 0 {
		select {
		case <-r.Clock.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, s := range suspects {
		if err := r.again(ctx, s); err != nil {
			return err
		}
	}
	if r.Progress != nil {
		r.Progress(r.sum)
	}
	return nil
}

// suspect is a trace with breaches at the first look, which may be repaired at the
// second.
type suspect struct {
	store.Trace
	first  map[key]bool
	repair bool
}

// again looks a second time, repairs if it may, and reports what was there both
// times. Whatever was repaired is reported in any case.
func (r *runner) again(ctx context.Context, s suspect) error {
	in, err := r.Store.Inspect(ctx, s.Trace, s.repair)
	if err != nil {
		return err
	}
	for _, f := range findings(in) {
		k := keyOf(f)
		if !f.Repaired && (!s.first[k] || r.told[k]) {
			continue
		}
		r.told[k] = true
		r.sum.Findings++
		if f.Repaired {
			r.sum.Repaired++
		}
		if err := r.Report(f); err != nil {
			return err
		}
	}
	return nil
}

func findings(in store.Inspection) []store.Finding {
	return append(in.Findings, Check(in)...)
}
