package conformance

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// The kinds of hold.
const (
	kindToolCall = "tool_call"
	kindUnknown  = "outcome_unknown"
)

// actionsOf are what a hold of the kind must offer.
func actionsOf(kind string) []string {
	if kind == kindUnknown {
		return []string{actionRan, actionRetry, actionSkip}
	}
	return []string{actionApprove, actionEdit, actionReject}
}

// step looks at the hold and sends one decision request.
func (a *attempt) step(ctx context.Context, i int, s Step) error {
	if i > 0 {
		if err := a.check(CheckStatus, a.run.Status == api.RunHeld, "held for step "+strconv.Itoa(i+1), a.status()); err != nil {
			return err
		}
	}
	h := a.run.Hold
	if h == nil {
		return a.check(CheckHoldShape, false, "a held run with its hold", "no hold")
	}
	if fault := holdFault(*h); fault != "" {
		return a.check(CheckHoldShape, false, "intent; items with id, title and data; the kind's actions; pending", fault)
	}
	a.result.check(CheckHoldShape, true, "", "")
	if fault := s.Hold.fault(*h); s.Hold.written() {
		a.result.check(CheckHold, fault == "", "the hold as the case says", fault)
	}
	if a.v.title == "" {
		if err := a.refusals(ctx, *h); err != nil {
			return err
		}
	}
	body := s.body(*h)
	switch s.Fault.Kind {
	case FaultDoubleDecision:
		return a.compete(ctx, *h, body)
	case FaultExpire:
		return a.expire(ctx, *h, body)
	case FaultChangeTool:
		return a.changeTool(ctx, *h, body)
	case FaultKill:
		if err := a.k.cfg.Dir.arm(killAt(s.Fault.Points[0])); err != nil {
			return err
		}
	case FaultDrop:
		if err := a.k.cfg.Dir.arm(armed{Kind: FaultDrop}); err != nil {
			return err
		}
	case FaultNone:
	}
	return a.decide(ctx, *h, body)
}

// holdFault says what a hold lacks, or "".
func holdFault(h api.Hold) string {
	switch {
	case h.HoldID == "":
		return "no hold_id"
	case h.Status != api.HoldPending:
		return fmt.Sprintf("status %q", h.Status)
	case strings.TrimSpace(h.Intent) == "":
		return "no intent"
	case h.Kind != kindToolCall && h.Kind != kindUnknown:
		return fmt.Sprintf("kind %q", h.Kind)
	case len(h.Items) == 0:
		return "no items"
	case !h.ExpiresAt.After(h.CreatedAt.Time):
		return "expires_at is not after created_at"
	}
	for _, action := range actionsOf(h.Kind) {
		if !slices.Contains(h.Actions, action) {
			return fmt.Sprintf("actions %v without %s", h.Actions, action)
		}
	}
	seen := map[string]bool{}
	for i, it := range h.Items {
		switch {
		case it.ID == "" || seen[it.ID]:
			return fmt.Sprintf("item %d has no id of its own: %q", i, it.ID)
		case it.Title == "":
			return fmt.Sprintf("item %s has no title", it.ID)
		case rawjson.Kind(it.Data) != "object":
			return fmt.Sprintf("item %s has data %s", it.ID, short(string(it.Data)))
		}
		seen[it.ID] = true
	}
	return ""
}

func (s HoldShape) written() bool { return s.Kind != "" || s.Intent != "" || s.Items != nil }

// fault says where the hold is not as the case says, or "".
func (s HoldShape) fault(h api.Hold) string {
	if s.Kind != "" && s.Kind != h.Kind {
		return fmt.Sprintf("kind %q, not %q", h.Kind, s.Kind)
	}
	if s.Intent != "" && s.Intent != h.Intent {
		return fmt.Sprintf("intent %q, not %q", h.Intent, s.Intent)
	}
	if s.Items == nil {
		return ""
	}
	if len(s.Items) != len(h.Items) {
		return fmt.Sprintf("%d items, not %d", len(h.Items), len(s.Items))
	}
	for i, want := range s.Items {
		got, err := rawjson.Marshal(h.Items[i])
		if err != nil {
			return err.Error()
		}
		if m := subset(want, got); m != "" {
			return fmt.Sprintf("item %d: %s", i+1, m)
		}
	}
	return ""
}

// body is the request that the step sends.
func (s Step) body(h api.Hold) api.Decide {
	var out api.Decide
	if s.Decisions == nil {
		action := actionApprove
		if h.Kind == kindUnknown {
			action = actionSkip
		}
		for _, it := range h.Items {
			if it.Decision == nil {
				out.Decisions = append(out.Decisions, api.ItemDecision{ID: it.ID, Action: action})
			}
		}
		return out
	}
	for _, d := range s.Decisions {
		out.Decisions = append(out.Decisions, api.ItemDecision{ID: d.ID, Action: d.Action, Data: d.Data, Reason: d.Reason})
	}
	return out
}

// refusals sends what must be refused and leave the hold as it is.
func (a *attempt) refusals(ctx context.Context, h api.Hold) error {
	item := h.Items[len(h.Items)-1].ID
	withoutData := actionEdit
	if h.Kind == kindUnknown {
		withoutData = actionRan
	}
	for _, probe := range []struct {
		check    string
		decision api.ItemDecision
	}{
		{CheckItem, api.ItemDecision{ID: "no_such_item", Action: h.Actions[0]}},
		{CheckAction, api.ItemDecision{ID: item, Action: "no_such_action"}},
		{CheckEdit, api.ItemDecision{ID: item, Action: withoutData}},
	} {
		_, err := a.k.client.Decide(ctx, client.Decide{Env: env, Hold: h.HoldID, Body: api.Decide{Decisions: []api.ItemDecision{probe.decision}}})
		seen := ""
		if !refusedWith(err, http.StatusUnprocessableEntity, problem.InvalidDecision) {
			seen = answer(err)
		} else if now, err := a.k.client.Hold(ctx, env, h.HoldID); err != nil || now.Status != api.HoldPending || now.Revision != h.Revision {
			seen = fmt.Sprintf("refused, but the hold is now %s at revision %d (%s)", now.Status, now.Revision, answer(err))
		}
		a.result.check(probe.check, seen == "", "422 invalid_decision, the hold stays pending", seen)
	}
	return nil
}

// decide sends the request and waits for what the run does then.
func (a *attempt) decide(ctx context.Context, h api.Hold, body api.Decide) error {
	var out api.Decided
	err := a.do(ctx, func(ctx context.Context) (err error) {
		out, err = a.k.client.Decide(ctx, client.Decide{
			Env: env, Hold: h.HoldID, Body: body, Key: a.key + "-" + h.HoldID + "-" + strconv.FormatInt(h.Revision, 10), Wait: patience,
		})
		return err
	})
	if err != nil && !a.answered(err) {
		return err
	}
	if err := a.check(CheckDecided, err == nil, "the decision is applied", answer(err)); err != nil {
		return err
	}
	a.rule(h, body)
	a.run = out.Run
	if out.Hold.Status == api.HoldDecided {
		a.decided = &decidedHold{hold: h.HoldID, body: body}
	}
	return a.settle(ctx)
}

// rule remembers what was decided.
func (a *attempt) rule(h api.Hold, body api.Decide) {
	for _, d := range body.Decisions {
		at := slices.IndexFunc(h.Items, func(it api.Item) bool { return it.ID == d.ID })
		if at < 0 {
			continue
		}
		r := a.rulings[d.ID]
		switch d.Action {
		case actionApprove:
			r = ruling{action: d.Action, arguments: h.Items[at].Data}
		case actionEdit:
			r = ruling{action: d.Action, arguments: d.Data}
		case actionReject:
			r = ruling{action: d.Action}
		default:
			r.unknown = d.Action
		}
		a.rulings[d.ID] = r
	}
}

// decideUnknown decides a hold about unknown outcomes as the case says.
func (a *attempt) decideUnknown(ctx context.Context, h api.Hold) error {
	if fault := holdFault(h); fault != "" {
		return a.check(CheckHoldShape, false, "intent; items with id, title and data; ran, retry and skip; pending", fault)
	}
	var body api.Decide
	for _, it := range h.Items {
		body.Decisions = append(body.Decisions, api.ItemDecision{
			ID: it.ID, Action: a.c.Unknown.Action, Data: a.c.Unknown.Data, Reason: a.c.Unknown.Reason,
		})
	}
	var out api.Decided
	err := a.do(ctx, func(ctx context.Context) (err error) {
		out, err = a.k.client.Decide(ctx, client.Decide{Env: env, Hold: h.HoldID, Body: body, Key: a.key + "-" + h.HoldID, Wait: patience})
		return err
	})
	if err != nil && !a.answered(err) {
		return err
	}
	if err := a.check(CheckDecided, err == nil, "the decision about the unknown outcome is applied", answer(err)); err != nil {
		return err
	}
	a.rule(h, body)
	a.run = out.Run
	return nil
}

// again repeats the last decision of a decided hold, and tries another one.
func (a *attempt) again(ctx context.Context) {
	d := a.decided
	if d == nil {
		return
	}
	out, err := a.k.client.Decide(ctx, client.Decide{Env: env, Hold: d.hold, Body: d.body})
	a.result.check(CheckRepeat, err == nil && out.Hold.Status == api.HoldDecided, "success, the hold as decided", answer(err))
	_, err = a.k.client.Decide(ctx, client.Decide{Env: env, Hold: d.hold, Body: opposite(d.body)})
	a.result.check(CheckSecond, refusedWith(err, http.StatusConflict, problem.HoldDecided), "409 hold_decided", answer(err))
}

// opposite decides everything the other way.
func opposite(body api.Decide) api.Decide {
	var out api.Decide
	for _, d := range body.Decisions {
		o := api.ItemDecision{ID: d.ID}
		switch d.Action {
		case actionReject:
			o.Action = actionApprove
		case actionApprove, actionEdit:
			o.Action = actionReject
		case actionSkip:
			o.Action = actionRetry
		default:
			o.Action = actionSkip
		}
		out.Decisions = append(out.Decisions, o)
	}
	return out
}
