package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/problem"
)

// killAt makes the order to kill at a point such as "after:call.started#2".
func killAt(point string) armed {
	name, n, found := strings.Cut(point, "#")
	times := 1
	if found {
		if v, err := strconv.Atoi(n); err == nil {
			times = v
		}
	}
	return armed{Kind: FaultKill, Point: name, Times: times}
}

// killEverywhere runs the case once for each point where the server is to die.
// Without points these are all that the case passes in peace.
func (k *kit) killEverywhere(ctx context.Context, c Case) error {
	points := c.Fault.Points
	if points == nil {
		a, err := k.attempt(ctx, c, variant{})
		if err != nil {
			return err
		}
		if a.result.Failed() > 0 {
			return nil // what fails in peace says nothing about crashes
		}
		passed, err := k.cfg.Dir.pointsFrom(a.mark.points)
		if err != nil {
			return err
		}
		points = numbered(passed)
	}
	for _, p := range points {
		order := killAt(p)
		if _, err := k.attempt(ctx, c, variant{title: "kill " + p, armed: &order}); err != nil {
			return err
		}
	}
	return nil
}

// numbered names each passage so that killAt finds it again: the second that
// passes the point is "after:call.finished#2". A commit of several entries counts
// for a point that names one of them.
func numbered(points []string) []string {
	out := make([]string, len(points))
	for i, p := range points {
		n := 0
		for _, earlier := range points[:i+1] {
			if passes(earlier, p) {
				n++
			}
		}
		out[i] = p
		if n > 1 {
			out[i] += "#" + strconv.Itoa(n)
		}
	}
	return out
}

// The numbers of clients that decide at once.
const (
	sameClients   = 8
	racingClients = 16
)

// compete sends the decision from many clients at once.
func (a *attempt) compete(ctx context.Context, h api.Hold, body api.Decide) error {
	n, bodies := sameClients, []api.Decide{body}
	if a.v.race {
		n, bodies = racingClients, []api.Decide{body, opposite(body)}
	}
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			_, errs[i] = a.k.client.Decide(ctx, client.Decide{Env: env, Hold: h.HoldID, Body: bodies[i%len(bodies)], Wait: patience})
		})
	}
	close(start)
	wg.Wait()
	if !a.v.race {
		if err := errors.Join(errs...); err != nil {
			return a.check(CheckIdentical, false, "success for every one", answer(err))
		}
		a.result.check(CheckIdentical, true, "", "")
		a.rule(h, body)
		return a.refresh(ctx)
	}
	return a.raced(ctx, h, bodies, errs)
}

// raced finds the winner and checks that every loser was told.
func (a *attempt) raced(ctx context.Context, h api.Hold, bodies []api.Decide, errs []error) error {
	now, err := a.k.client.Hold(ctx, env, h.HoldID)
	if err != nil {
		return a.gone(err)
	}
	winner := 0
	if !recorded(now, bodies[0]) {
		winner = 1
	}
	fault := ""
	if !recorded(now, bodies[winner]) {
		fault = "the hold records neither decision"
	}
	for i, err := range errs {
		won := i%len(bodies) == winner
		switch {
		case won && err != nil:
			fault = "a client with the winning decision got " + answer(err)
		case !won && !refusedWith(err, http.StatusConflict, problem.HoldDecided):
			fault = "a client with the losing decision got " + answer(err)
		case !won && !showsHold(err, bodies[winner]):
			fault = "the refusal does not show the winner"
		}
	}
	if err := a.check(CheckRace, fault == "", "one decision for all; the others get 409 with the winner", fault); err != nil {
		return err
	}
	a.turned = winner != 0
	a.rule(h, bodies[winner])
	return a.refresh(ctx)
}

// recorded reports whether the hold holds the decisions of the request.
func recorded(h api.Hold, body api.Decide) bool {
	for _, d := range body.Decisions {
		found := false
		for _, it := range h.Items {
			found = found || it.ID == d.ID && it.Decision != nil && it.Decision.Action == d.Action
		}
		if !found {
			return false
		}
	}
	return true
}

func showsHold(err error, winner api.Decide) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Hold != nil && recorded(*e.Hold, winner)
}

// refresh reads the run and waits until it is held or finished.
func (a *attempt) refresh(ctx context.Context) error {
	err := a.do(ctx, func(ctx context.Context) (err error) {
		a.run, err = a.k.client.Run(ctx, env, a.run.RunID, patience)
		return err
	})
	if err != nil {
		return a.gone(err)
	}
	return a.settle(ctx)
}

// expire lets the hold's time end while no server lives, and then decides too
// late.
func (a *attempt) expire(ctx context.Context, h api.Hold, body api.Decide) error {
	offset := h.ExpiresAt.Sub(a.k.cfg.Clock.Now()) + leaseAge
	if err := a.k.restart(ctx, offset, nil); err != nil {
		return err
	}
	_, err := a.k.client.Decide(ctx, client.Decide{Env: env, Hold: h.HoldID, Body: body})
	a.result.check(CheckLate, refusedWith(err, http.StatusConflict, problem.HoldExpired), "409 hold_expired", answer(err))
	for _, it := range h.Items {
		r := a.rulings[it.ID]
		r.expired = true
		a.rulings[it.ID] = r
	}
	if err := a.awaitLeaving(ctx, h.HoldID); err != nil {
		return err
	}
	return a.checkExpired(ctx, h)
}

// awaitLeaving waits until the run is no longer held by the hold.
func (a *attempt) awaitLeaving(ctx context.Context, hold string) error {
	until := a.k.cfg.Clock.Now().Add(patience)
	for {
		run, err := a.k.client.Run(ctx, env, a.run.RunID, 0)
		if err != nil {
			return a.gone(err)
		}
		a.run = run
		if run.Status != api.RunHeld || run.Hold == nil || run.Hold.HoldID != hold {
			return a.settle(ctx)
		}
		if !a.k.cfg.Clock.Now().Before(until) {
			return a.check(CheckExpired, false, "the run goes on or fails", a.status())
		}
		if err := a.k.pause(ctx); err != nil {
			return err
		}
	}
}

func (a *attempt) checkExpired(ctx context.Context, h api.Hold) error {
	t, err := a.k.client.Trajectory(ctx, env, a.run.RunID)
	if err != nil {
		return a.gone(err)
	}
	fault := ""
	for _, turn := range t.Turns {
		for _, c := range turn.Calls {
			item := false
			for _, it := range h.Items {
				item = item || it.ID == c.ID
			}
			// A run that fails on expiry leaves the call as it was.
			if item && c.Outcome != "expired" && a.run.Status != api.RunFailed {
				fault = fmt.Sprintf("%s ended %q", c.ID, c.Outcome)
			}
		}
	}
	a.result.check(CheckExpired, fault == "", "outcome expired", fault)
	return nil
}

// changeTool changes the tool of the first item behind the reviewer's back: the
// approval must not be used, and a new hold must show the change.
func (a *attempt) changeTool(ctx context.Context, h api.Hold, body api.Decide) error {
	it := h.Items[0]
	if !a.k.proxied(it.Server) {
		return a.check(CheckFault, false, "a tool of a stdio server", "server "+it.Server)
	}
	before := a.toolShown(ctx, it)
	if err := a.k.cfg.Dir.arm(armed{Kind: FaultChangeTool, Server: it.Server, Tool: it.Tool}); err != nil {
		return err
	}
	until := a.k.cfg.Clock.Now().Add(patience)
	for a.toolShown(ctx, it) == before {
		if !a.k.cfg.Clock.Now().Before(until) {
			return a.check(CheckFault, false, "the server offers the changed tool", "the old definition")
		}
		if err := a.k.pause(ctx); err != nil {
			return err
		}
	}
	if err := a.decide(ctx, h, body); err != nil {
		return err
	}
	if err := a.checkChanged(h); err != nil {
		return err
	}
	return a.decide(ctx, *a.run.Hold, body)
}

// toolShown is the tool as the agent offers it now, "" when it does not.
func (a *attempt) toolShown(ctx context.Context, it api.Item) string {
	agent, err := a.k.client.Agent(ctx, env, a.k.agent.Name)
	if err != nil {
		return ""
	}
	if c := capability(agent, a.c.Capability); c != nil {
		for _, t := range c.Tools {
			if t.Server == it.Server && t.Tool == it.Tool {
				return t.Description + string(t.InputSchema)
			}
		}
	}
	return ""
}

// checkChanged checks that the run waits again, with old and new to compare, and
// that nothing ran on the old approval.
func (a *attempt) checkChanged(h api.Hold) error {
	old, now := h.Items[0], a.run.Hold
	var fault string
	switch {
	case a.run.Status != api.RunHeld || now == nil:
		fault = "the run is " + a.status()
	case now.HoldID == h.HoldID:
		fault = "the same hold"
	default:
		fault = "the new hold does not have the item " + old.ID
		for _, it := range now.Items {
			if it.ID == old.ID {
				fault = changeFault(it, old)
			}
		}
	}
	ran, err := a.executions()
	if err != nil {
		return err
	}
	for _, e := range ran {
		if e.Key == a.run.RunID+"/"+old.ID {
			fault = "the call ran on the approval of the old definition"
		}
	}
	return a.check(CheckChanged, fault == "", "a new hold that shows old and new; nothing ran", fault)
}

func changeFault(now, old api.Item) string {
	switch c := now.Changed; {
	case c == nil:
		return "the item shows no change"
	case c.OldDigest != old.ToolDigest || now.ToolDigest == old.ToolDigest:
		return fmt.Sprintf("digests: was %s, shown as %s, now %s", old.ToolDigest, c.OldDigest, now.ToolDigest)
	}
	return ""
}
