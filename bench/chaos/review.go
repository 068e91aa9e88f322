package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// Kinds of hold.
const (
	toolCallHold = "tool_call"
	unknownHold  = "outcome_unknown"
)

// review does with a pending hold what the shape of the run asks for.
func (d *driver) review(ctx context.Context, s *story, r dice, h api.Hold) {
	if r.chance(5) {
		d.decideStale(ctx, s, h)
	}
	if h.Kind == unknownHold {
		d.oneByOne(ctx, s, r, h)
		return
	}
	switch s.plan.shape {
	case approve, edit, reject:
		d.decide(ctx, s, h, decideAll(r, h, string(s.plan.shape)), key(r, 70))
	case partial:
		d.oneByOne(ctx, s, r, h)
	case duplicate:
		d.twice(ctx, s, r, h)
	case race:
		d.race(ctx, s, r, h)
	case cancelRace:
		d.cancelAndApprove(ctx, s, r, h)
	case expire, expireFail:
		d.late(ctx, s, r, h)
	case lookup, charge, parallel, serial, slow, flaky, refused, chain, cancel, park:
		d.decide(ctx, s, h, decideAll(r, h, ""), key(r, 70))
	}
}

// decideAll decides the pending items of a hold: all with the action given, or each
// with one of its own.
func decideAll(r dice, h api.Hold, action string) []api.ItemDecision {
	var out []api.ItemDecision
	for _, it := range h.Items {
		if it.Decision != nil {
			continue
		}
		d := api.ItemDecision{ID: it.ID, Action: action}
		if action == "" {
			d.Action = pick(r, h.Actions...)
		}
		switch d.Action {
		case "edit":
			d.Data = json.RawMessage(fmt.Sprintf(`{"ref":"edited of %s <&>","amount":%d}`, it.ID, 1<<60+r.IntN(1e9)))
		case "approve":
			if r.chance(50) {
				d.Data = it.Data
			}
		case "ran":
			d.Data = rawjson.Quote("a person saw it")
		default:
			d.Reason = fmt.Sprintf("reason %d", r.IntN(1e9))
		}
		out = append(out, d)
	}
	return out
}

// key is an idempotency key in percent of 100 cases, else none.
func key(r dice, percent int) string {
	if !r.chance(percent) {
		return ""
	}
	return fmt.Sprintf("decision-%d", r.Uint64())
}

// decide posts decisions until they are answered, and notes the answer.
func (d *driver) decide(ctx context.Context, s *story, h api.Hold, decisions []api.ItemDecision, key string) {
	d.attempt(ctx, s, client.Decide{Env: environment, Hold: h.HoldID, Key: key, Body: api.Decide{Decisions: decisions}}, h.Kind)
}

func (d *driver) attempt(ctx context.Context, s *story, req client.Decide, kind string) {
	a := attempt{hold: req.Hold, kind: kind, decisions: req.Body.Decisions, verdict: accepted}
	err := d.insist(ctx, 0, func(ctx context.Context, c *client.Client) error {
		_, err := c.Decide(ctx, req)
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		a.verdict = unanswered
	default:
		a.verdict, a.code = denied, problem.CodeOf(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, a)
}

// decideStale posts what must be refused: decisions on a revision that the hold
// never had.
func (d *driver) decideStale(ctx context.Context, s *story, h api.Hold) {
	r := dice{rand.New(rand.NewPCG(d.seed, uint64(h.Revision)))}
	d.attempt(ctx, s, client.Decide{Env: environment, Hold: h.HoldID, Body: api.Decide{
		Decisions: decideAll(r, h, ""), Revision: h.Revision + 1000,
	}}, h.Kind)
}

// oneByOne decides each item in a request of its own, in any order; some requests
// are repeated.
func (d *driver) oneByOne(ctx context.Context, s *story, r dice, h api.Hold) {
	all := decideAll(r, h, "")
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for one := range slices.Chunk(all, 1) {
		k := key(r, 50)
		d.decide(ctx, s, h, one, k)
		if r.chance(20) {
			d.decide(ctx, s, h, one, k)
		}
	}
}

// twice posts the same decisions at once from two callers: under the same key, or
// without any.
func (d *driver) twice(ctx context.Context, s *story, r dice, h api.Hold) {
	all, k := decideAll(r, h, ""), key(r, 50)
	both(func() { d.decide(ctx, s, h, all, k) }, func() { d.decide(ctx, s, h, all, k) })
}

// race posts approval and rejection at once.
func (d *driver) race(ctx context.Context, s *story, r dice, h api.Hold) {
	yes, no := decideAll(r, h, pick(r, "approve", "edit")), decideAll(r, h, "reject")
	k1, k2 := key(r, 50), key(r, 50)
	both(func() { d.decide(ctx, s, h, yes, k1) }, func() { d.decide(ctx, s, h, no, k2) })
}

func (d *driver) cancelAndApprove(ctx context.Context, s *story, r dice, h api.Hold) {
	all, k := decideAll(r, h, "approve"), key(r, 50)
	both(func() { d.decide(ctx, s, h, all, k) }, func() { d.cancel(ctx, s) })
}

// late lets a hold expire, or decides it about the moment when it does.
func (d *driver) late(ctx context.Context, s *story, r dice, h api.Hold) {
	left := h.ExpiresAt.Sub(clock.System{}.Now())
	if r.chance(50) {
		pause(ctx, left+100*time.Millisecond)
		return
	}
	all, k := decideAll(r, h, "approve"), key(r, 50)
	pause(ctx, left+time.Duration(r.IntN(60)-40)*time.Millisecond)
	d.decide(ctx, s, h, all, k)
	pause(ctx, 100*time.Millisecond) // until a worker has noticed
}

func both(a, b func()) {
	var wg sync.WaitGroup
	wg.Go(a)
	b()
	wg.Wait()
}
