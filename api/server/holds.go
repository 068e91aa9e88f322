package server

import (
	"context"
	"net/http"
	"time"

	"agentos/api"
	"agentos/api/auth"
	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// maxAge bounds ?older_than=.
const maxAge = 10 * 365 * 24 * time.Hour

// holdListInput chooses holds.
type holdListInput struct {
	filter store.HoldFilter
	older  time.Duration
	page   store.Page
	// reviewer, when not nil, chooses the holds that wait for this person; without a
	// name for nobody.
	reviewer *policy.Person
}

func readHoldList(in *input) holdListInput {
	r := holdListInput{
		filter: store.HoldFilter{
			Env: in.env(), Agent: in.text("agent"),
			Status: holds.Status(in.oneOf("status", "pending", "decided", "expired", "cancelled")),
		},
		older: in.duration("older_than", time.Second, maxAge, 0),
		page:  in.page(),
	}
	if in.oneOf("reviewer", "me") == "" {
		return r
	}
	if r.filter.Status != "" && r.filter.Status != holds.Pending {
		in.fault("?reviewer", "goes with pending holds only; leave status out")
	}
	r.filter.Status = holds.Pending
	r.reviewer = &policy.Person{}
	if auth.From(in.c.Request().Context()).Can(mayDecide) {
		r.reviewer = &policy.Person{Name: in.principal(), Roles: in.words()}
	}
	return r
}

// rowSize is what a hold that is left out counts in a page, so that looking for a
// few among many ends with a short page.
const rowSize = 1 << 10

func (s *Server) listHolds(ctx context.Context, in holdListInput) (reply, error) {
	if in.older > 0 {
		in.filter.OpenedBefore = s.cfg.Clock.Now().Add(-in.older)
	}
	out := api.HoldList{Holds: []api.Hold{}}
	if in.reviewer != nil && in.reviewer.Name == "" {
		return reply{body: out}, nil
	}
	next, err := inChunks(in.page, func(p store.Page) (n, size int, next string, err error) {
		list, next, err := s.cfg.Store.Holds(ctx, in.filter, p)
		for _, h := range list {
			if in.reviewer != nil && !h.Waits(*in.reviewer, s.cfg.Clock.Now()) {
				size += rowSize
				continue
			}
			n++
			out.Holds = append(out.Holds, toHold(h))
			for _, it := range h.Items {
				size += len(it.Data) + len(it.Schema)
			}
		}
		return n, size, next, err
	})
	out.NextCursor = next
	if err != nil {
		return reply{}, storeError(err, "")
	}
	return reply{body: out}, nil
}

// holdInput names a hold.
type holdInput struct{ env, hold string }

func readHoldID(in *input) holdInput {
	r := holdInput{env: in.env(), hold: in.param("hold")}
	if store.RunOfHold(r.hold) == "" && in.err == nil {
		in.err = noHold(store.ErrNotFound, r.hold)
	}
	return r
}

func (s *Server) getHold(ctx context.Context, in holdInput) (reply, error) {
	held, err := s.cfg.Store.Hold(ctx, in.hold)
	if err == nil && held.Record.Env != in.env {
		err = store.ErrNotFound
	}
	if err != nil {
		return reply{}, storeError(err, in.hold)
	}
	h := toHold(held.Hold)
	if h.AlreadyRan, err = alreadyRan(held.Journal); err != nil {
		return reply{}, damaged(err, held.Record.ID)
	}
	return reply{body: h}, nil
}

// alreadyRan are the calls of a run that were started and have finished.
func alreadyRan(entries []journal.Entry) ([]api.RanCall, error) {
	state, err := journal.Fold(entries)
	if err != nil {
		return nil, err
	}
	out := []api.RanCall{}
	for _, c := range state.Calls {
		if c.Started != nil && c.Finished != nil {
			out = append(out, api.RanCall{
				ID: c.ID, Server: c.Started.Server, Tool: c.Started.Tool,
				Outcome: string(c.Finished.Outcome), Arguments: c.Started.Arguments,
			})
		}
	}
	return out, nil
}

// decideInput is a request to decide items of a hold.
type decideInput struct {
	holdInput
	wait    time.Duration
	key, by string
	roles   []string
	from    string
	body    api.Decide
}

func readDecide(in *input) decideInput {
	r := decideInput{holdInput: readHoldID(in), wait: in.wait(), key: in.key(), by: in.principal(), roles: in.words(), from: from(in.c.Request())}
	in.body("Decide", &r.body)
	return r
}

func (s *Server) decide(ctx context.Context, in decideInput) (reply, error) {
	post := holds.Post{Revision: in.body.Revision, Key: in.key, By: in.by, Roles: in.roles, From: in.from}
	for _, d := range in.body.Decisions {
		post.Decisions = append(post.Decisions, holds.ItemDecision{
			ID: d.ID, Action: holds.Action(d.Action), Data: d.Data, Reason: d.Reason,
		})
	}
	deciding, cancel := change(ctx)
	defer cancel()
	h, err := s.cfg.Engine.Decide(deciding, in.env, in.hold, post)
	if err != nil {
		return reply{}, aboutHold(err, h)
	}
	for _, d := range in.body.Decisions {
		s.metrics.decisions.WithLabelValues(d.Action).Inc()
	}
	var v store.View
	if in.wait > 0 && h.Status == holds.Decided {
		v, err = s.await(ctx, in.env, h.RunID, in.wait)
	} else {
		v, err = s.cfg.Engine.View(deciding, in.env, h.RunID)
	}
	if err != nil {
		return reply{}, err
	}
	out := reply{status: http.StatusOK, run: v.ID, body: api.Decided{Hold: toHold(h), Run: toRun(v)}}
	if in.wait > 0 && !settled(v.Status) {
		out.status = http.StatusAccepted
	}
	return out, nil
}

// aboutHold adds the hold as it stands to an error that a caller can act on.
func aboutHold(err error, h holds.Hold) error {
	if h.ID == "" || status(problem.CodeOf(err)) >= http.StatusInternalServerError {
		return err
	}
	return &holdError{cause: err, hold: toHold(h)}
}
