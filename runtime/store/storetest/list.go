package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"agentos/holds"
	"agentos/internal/problem"
	"agentos/runtime/store"
)

func listCases() []Case {
	return []Case{
		{"List/runs_newest_first", listRuns},
		{"List/runs_by_filters_alone_and_together", listRunFilters},
		{"List/runs_while_runs_are_added", listWhileAdded},
		{"List/holds_newest_first", listHolds},
		{"List/holds_by_filters_alone_and_together", listHoldFilters},
		{"List/nothing", listNothing},
		{"List/refuses_bad_pages", listRefuses},
	}
}

func listRuns(k *kit) {
	const runs = 320
	var want []string
	for n := range runs {
		k.create(runID(n), 0)
		want = append(want, runID(n))
		if n%3 > 0 { // some share a millisecond
			k.h.Advance(time.Millisecond)
		}
	}
	slices.Sort(want)
	for _, limit := range []int{1, 7, 100, 200} {
		if limit == 1 && !k.h.Frozen {
			continue // many round trips that prove nothing new
		}
		views := k.allRuns(store.RunFilter{}, limit)
		for i := 1; i < len(views); i++ {
			if views[i].CreatedAt.After(views[i-1].CreatedAt) {
				k.Fatalf("limit %d: place %d is newer than the one before", limit, i)
			}
		}
		k.equal("runs listed", sortedIDs(views), want)
	}
}

func sortedIDs(views []store.View) []string {
	var ids []string
	for _, v := range views {
		ids = append(ids, v.ID)
	}
	slices.Sort(ids)
	return ids
}

// spread creates runs that differ in everything filters look at, and returns
// them as they stand.
func (k *kit) spread() []store.View {
	var all []store.View
	for n := range 48 {
		c := k.creation(runID(n), ttl)
		c.Env = []string{"prod", "dev"}[n%2]
		c.Agent = []string{"clerk", "cook", "judge"}[n%3]
		c.Capability = []string{"answer", "file"}[n/2%2]
		c.SessionID = []string{"", "s1", "s2"}[n/3%3]
		l := k.createAs(c).Lease
		switch n % 5 {
		case 1:
			k.finish(l)
		case 2:
			h := hold(c.RunID, 1, 2, k.view(c.RunID).CreatedAt, 100*time.Hour)
			h.Env, h.Agent = c.Env, c.Agent
			k.commit(l, store.Tx{Status: store.Held, Hold: &h, Entries: entries(1)})
		case 3:
			k.commit(l, store.Tx{Status: store.Queued})
		case 4:
			h := hold(c.RunID, 1, 2, k.view(c.RunID).CreatedAt, 100*time.Hour)
			h.Env, h.Agent = c.Env, c.Agent
			k.commit(l, store.Tx{Status: store.Held, Hold: &h, Entries: entries(1)})
			k.decide(k.decision(h, true, ttl))
		}
		all = append(all, k.view(c.RunID))
		k.h.Advance(time.Millisecond)
	}
	slices.Reverse(all)
	return all
}

func listRunFilters(k *kit) {
	all := k.spread()
	for _, f := range []store.RunFilter{
		{Env: "prod"},
		{Agent: "cook"},
		{Capability: "file"},
		{SessionID: "s2"},
		{Status: store.Completed},
		{Status: store.Held},
		{Status: store.Running},
		{Status: store.Queued},
		{Status: store.Failed},
		{Env: "de"},
		{Env: "*"},
		{Agent: "clerk' OR 1"},
		{Env: "dev", Agent: "judge"},
		{Env: "prod", Status: store.Held},
		{Agent: "clerk", Capability: "answer"},
		{SessionID: "s1", Status: store.Completed},
		{Env: "dev", Agent: "cook", Capability: "file", SessionID: "s1"},
		{Env: "prod", Agent: "clerk", Capability: "answer", SessionID: "s1", Status: store.Running},
		{Agent: "judge", Status: store.Queued},
		{Capability: "file", Status: store.Held},
	} {
		var want []store.View
		for _, v := range all {
			if matches(f.Env, v.Env) && matches(f.Agent, v.Agent) && matches(f.Capability, v.Capability) &&
				matches(f.SessionID, v.SessionID) && matches(f.Status, v.Status) {
				want = append(want, v)
			}
		}
		for _, limit := range []int{3, 200} {
			k.equal(fmt.Sprintf("runs with %+v by %d", f, limit), k.allRuns(f, limit), want)
		}
	}
}

func matches[S ~string](want, have S) bool { return want == "" || want == have }

// listWhileAdded pages through while others write: what was there at the start
// comes exactly once.
func listWhileAdded(k *kit) {
	const before = 300
	for n := range before {
		k.create(runID(n), 0)
	}
	k.h.Advance(time.Second)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for n := before; n < 3*before; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := k.s.Create(k.ctx, k.creation(runID(n), 0)); err != nil {
				k.Errorf("create: %v", err)
				return
			}
		}
	})
	seen := map[string]int{}
	for _, v := range k.allRuns(store.RunFilter{Env: "prod"}, 25) {
		seen[v.ID]++
	}
	close(stop)
	wg.Wait()
	for n := range before {
		if seen[runID(n)] != 1 {
			k.Errorf("%s was listed %d times", runID(n), seen[runID(n)])
		}
	}
	for id, n := range seen {
		if n != 1 {
			k.Errorf("%s was listed %d times", id, n)
		}
	}
}

func listHolds(k *kit) {
	const runs = 110
	for n := range runs {
		k.held(runID(n), 10*time.Hour)
		k.h.Advance(time.Millisecond)
	}
	for _, limit := range []int{9, 200} {
		list := k.allHolds(store.HoldFilter{}, limit)
		k.equal("holds", len(list), runs)
		for i, h := range list {
			k.equal("hold", h.ID, store.HoldID(runID(runs-1-i), 1))
		}
	}
	k.equal("pending", len(k.allHolds(store.HoldFilter{Status: holds.Pending}, 50)), runs)
}

func listHoldFilters(k *kit) {
	k.spread()
	all := k.allHolds(store.HoldFilter{}, 200)
	k.equal("holds", len(all), 19)
	middle := all[len(all)/2].CreatedAt
	for _, f := range []store.HoldFilter{
		{Env: "prod"},
		{Agent: "cook"},
		{Status: holds.Pending},
		{Status: holds.Decided},
		{Status: holds.Expired},
		{OpenedBefore: middle},
		{OpenedBefore: all[0].CreatedAt.Add(time.Hour)},
		{OpenedBefore: all[len(all)-1].CreatedAt},
		{Env: "x"},
		{Env: "prod", Agent: "clerk"},
		{Env: "dev", Status: holds.Pending},
		{Agent: "judge", Status: holds.Decided},
		{Env: "prod", Status: holds.Pending, OpenedBefore: middle},
		{Env: "dev", Agent: "cook", Status: holds.Decided, OpenedBefore: middle},
	} {
		var want []holds.Hold
		for _, h := range all {
			if matches(f.Env, h.Env) && matches(f.Agent, h.Agent) && matches(f.Status, h.Status) &&
				(f.OpenedBefore.IsZero() || h.CreatedAt.Before(f.OpenedBefore)) {
				want = append(want, h)
			}
		}
		for _, limit := range []int{2, 200} {
			k.equal(fmt.Sprintf("holds with %+v by %d", f, limit), k.allHolds(f, limit), want)
		}
	}
}

func listNothing(k *kit) {
	k.equal("runs", len(k.allRuns(store.RunFilter{}, 10)), 0)
	k.equal("holds", len(k.allHolds(store.HoldFilter{Status: holds.Pending}, 10)), 0)
}

func listRefuses(k *kit) {
	k.held(runID(1), time.Hour)
	for _, p := range []store.Page{{}, {Limit: -1}, {Limit: 201}, {Limit: 10, Cursor: "odd"}, {Limit: 10, Cursor: "-1"}, {Limit: 10, Cursor: "1 OR 1"}} {
		_, _, err := k.s.Runs(k.ctx, store.RunFilter{}, p)
		k.invalid(fmt.Sprintf("runs by %+v", p), err)
		k.equal("code", problem.CodeOf(err), problem.InvalidRequest)
		_, _, err = k.s.Holds(k.ctx, store.HoldFilter{}, p)
		k.invalid(fmt.Sprintf("holds by %+v", p), err)
		k.equal("code", problem.CodeOf(err), problem.InvalidRequest)
	}
}
