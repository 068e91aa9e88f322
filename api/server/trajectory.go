package server

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentos/api"
	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/mcp"
	"agentos/runtime/store"
)

// trajectory tells what happened in a run from its whole journal. It is pure.
func trajectory(v store.View, entries []journal.Entry) (api.Trajectory, error) {
	state, err := journal.Fold(entries)
	if err != nil {
		return api.Trajectory{}, err
	}
	t := teller{
		out: api.Trajectory{
			Run: toRun(v), MCPServers: []api.MCPServer{},
			Turns: []api.Turn{}, Holds: []api.HoldEvent{}, Recoveries: []api.Recovery{},
		},
		calls:  make(map[string]*api.Call, len(state.Calls)),
		policy: state.Created.PolicyDigest,
	}
	for _, c := range state.Calls {
		call := toCall(c)
		t.calls[c.ID] = &call
	}
	for _, e := range entries {
		if err := t.tell(e); err != nil {
			return api.Trajectory{}, fmt.Errorf("entry %d (%s): %w", e.Seq, e.Type, err)
		}
	}
	if len(state.Servers) > 0 {
		var servers []mcp.Status
		if err := json.Unmarshal(state.Servers, &servers); err != nil {
			return api.Trajectory{}, fmt.Errorf("mcp_servers: %w", err)
		}
		t.out.MCPServers = toServers(servers)
	}
	t.finish(state)
	return t.out, nil
}

// toCall shows a call as it stands at the end of the journal.
func toCall(c *journal.Call) api.Call {
	out := api.Call{
		ID: c.ID, ProviderID: c.ProviderID, Provider: "mcp", Name: c.Name, Server: c.Server, Tool: c.Tool,
		Destructive: c.Destructive, Verdict: toVerdict(c.Verdict), ProposedArguments: c.Arguments,
	}
	if c.Approved() {
		out.DecidedArguments = c.Effective()
	}
	if c.Started != nil {
		out.Effect, out.ExecutedArguments = c.Started.Effect, c.Started.Arguments
	}
	if f := c.Finished; f != nil {
		out.Outcome, out.Text, out.Structured = string(f.Outcome), f.Text, f.Structured
		out.ErrorCode, out.MCPError, out.ResultBy = f.ErrorCode, f.MCPError, f.By
		out.DurationMS, out.Reconnects, out.Truncated = f.DurationMS, f.Reconnects, f.Truncated
	}
	return out
}

// teller goes through a journal that folds and collects what the state of a run
// does not keep: when things happened, and what happened more than once.
type teller struct {
	out   api.Trajectory
	calls map[string]*api.Call
	// policy is the digest of the operator's rules as the journal last told it.
	policy string
}

func (t *teller) tell(e journal.Entry) error {
	at := api.Time{Time: e.At}
	switch e.Type {
	case journal.ModelAnswered:
		return tellData(e, func(a journal.Answered) { t.answered(at, a) })
	case journal.CallStarted:
		return tellData(e, func(s journal.Started) {
			c := t.calls[s.Call]
			c.Executions++
			c.StartedAt = &at
		})
	case journal.CallFinished:
		return tellData(e, func(f journal.Finished) { t.calls[f.Call].FinishedAt = &at })
	case journal.HoldOpened:
		return tellData(e, func(o journal.Opened) { t.opened(at, o.Hold) })
	case journal.HoldDecided:
		return tellData(e, t.decided)
	case journal.HoldClosed:
		return tellData(e, func(c journal.Closed) {
			h := &t.out.Holds[len(t.out.Holds)-1] // there is one at a time
			h.ClosedAt, h.Why, h.Reason = &at, string(c.Why), c.Reason
		})
	case journal.RunRecovered:
		return tellData(e, func(r journal.Recovered) {
			unfinished := append([]string{}, r.Unfinished...)
			t.out.Recoveries = append(t.out.Recoveries, api.Recovery{At: at, Worker: r.Worker, Epoch: r.Epoch, Unfinished: unfinished})
		})
	case journal.RunCreated, journal.RunCompleted, journal.RunFailed, journal.RunCancelled:
		// The run itself tells these.
	}
	return nil
}

func tellData[T any](e journal.Entry, f func(T)) error {
	var data T
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return err
	}
	f(data)
	return nil
}

func (t *teller) answered(at api.Time, a journal.Answered) {
	if a.PolicyDigest != "" {
		t.policy = strings.TrimSuffix(a.PolicyDigest, journal.NoPolicy)
	}
	turn := api.Turn{
		Turn: a.Turn, At: at, ModelAsked: a.Asked, ModelUsed: a.Model, Mock: a.Mock, FinishReason: a.FinishReason,
		LatencyMS: a.LatencyMS, Attempts: a.Attempts, Message: a.Message, Correction: a.Correction, PolicyDigest: t.policy,
		Calls: make([]api.Call, len(a.Calls)),
	}
	if a.Usage != nil {
		usage := api.Usage(*a.Usage)
		turn.Usage = &usage
	}
	for i, c := range a.Calls {
		turn.Calls[i].ID = c.ID // finish puts the whole call here
	}
	t.out.Turns = append(t.out.Turns, turn)
}

func (t *teller) opened(at api.Time, h holds.Hold) {
	event := api.HoldEvent{HoldID: h.ID, Kind: string(h.Kind), Intent: h.Intent, OpenedAt: at, Items: make([]string, len(h.Items))}
	for i, it := range h.Items {
		event.Items[i] = it.ID
	}
	t.out.Holds = append(t.out.Holds, event)
}

func (t *teller) decided(d journal.HoldDecision) {
	for _, it := range d.Items {
		c := t.calls[it.ID]
		c.Decisions = append(c.Decisions, api.CallDecision{HoldID: d.HoldID, Decision: *toDecision(&it.Decision), Open: it.Open})
	}
}

// finish puts the calls into their turns and adds up.
func (t *teller) finish(state *journal.State) {
	totals := api.Totals{
		Turns: len(t.out.Turns), Calls: len(state.Calls), Holds: len(t.out.Holds), Recoveries: len(t.out.Recoveries),
		Usage: api.Usage(state.Usage), ActiveMS: state.ActiveMS,
	}
	for i := range t.out.Turns {
		turn := &t.out.Turns[i]
		totals.ModelMS += turn.LatencyMS
		for j := range turn.Calls {
			turn.Calls[j] = *t.calls[turn.Calls[j].ID]
			totals.Executions += turn.Calls[j].Executions
			totals.Reconnects += turn.Calls[j].Reconnects
		}
	}
	t.out.Totals = totals
}
