package storetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/storetest"
)

// recorder is a T that notes failures instead of failing.
type recorder struct {
	ctx context.Context //nolint:containedctx // what Context returns, as in testing.T

	mu     sync.Mutex
	faults []string
}

type stop struct{}

// A case that waits for what a broken driver never tells is ended soon, any other
// has time.
const (
	soon      = 2 * time.Second
	unhurried = time.Minute
)

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(stop{})
}

// check runs the case against the driver that wrap makes of a sound one, and
// returns what it found.
func check(t *testing.T, c storetest.Case, patience time.Duration, wrap func(store.Store) store.Store) []string {
	t.Helper()
	clock := storetest.NewClock()
	s, err := file.Open(t.Context(), file.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := &recorder{ctx: ctx}
	func() {
		defer func() {
			if p := recover(); p != nil && p != (stop{}) {
				panic(p)
			}
		}()
		c.Check(r, storetest.Harness{Store: wrap(s), Advance: clock.Advance, Frozen: true, Damage: func(string) {}})
	}()
	return r.faults
}

// broken are drivers that break one promise each, and the group of cases that
// must notice.
var broken = map[string]struct {
	group string
	wrap  func(store.Store) store.Store
}{
	"ignores epochs":              {"Commit/of_a_stale_epoch", func(s store.Store) store.Store { return ignoresEpochs{s} }},
	"ignores revisions":           {"Decide/on_another_revision", func(s store.Store) store.Store { return ignoresRevisions{s} }},
	"forgets operations":          {"Replay/", func(s store.Store) store.Store { return &forgetsOps{Store: s} }},
	"answers every repeat":        {"Replay/commit_after_the_lease", func(s store.Store) store.Store { return &answersRepeats{Store: s} }},
	"ignores the request":         {"Create/other_request", func(s store.Store) store.Store { return ignoresRequest{s} }},
	"decides after expiry":        {"Decide/at_and_after_expiry", func(s store.Store) store.Store { return expiresLate{s} }},
	"cancels under the worker":    {"Cancel/leased", func(s store.Store) store.Store { return hidesCancel{s} }},
	"hides cancel requests":       {"Commit/tells_a_cancel", func(s store.Store) store.Store { return hidesCancel{s} }},
	"gives a run to two":          {"Claim/gives_each_run", func(s store.Store) store.Store { return &claimsTwice{Store: s} }},
	"claims too many":             {"Claim/oldest_first", func(s store.Store) store.Store { return claimsAll{s} }},
	"never counts":                {"Claim/counts", func(s store.Store) store.Store { return hidesClaim{s} }},
	"never says lapsed":           {"Claim/tells_a_lapsed", func(s store.Store) store.Store { return hidesClaim{s} }},
	"never loses a lease":         {"Renew/answers_each", func(s store.Store) store.Store { return renewsAll{s} }},
	"does not renew":              {"Renew/pushes", func(s store.Store) store.Store { return renewsNone{s} }},
	"decodes numbers":             {"Commit/keeps_every_byte", func(s store.Store) store.Store { return decodes{s} }},
	"decodes state":               {"State/values", func(s store.Store) store.Store { return decodes{s} }},
	"loses the end of a page":     {"List/runs_newest", func(s store.Store) store.Store { return shortPages{s} }},
	"ignores a filter":            {"List/runs_by_filters", func(s store.Store) store.Store { return ignoresFilter{s} }},
	"ignores a filter of holds":   {"List/holds_by_filters", func(s store.Store) store.Store { return ignoresFilter{s} }},
	"watches the beginning":       {"Watch/misses", func(s store.Store) store.Store { return sleepyWatch{s} }},
	"never wakes":                 {"Wake/", func(s store.Store) store.Store { return sleepyWatch{s} }},
	"loses the last entry":        {"Read/journal", func(s store.Store) store.Store { return shortJournal{s} }},
	"shares state between scopes": {"State/scopes", func(s store.Store) store.Store { return oneScope{s} }},
	"documents know no version":   {"Document/replaced", func(s store.Store) store.Store { return &lastWins{Store: s} }},
	"a repeat is a conflict":      {"Document/repeat", func(s store.Store) store.Store { return &lastWins{Store: s, strict: true} }},
	"tells of everything":         {"Notices/only_where", func(s store.Store) store.Store { return tellsAll{s} }},
	"gives notices to all":        {"Notices/one_claim", func(s store.Store) store.Store { return &claimsTwice{Store: s} }},
	"settles what it lost":        {"Notices/a_claim_that_lapsed", func(s store.Store) store.Store { return &claimsTwice{Store: s} }},
	"appends a key twice":         {"Log/each_key", func(s store.Store) store.Store { return &forgetsOps{Store: s} }},
	"appends in any order":        {"Log/worked_out", func(s store.Store) store.Store { return appendsAlways{s} }},
	"hides damage":                {"Read/damaged", func(s store.Store) store.Store { return s }}, // Damage does nothing here
}

func TestSuiteFindsBrokenDrivers(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := broken[name]
			patience := unhurried
			if strings.HasPrefix(b.group, "Wa") { // Watch and Wake
				patience = soon
			}
			noticed, tried := 0, 0
			for _, c := range storetest.Cases() {
				if !strings.HasPrefix(c.Name, b.group) {
					continue
				}
				tried++
				if len(check(t, c, patience, b.wrap)) > 0 {
					noticed++
				}
			}
			if noticed == 0 {
				t.Errorf("none of %d cases of %s noticed", tried, b.group)
			}
		})
	}
}

// TestRecorderFindsNothing proves that the recorder and the wrapping do not make
// the faults that the test above wants.
func TestRecorderFindsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range storetest.Cases() {
		if strings.Contains(c.Name, "damage") {
			continue // Damage does nothing here
		}
		if faults := check(t, c, unhurried, func(s store.Store) store.Store { return s }); len(faults) > 0 {
			t.Errorf("%s: %s", c.Name, faults[0])
		}
	}
}

func TestCaseNamesAreUnique(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range storetest.Cases() {
		if seen[c.Name] {
			t.Errorf("%s is there twice", c.Name)
		}
		seen[c.Name] = true
	}
}

type ignoresEpochs struct{ store.Store }

func (b ignoresEpochs) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	if v, err := b.Run(ctx, l.RunID); err == nil {
		l.Epoch = v.Epoch
	}
	return b.Store.Commit(ctx, l, tx)
}

type ignoresRevisions struct{ store.Store }

func (b ignoresRevisions) Decide(ctx context.Context, d store.Decide) (store.Decided, error) {
	if h, err := b.Hold(ctx, d.Hold.ID); err == nil {
		d.Seen, d.Hold.Revision = h.Hold.Revision, h.Hold.Revision+1
	}
	return b.Store.Decide(ctx, d)
}

type forgetsOps struct {
	store.Store
	mu sync.Mutex
	n  int
}

func (b *forgetsOps) op() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	return fmt.Sprint("own", b.n)
}

func (b *forgetsOps) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	tx.Op = b.op()
	return b.Store.Commit(ctx, l, tx)
}

func (b *forgetsOps) Decide(ctx context.Context, d store.Decide) (store.Decided, error) {
	d.Op = b.op()
	return b.Store.Decide(ctx, d)
}

// answersRepeats remembers answers for ever, which is too long: the lease in them
// may be another's by now.
type answersRepeats struct {
	store.Store
	answers sync.Map
}

func (b *answersRepeats) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	if a, ok := b.answers.Load(tx.Op); ok {
		return a.(store.Committed), nil
	}
	a, err := b.Store.Commit(ctx, l, tx)
	if err == nil {
		b.answers.Store(tx.Op, a)
	}
	return a, err
}

func (b *forgetsOps) AppendLog(ctx context.Context, name string, seen int64, items ...store.LogItem) ([]string, error) {
	for i := range items {
		items[i].Key = b.op()
	}
	return b.Store.AppendLog(ctx, name, seen, items...)
}

type appendsAlways struct{ store.Store }

func (b appendsAlways) AppendLog(ctx context.Context, name string, _ int64, items ...store.LogItem) ([]string, error) {
	seen, _, err := b.LogEnd(ctx, name)
	if err != nil {
		return nil, err
	}
	return b.Store.AppendLog(ctx, name, seen, items...)
}

type tellsAll struct{ store.Store }

func (b tellsAll) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	tx.Notify = true
	return b.Store.Commit(ctx, l, tx)
}

type ignoresRequest struct{ store.Store }

func (b ignoresRequest) Create(ctx context.Context, c store.Create) (store.Created, error) {
	c.Request = ""
	return b.Store.Create(ctx, c)
}

// expiresLate has holds expire a day after what they say.
type expiresLate struct{ store.Store }

func (b expiresLate) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	if tx.Hold != nil && tx.Hold.Status == holds.Pending {
		h := *tx.Hold
		h.ExpiresAt = h.ExpiresAt.Add(24 * time.Hour)
		tx.Hold = &h
	}
	return b.Store.Commit(ctx, l, tx)
}

type hidesCancel struct{ store.Store }

func (b hidesCancel) Cancel(ctx context.Context, c store.Cancel) (bool, error) {
	_, err := b.Store.Cancel(ctx, c)
	return false, err
}

func (b hidesCancel) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	a, err := b.Store.Commit(ctx, l, tx)
	a.CancelBy = ""
	return a, err
}

type claimsTwice struct {
	store.Store
	mu   sync.Mutex
	last []store.Claimed
}

func (b *claimsTwice) Claim(ctx context.Context, n int, ttl time.Duration) ([]store.Claimed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	got, err := b.Store.Claim(ctx, n, ttl)
	if n > 1 && len(b.last) > 0 {
		again := b.last
		b.last = nil
		return append(got, again...), err
	}
	b.last = got
	return got, err
}

func (b *claimsTwice) Notices(ctx context.Context, n int, _ time.Duration) ([]store.Notice, error) {
	return b.Store.Notices(ctx, n, time.Millisecond)
}

func (b *claimsTwice) Settle(ctx context.Context, n store.Settled) error {
	if err := b.Store.Settle(ctx, n); !errors.Is(err, store.ErrLeaseLost) {
		return err
	}
	return nil
}

type claimsAll struct{ store.Store }

func (b claimsAll) Claim(ctx context.Context, _ int, ttl time.Duration) ([]store.Claimed, error) {
	return b.Store.Claim(ctx, 100, ttl)
}

type hidesClaim struct{ store.Store }

func (b hidesClaim) Claim(ctx context.Context, n int, ttl time.Duration) ([]store.Claimed, error) {
	got, err := b.Store.Claim(ctx, n, ttl)
	for i := range got {
		got[i].Record.Idle, got[i].Lapsed = 1, false
	}
	return got, err
}

type renewsAll struct{ store.Store }

func (b renewsAll) Renew(ctx context.Context, leases []store.Lease, ttl time.Duration) ([]store.Renewal, error) {
	got, err := b.Store.Renew(ctx, leases, ttl)
	for i := range got {
		got[i].Lost = false
	}
	return got, err
}

type renewsNone struct{ store.Store }

func (b renewsNone) Renew(_ context.Context, leases []store.Lease, ttl time.Duration) ([]store.Renewal, error) {
	out := make([]store.Renewal, len(leases))
	for i, l := range leases {
		l.Expires = l.Expires.Add(ttl)
		out[i].Lease = l
	}
	return out, nil
}

// decodes passes JSON through Go values, as is usual and wrong.
type decodes struct{ store.Store }

func through(raw json.RawMessage) json.RawMessage {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}

func (b decodes) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	for i := range tx.Entries {
		tx.Entries[i].Data = through(tx.Entries[i].Data)
	}
	return b.Store.Commit(ctx, l, tx)
}

func (b decodes) PutState(ctx context.Context, scope, key string, value json.RawMessage) error {
	return b.Store.PutState(ctx, scope, key, through(value))
}

type shortPages struct{ store.Store }

func (b shortPages) Runs(ctx context.Context, f store.RunFilter, p store.Page) ([]store.View, string, error) {
	rows, next, err := b.Store.Runs(ctx, f, p)
	if next != "" {
		rows = rows[:len(rows)-1]
	}
	return rows, next, err
}

type ignoresFilter struct{ store.Store }

func (b ignoresFilter) Runs(ctx context.Context, f store.RunFilter, p store.Page) ([]store.View, string, error) {
	f.Capability = ""
	return b.Store.Runs(ctx, f, p)
}

func (b ignoresFilter) Holds(ctx context.Context, f store.HoldFilter, p store.Page) ([]holds.Hold, string, error) {
	f.OpenedBefore = time.Time{}
	return b.Store.Holds(ctx, f, p)
}

type sleepyWatch struct{ store.Store }

func (b sleepyWatch) Watch(context.Context, string) (<-chan struct{}, error) {
	ch := make(chan struct{}, 1)
	ch <- struct{}{}
	return ch, nil
}

func (b sleepyWatch) Wake(context.Context) (<-chan struct{}, error) { return make(chan struct{}), nil }

type shortJournal struct{ store.Store }

func (b shortJournal) Journal(ctx context.Context, id string, after int64) ([]journal.Entry, error) {
	list, err := b.Store.Journal(ctx, id, after)
	if len(list) > 1 {
		list = list[:len(list)-1]
	}
	return list, err
}

type oneScope struct{ store.Store }

func (b oneScope) PutState(ctx context.Context, _, key string, value json.RawMessage) error {
	return b.Store.PutState(ctx, "all", key, value)
}

func (b oneScope) GetState(ctx context.Context, _, key string) (json.RawMessage, error) {
	return b.Store.GetState(ctx, "all", key)
}

func (b oneScope) DeleteState(ctx context.Context, _, key string) error {
	return b.Store.DeleteState(ctx, "all", key)
}

// lastWins sets documents whatever their version is, or only in turn when strict.
type lastWins struct {
	store.Store
	strict bool
}

func (l *lastWins) SetDocument(ctx context.Context, env, name string, d store.Document) error {
	was, err := l.Document(ctx, env, name)
	if err != nil {
		return err
	}
	if l.strict && was.Version != d.Version-1 {
		return store.ErrConflict
	}
	d.Version = was.Version + 1
	return l.Store.SetDocument(ctx, env, name, d)
}
