package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentos/api"
	"agentos/internal/problem"
)

// check names what is checked.
type check string

// The checks.
const (
	checkExists    check = "accepted_run_exists"
	checkSettled   check = "run_settled"
	checkSingle    check = "one_run_per_key"
	checkJournal   check = "journal_whole"
	checkIndex     check = "indexes_agree"
	checkOnce      check = "once_at_most_once"
	checkEffect    check = "success_has_effect"
	checkNoEffect  check = "no_effect_without_leave"
	checkArguments check = "ran_what_was_approved"
	checkRecorded  check = "effect_recorded_before"
	checkDecision  check = "decision_took_effect"
	checkRace      check = "one_winner"
	checkLoser     check = "refused_without_effect"
	checkCancelled check = "cancelled_run_ends"
	checkFollower  check = "event_stream_exact"
	checkFailure   check = "failure_expected"
	checkOutput    check = "output_is_the_models"
	checkHistory   check = "history_valid"
	checkAudit     check = "audit_whole"
	checkFsck      check = "fsck_clean"
)

// violation is one thing that must not be.
type violation struct {
	Check check  `json:"check"`
	Run   string `json:"run,omitempty"`
	Text  string `json:"text"`
}

// scene is all that is known about one run.
type scene struct {
	story  *story
	record *record
	// ledger has what tools did, by idempotency key.
	ledger map[string][]mark
	found  []violation
}

func (s *scene) violate(c check, format string, args ...any) {
	s.found = append(s.found, violation{Check: c, Run: s.record.run.RunID, Text: string(s.story.plan.shape) + ": " + fmt.Sprintf(format, args...)})
}

// checkRun makes all checks of one run.
func checkRun(st *story, r *record, marks map[string][]mark) []violation {
	s := &scene{story: st, record: r, ledger: marks}
	s.settled()
	s.ended()
	for i, c := range r.calls {
		want, ok := st.plan.call(i + 1)
		if !ok {
			s.violate(checkJournal, "the model never asked for %s", c.id)
			continue
		}
		s.executions(c)
		s.arguments(c, want)
		s.outcome(c)
	}
	s.decisions()
	s.follower()
	return s.found
}

// settled: the run is finished, or held by a hold that can be decided.
func (s *scene) settled() {
	status, end := s.record.run.Status, s.record.end
	want := map[api.RunStatus]string{api.RunCompleted: "run.completed", api.RunFailed: "run.failed", api.RunCancelled: "run.cancelled"}
	switch {
	case status.Finished():
		if end != want[status] {
			s.violate(checkJournal, "the run is %s, its journal ends with %q", status, end)
		}
		if id := s.record.pending(); id != "" {
			s.violate(checkJournal, "the run is %s with hold %s open", status, id)
		}
	case status != api.RunHeld:
		s.violate(checkSettled, "the run is still %s (%s)", status, s.record.run.Waiting)
	case s.record.run.Hold == nil || s.record.run.Hold.Status != api.HoldPending || s.record.pending() != s.record.run.Hold.HoldID:
		s.violate(checkSettled, "the run is held and its hold is not the pending one of the journal, %q", s.record.pending())
	case s.story.plan.shape != park:
		s.violate(checkSettled, "the run is still held")
	}
	if s.story.cancelled && !status.Finished() {
		s.violate(checkCancelled, "the run was cancelled and is %s", status)
	}
}

// ended: how a run ended is one of the ways its plan allows.
func (s *scene) ended() {
	run := s.record.run
	switch run.Status {
	case api.RunCompleted:
		var out struct {
			Answer string `json:"answer"`
		}
		if err := json.Unmarshal(run.Output, &out); err != nil || out.Answer != s.story.plan.answer() {
			s.violate(checkOutput, "the output is %s", run.Output)
		}
		for _, c := range s.record.calls {
			if c.finished == nil {
				s.violate(checkJournal, "the run is completed and %s has not finished", c.id)
			}
		}
		if _, more := s.story.plan.call(len(s.record.calls) + 1); more {
			s.violate(checkJournal, "the run is completed after %d calls", len(s.record.calls))
		}
	case api.RunFailed:
		if !mayFail(s.story.plan.shape, run.Error) {
			s.violate(checkFailure, "the run failed: %+v", run.Error)
		}
	case api.RunCancelled:
		if !s.story.cancelled {
			s.violate(checkCancelled, "nobody was told that the run is cancelled")
		}
	case api.RunQueued, api.RunRunning, api.RunHeld:
	}
}

// mayFail: a worker that starts while the shared MCP server is away has nothing to
// serve with; a run that loses three workers in a row gives up; and a run may ask
// to fail when nobody decides. Nothing else is an excuse.
func mayFail(sh shape, e *api.Error) bool {
	if e == nil {
		return false
	}
	return e.Code == problem.MCPUnavailable || e.Code == problem.RecoveryExhausted || e.Code == problem.HoldExpired && sh == expireFail
}

// executions: a once tool ran no more often than it was started, was started no
// more often than people said, and nothing ran that was not started before.
func (s *scene) executions(c *call) {
	ran := starts(s.ledger[s.key(c)])
	allowed := 1 + c.retries()
	if onceTool(c.tool) {
		if len(ran) > allowed {
			s.violate(checkOnce, "%s (%s) ran %d times with %d answers to retry: %s", c.id, c.tool, len(ran), allowed-1, ids(ran))
		}
		if len(c.started) > allowed {
			s.violate(checkOnce, "%s (%s) was started %d times with %d answers to retry", c.id, c.tool, len(c.started), allowed-1)
		}
		if len(ran) > len(c.started) {
			s.violate(checkRecorded, "%s (%s) ran %d times and was started %d times", c.id, c.tool, len(ran), len(c.started))
		}
	}
	if len(ran) > 0 && len(c.started) == 0 {
		s.violate(checkRecorded, "%s (%s) ran without call.started", c.id, c.tool)
	}
}

func (s *scene) key(c *call) string { return s.record.run.RunID + "/" + c.id }

func ids(marks []mark) string {
	out := make([]string, len(marks))
	for i, m := range marks {
		out[i] = m.ID
	}
	return strings.Join(out, ", ")
}

// arguments: what ran is what the model asked for, or what a person put in its
// place, byte for byte.
func (s *scene) arguments(c *call, want toolCall) {
	args := want.args
	gated, approval := c.gate()
	for _, it := range c.items {
		if it.kind == toolCallHold && !bytes.Equal(it.data, want.args) {
			s.violate(checkArguments, "%s was shown with %s, the model asked for %s", c.id, it.data, want.args)
		}
	}
	ran := starts(s.ledger[s.key(c)])
	if want.tool == "refund" && !gated && len(ran)+len(c.started) > 0 {
		s.violate(checkNoEffect, "%s ran and nobody was asked", c.id)
	}
	if gated {
		switch {
		case approval == nil, approval.Action != "approve" && approval.Action != "edit":
			if len(ran)+len(c.started) > 0 {
				s.violate(checkNoEffect, "%s ran without approval", c.id)
			}
			return
		case approval.Action == "edit":
			args = approval.Data
		}
	}
	for _, m := range ran {
		if m.Arguments != string(args) || m.Tool != want.tool {
			s.violate(checkArguments, "%s should run %s with %s and ran %s with %s", c.id, want.tool, args, m.Tool, m.Arguments)
		}
	}
	for _, st := range c.started {
		if !bytes.Equal(st.Arguments, args) || st.Tool != want.tool || st.Key != s.key(c) {
			s.violate(checkArguments, "%s should start %s with %s and the journal has %+v", c.id, want.tool, args, st)
		}
	}
}

// outcome: a call that ended well had its effect, and its result comes from its own
// execution; one that was not let through had none.
func (s *scene) outcome(c *call) {
	if c.finished == nil {
		return
	}
	ran := starts(s.ledger[s.key(c)])
	switch f := c.finished; f.Outcome {
	case "success":
		if f.By != "" {
			return // a person said so
		}
		own := slices.ContainsFunc(ran, func(m mark) bool { return strings.Contains(f.Text, executionText(m.ID)) })
		if !own {
			s.violate(checkEffect, "%s succeeded with %q, which is of none of its executions: %s", c.id, f.Text, ids(ran))
		}
		if onceTool(c.tool) && len(ran) == 0 {
			s.violate(checkEffect, "%s (%s) succeeded and did not run", c.id, c.tool)
		}
	case "denied", "rejected", "expired", "invalid":
		if len(ran) > 0 {
			s.violate(checkNoEffect, "%s (%s) ended as %s and ran: %s", c.id, c.tool, f.Outcome, ids(ran))
		}
	case "error", "timeout", "unknown":
	default:
		s.violate(checkJournal, "%s ended as %q", c.id, f.Outcome)
	}
	if c.verdict == "deny" && c.finished.Outcome != "denied" {
		s.violate(checkNoEffect, "%s is denied by policy and ended as %s", c.id, c.finished.Outcome)
	}
}

// decisions: what a reviewer was told is what the journal says and what happened.
func (s *scene) decisions() {
	for _, a := range s.story.attempts {
		for _, d := range a.decisions {
			s.decision(a, d)
		}
	}
	for id, h := range s.record.holds {
		for _, it := range h.items {
			if it.decision != nil && !s.posted(it) {
				s.violate(checkLoser, "hold %s, %s: %s is recorded, and nobody who was not refused posted that", id, it.call, it.decision.Action)
			}
		}
	}
}

// posted reports whether an attempt that was not refused says what the journal has.
func (s *scene) posted(it *item) bool {
	return slices.ContainsFunc(s.story.attempts, func(a attempt) bool {
		return a.verdict != denied && a.hold == it.hold && slices.ContainsFunc(a.decisions, func(d api.ItemDecision) bool {
			return d.ID == it.call && sameDecision(d, *it.decision)
		})
	})
}

// sameDecision compares a posted decision with a recorded one. An approval may
// repeat the arguments; it is recorded without.
func sameDecision(posted api.ItemDecision, recorded api.Decision) bool {
	return posted.Action == recorded.Action && posted.Reason == recorded.Reason &&
		(posted.Action == "approve" || bytes.Equal(posted.Data, recorded.Data))
}

func (s *scene) decision(a attempt, d api.ItemDecision) {
	if a.verdict == denied && !slices.Contains([]problem.Code{problem.HoldDecided, problem.HoldExpired, problem.HoldCancelled, problem.HoldStale}, a.code) {
		s.violate(checkDecision, "hold %s, %s: %s was refused as %s", a.hold, d.ID, d.Action, a.code)
	}
	if a.verdict != accepted {
		return
	}
	var it *item
	if h := s.record.holds[a.hold]; h != nil {
		it = h.items[d.ID]
	}
	if it == nil || it.decision == nil {
		s.violate(checkDecision, "hold %s, %s: %s was accepted and is not recorded", a.hold, d.ID, d.Action)
		return
	}
	if !sameDecision(d, *it.decision) {
		s.violate(checkRace, "hold %s, %s: %s was accepted and %s is recorded", a.hold, d.ID, d.Action, it.decision.Action)
		return
	}
	c := s.record.call(d.ID)
	if c == nil || c.finished == nil || c.items[len(c.items)-1] != it {
		return // the run ended before, or somebody was asked again
	}
	if outcomes := leadsTo(d.Action); !slices.Contains(outcomes, c.finished.Outcome) {
		s.violate(checkDecision, "hold %s, %s: %s was accepted and the call ended as %s", a.hold, d.ID, d.Action, c.finished.Outcome)
	}
	if d.Action == "ran" && c.finished.By == "" {
		s.violate(checkDecision, "hold %s, %s: a person gave the result, and the journal does not say so", a.hold, d.ID)
	}
}

// leadsTo are the outcomes a call may have after a decision. An approved call can
// meet a server that is gone; it is cancelled as unknown.
func leadsTo(action string) []string {
	switch action {
	case "approve", "edit":
		return []string{"success", "error", "timeout", "unknown"}
	case "reject":
		return []string{"rejected"}
	case "ran":
		return []string{"success", "unknown"}
	case "retry":
		return []string{"success", "error", "timeout", "unknown"}
	case "skip":
		return []string{"unknown"}
	}
	return nil
}

// follower: the event stream is the journal, however many workers it came from.
func (s *scene) follower() {
	for i, e := range s.story.seen {
		if i >= len(s.record.entries) {
			s.violate(checkFollower, "entry %d was streamed and is not in the journal", e.Seq)
			return
		}
		if is := s.record.entries[i]; e.Seq != is.Seq || e.Type != is.Type || !bytes.Equal(e.Data, is.Data) || !e.At.Equal(is.At.Time) {
			s.violate(checkFollower, "event %d is entry %d (%s), the journal has entry %d (%s) there", i+1, e.Seq, e.Type, is.Seq, is.Type)
			return
		}
	}
	if n := len(s.story.seen); n > 0 && s.record.end != "" && n < len(s.record.entries) {
		s.violate(checkFollower, "the stream ended after %d of %d entries", n, len(s.record.entries))
	}
}
