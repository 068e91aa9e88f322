// Package storetest is the proof that a driver keeps the contract of package
// store. It owns the cases, a driver brings a Harness; it knows nothing of how a
// driver stores. Only tests import it.
//
// Cases wait for facts, never for time: where time has to pass the harness moves
// the store's clock. Each case gets a Harness of its own, over a store that holds
// nothing. After each the invariants of the contract are checked on all it left
// behind.
package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"agentos/runtime/store"
)

// Harness is a driver over an empty namespace of its own: a file of its own, a
// key prefix of its own.
type Harness struct {
	// Store is the driver under test. The harness closes it with the test.
	Store store.Store
	// Advance moves the clock of the store, of every handle and after a Restart
	// too.
	Advance func(d time.Duration)
	// Frozen says that the clock moves by Advance only. Cases at the edge of a
	// moment are exact to the millisecond then, and keep clear of it else.
	Frozen bool
	// Restart closes the store, unless the case has, and opens it again on the
	// same data. It is nil for a driver that keeps nothing.
	Restart func() store.Store
	// Second opens another handle on the same data, as another process would. It
	// is nil for a driver that allows only one.
	Second func() store.Store
	// Damage removes an entry from the journal of a run behind the driver's back,
	// which the record goes on counting.
	Damage func(runID string)
	// Ruin makes the record of a run unreadable behind the driver's back, and Mend
	// makes it what it was. Hasten puts a held run in the due index long ago.
	Ruin, Mend, Hasten func(runID string)
}

// T is the part of *testing.T that cases use, so that the suite itself can be
// run against broken drivers.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// Case is one promise of the contract.
type Case struct {
	// Name is "Operation/what_is_promised".
	Name string
	run  func(k *kit)
}

// Check runs the case and then the audit; failures are reported to t.
func (c Case) Check(t T, h Harness) {
	k := newKit(t, h)
	c.run(k)
	k.audit()
}

// Run checks every case, each on a harness of its own.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Check(t, open(t))
		})
	}
}

// Cases returns all cases, grouped by operation.
func Cases() []Case {
	return slices.Concat(createCases(), claimCases(), renewCases(), commitCases(), replayCases(), decideCases(),
		cancelCases(), raceCases(), readCases(), listCases(), watchCases(), stateCases(), orderCases(), documentCases(), noticeCases(), logCases(), lifeCases())
}
