package server

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"agentos/api"
	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/runtime"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

// toRun makes a run of what the store knows without its journal. What a damaged
// entry would tell stays empty: one such run must not hide the others of a list.
func toRun(v store.View) api.Run {
	created := dataOf[journal.Created](v.First, journal.RunCreated)
	turns, usage, err := runtime.Summary(v.Summary)
	if err != nil {
		turns, usage = 0, journal.Usage{}
	}
	out := api.Run{
		RunID: v.ID, Status: api.RunStatus(v.Status), Env: v.Env, Agent: v.Agent, AgentDigest: created.AgentDigest, PolicyDigest: created.PolicyDigest,
		Capability: v.Capability, CreatedAt: api.Time{Time: v.CreatedAt}, UpdatedAt: api.Time{Time: v.UpdatedAt},
		Input: created.Input, Output: dataOf[journal.Completed](v.Last, journal.RunCompleted).Output,
		CancelledBy: v.CancelBy, Usage: api.Usage(usage), Turns: turns,
		Requester: created.Requester, RequesterGroups: created.RequesterGroups, SessionID: v.SessionID, Metadata: created.Metadata,
	}
	if !v.Status.Finished() {
		out.Waiting = runtime.Waiting(v.Summary)
	}
	if fault := dataOf[journal.Failed](v.Last, journal.RunFailed).Error; fault.Code != "" {
		out.Error = &api.Error{Code: fault.Code, Message: fault.Message, Details: fault.Details}
	}
	if by := dataOf[journal.Cancel](v.Last, journal.RunCancelled).By; by != "" {
		out.CancelledBy = by
	}
	if v.Hold != nil {
		h := toHold(*v.Hold)
		out.Hold = &h
	}
	return out
}

// dataOf decodes the data of an entry, or returns the zero value when it is of
// another type or cannot be read.
func dataOf[T any](e journal.Entry, t journal.Type) T {
	var data, zero T
	if e.Type != t {
		return zero
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return zero
	}
	return data
}

func toHold(h holds.Hold) api.Hold {
	out := api.Hold{
		HoldID: h.ID, RunID: h.RunID, Env: h.Env, Agent: h.Agent, Capability: h.Capability,
		Status: api.HoldStatus(h.Status), Kind: string(h.Kind), Intent: h.Intent, Requester: h.Requester,
		Items: make([]api.Item, len(h.Items)), Actions: make([]string, len(h.Actions)), Revision: h.Revision,
		CreatedAt: api.Time{Time: h.CreatedAt}, ExpiresAt: api.Time{Time: h.ExpiresAt}, OnExpire: string(h.OnExpire),
		Reason: h.Reason,
	}
	for i, it := range h.Items {
		out.Items[i] = api.Item{
			ID: it.ID, Title: it.Title, Data: it.Data, Proposed: it.Proposed, Server: it.Server, Tool: it.Tool, ToolDigest: it.ToolDigest,
			Schema: it.Schema, Rules: it.Rules, Reason: it.Reason, Decision: toDecision(it.Decision),
			Reviewers: toReviewers(it.Reviewers, h.CreatedAt), Approvals: it.Approvals(),
		}
		for _, v := range it.Votes {
			out.Items[i].Votes = append(out.Items[i].Votes, api.Vote{Decision: *toDecision(&v.Decision), Void: v.Void})
		}
		if ch := it.Changed; ch != nil {
			out.Items[i].Changed = &api.Change{
				OldDigest: ch.OldDigest, OldSchema: ch.OldSchema, OldDecision: toDecision(ch.OldDecision),
			}
		}
	}
	for i, a := range h.Actions {
		out.Actions[i] = string(a)
	}
	return out
}

// toReviewers is nil where one person is enough, whoever it is. opened is when the
// hold began to wait.
func toReviewers(r policy.Reviewers, opened time.Time) *api.Reviewers {
	if r.Needed() == 1 && !r.NotRequester && len(r.Sets) == 0 {
		return nil
	}
	out := &api.Reviewers{Require: r.Needed(), NotRequester: r.NotRequester}
	for _, s := range r.Sets {
		set := api.ReviewerSet{Rule: s.Rule, Roles: s.Roles, Users: s.Users}
		if e := s.Escalate; e != nil {
			set.Escalate = &api.Escalation{At: api.Time{Time: opened.Add(e.After())}, Roles: e.Roles, Users: e.Users}
		}
		out.Sets = append(out.Sets, set)
	}
	return out
}

func toDecision(d *holds.Decision) *api.Decision {
	if d == nil {
		return nil
	}
	return &api.Decision{Action: string(d.Action), Data: d.Data, Reason: d.Reason, By: d.By, At: api.Time{Time: d.At}}
}

func toEntry(e journal.Entry) api.Entry {
	return api.Entry{Seq: e.Seq, At: api.Time{Time: e.At}, Type: string(e.Type), Data: e.Data}
}

func toVerdict(v policy.Verdict) api.Verdict {
	out := api.Verdict{Effect: string(v.Effect), Rules: v.Rules, Reason: v.Reason, Reviewers: toReviewers(v.Reviewers, time.Time{})}
	if out.Reviewers != nil {
		for i := range out.Reviewers.Sets {
			out.Reviewers.Sets[i].Escalate = nil // it begins with a hold, and there may be none
		}
	}
	return out
}

func toServers(list []mcp.Status) []api.MCPServer {
	out := make([]api.MCPServer, len(list))
	for i, s := range list {
		out[i] = api.MCPServer{
			Name: s.Name, Transport: s.Transport, Status: string(s.Status), Required: s.Required,
			ProtocolVersion: s.ProtocolVersion, ToolCount: s.ToolCount, Reconnects: s.Reconnects,
			Error: s.Error, Excluded: s.Excluded, Warnings: s.Warnings,
		}
		if s.ServerInfo != nil {
			out[i].ServerInfo = &api.ServerInfo{Name: s.ServerInfo.Name, Version: s.ServerInfo.Version}
		}
	}
	return out
}

// storeError turns an error of a read into one for callers. id names what was
// read, "" for a list.
func storeError(err error, id string) error {
	var known *problem.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, store.ErrNotFound) && strings.HasPrefix(id, "h_"):
		return noHold(err, id)
	case errors.Is(err, store.ErrNotFound):
		return noRun(err, id)
	case errors.Is(err, store.ErrDamaged):
		return damaged(err, id)
	case errors.Is(err, store.ErrUnavailable):
		p := problem.Wrap(err, problem.StoreUnavailable, "the store cannot be read now; try again")
		p.RetryAfter = time.Second
		return p
	}
	return err
}

func noHold(err error, id string) error {
	return problem.Wrap(err, problem.HoldNotFound, "no hold %q in this environment", clip(id))
}

func noRun(err error, id string) error {
	return problem.Wrap(err, problem.RunNotFound, "no run %q in this environment", clip(id))
}

// damaged is the error for a run whose entries cannot be understood.
func damaged(err error, id string) error {
	if strings.HasPrefix(id, "h_") {
		return problem.Wrap(err, problem.JournalDamaged, "hold %s cannot be shown or decided: its run is damaged in the store, parts are missing or unreadable; cancel run %s", clip(id), clip(store.RunOfHold(id)))
	}
	return problem.Wrap(err, problem.JournalDamaged, "run %s is damaged in the store: parts are missing or unreadable", clip(id))
}
