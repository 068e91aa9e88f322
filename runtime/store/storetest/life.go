package storetest

import (
	"context"
	"encoding/json"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

func lifeCases() []Case {
	return []Case{
		{"Life/restart_keeps_everything", lifeRestart},
		{"Life/health", lifeHealth},
		{"Life/ended_context_is_unavailable", lifeContext},
		{"Life/closed_is_unavailable", lifeClosed},
	}
}

func lifeRestart(k *kit) {
	before := k.spread()
	journals := map[string][]journal.Entry{}
	for _, v := range before {
		journals[v.ID] = k.journal(v.ID)
	}
	pending := k.allHolds(store.HoldFilter{}, 200)
	k.ok(k.s.PutState(k.ctx, "run/x", "a", json.RawMessage(`1`)))
	k.restart()
	k.equal("runs", k.allRuns(store.RunFilter{}, 200), before)
	k.equal("holds", k.allHolds(store.HoldFilter{}, 200), pending)
	for id, want := range journals {
		k.equal("journal", k.journal(id), want)
	}
	got, err := k.s.GetState(k.ctx, "run/x", "a")
	k.ok(err)
	k.sameBytes("state", got, []byte(`1`))
	for _, v := range before { // leases too
		if v.Status == store.Running {
			k.finish(store.Lease{RunID: v.ID, Epoch: v.Epoch})
		}
	}
}

func lifeHealth(k *kit) {
	h, err := k.s.Health(k.ctx)
	k.ok(err)
	if h.Driver == "" || (k.h.Restart == nil && (h.Durable || len(h.Warnings) == 0)) {
		k.Fatalf("health %+v", h)
	}
}

// lifeContext and lifeClosed want an answer, not a hang, and the one that says
// that nobody knows what became of it.
func lifeContext(k *kit) {
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	_, err := k.s.Create(ctx, k.creation(runID(1), 0))
	k.refused(err, store.ErrUnavailable)
	_, err = k.s.Run(ctx, runID(1))
	k.refused(err, store.ErrUnavailable)
	_, err = k.s.Claim(ctx, 1, ttl)
	k.refused(err, store.ErrUnavailable)
}

func lifeClosed(k *kit) {
	if k.h.Restart == nil {
		return // the audit needs the data
	}
	k.create(runID(1), 0)
	k.ok(k.s.Close())
	k.ok(k.s.Close())
	_, err := k.s.Create(k.ctx, k.creation(runID(2), 0))
	k.refused(err, store.ErrUnavailable)
	_, err = k.s.Run(k.ctx, runID(1))
	k.refused(err, store.ErrUnavailable)
	_, err = k.s.Health(k.ctx)
	k.refused(err, store.ErrUnavailable)
	k.restart()
	k.types(runID(1), journal.RunCreated)
}
