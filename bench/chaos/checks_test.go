package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentos/api"
	"agentos/audit"
	"agentos/internal/problem"
)

// stage is a run in which nothing is wrong, to plant a violation in.
type stage struct {
	story  *story
	run    api.Run
	types  []string
	data   []string
	ledger map[string][]mark
}

// planWith finds a plan of the shape.
func planWith(t *testing.T, want shape) plan {
	t.Helper()
	for n := range 10000 {
		if p := newPlan(1, n); p.shape == want && !p.oddIDs {
			return p
		}
	}
	t.Fatalf("no run has the shape %s", want)
	return plan{}
}

func (s *stage) entry(kind, data string, args ...any) {
	s.types, s.data = append(s.types, kind), append(s.data, fmt.Sprintf(data, args...))
}

// ran adds a call that was started, ran as execution id and succeeded.
func (s *stage) ran(call, tool, args, effect, id string) {
	s.started(call, tool, args, effect)
	s.executed(call, tool, args, id)
	s.entry("call.finished", `{"call":%q,"outcome":"success","text":"%s done, execution %s"}`, call, tool, id)
}

func (s *stage) started(call, tool, args, effect string) {
	s.entry("call.started", `{"call":%q,"tool":%q,"arguments":%s,"effect":%q,"idempotency_key":"r_1/%s"}`, call, tool, args, effect, call)
}

func (s *stage) executed(call, tool, args, id string) {
	key := "r_1/" + call
	for _, event := range []string{"start", "end"} {
		s.ledger[key] = append(s.ledger[key], mark{Event: event, ID: id, Key: key, Tool: tool, Arguments: args})
	}
}

// approvedRun is a run whose one call was approved, or charged at once.
func approvedRun(t *testing.T, sh shape) *stage {
	t.Helper()
	p := planWith(t, sh)
	s := &stage{
		story: &story{plan: p, ids: []string{"r_1"}}, ledger: map[string][]mark{},
		run: api.Run{RunID: "r_1", Status: api.RunCompleted, Output: json.RawMessage(fmt.Sprintf(`{"answer":%q}`, p.answer()))},
	}
	c := p.turns[0][0]
	s.entry("run.created", `{"prompt":%q}`, p.prompt())
	s.entry("model.answered", `{"calls":[{"id":"call_1","tool":%q,"verdict":{"effect":"allow"}}]}`, c.tool)
	if c.tool == "refund" {
		s.entry("hold.opened", `{"hold":{"hold_id":"h_1_1","kind":"tool_call","items":[{"id":"call_1","data":%s}]}}`, c.args)
		s.entry("hold.decided", `{"hold_id":"h_1_1","items":[{"id":"call_1","proposed":%s,"decision":{"action":"approve"}}]}`, c.args)
		s.entry("hold.closed", `{"hold_id":"h_1_1","why":"decided"}`)
		s.story.attempts = []attempt{{hold: "h_1_1", kind: toolCallHold, verdict: accepted, decisions: []api.ItemDecision{{ID: "call_1", Action: "approve"}}}}
	}
	s.ran("call_1", c.tool, string(c.args), "once", "E1")
	s.entry("model.answered", `{}`)
	s.entry("run.completed", `{}`)
	return s
}

// lostCall is a run whose call was cut off; a person said what to do.
func lostCall(t *testing.T, action string) *stage {
	t.Helper()
	s := approvedRun(t, charge)
	args := string(s.story.plan.turns[0][0].args)
	s.types, s.data, s.ledger = s.types[:2], s.data[:2], map[string][]mark{}
	s.started("call_1", "charge", args, "once")
	s.entry("run.recovered", `{}`)
	s.entry("hold.opened", `{"hold":{"hold_id":"h_1_1","kind":"outcome_unknown","items":[{"id":"call_1","data":%s}]}}`, args)
	s.entry("hold.decided", `{"hold_id":"h_1_1","items":[{"id":"call_1","proposed":%s,"decision":{"action":%q}}]}`, args, action)
	s.entry("hold.closed", `{"hold_id":"h_1_1","why":"decided"}`)
	s.story.attempts = []attempt{{hold: "h_1_1", kind: unknownHold, verdict: accepted, decisions: []api.ItemDecision{{ID: "call_1", Action: action}}}}
	switch action {
	case "retry":
		s.ran("call_1", "charge", args, "once", "E2")
	case "ran":
		s.entry("call.finished", `{"call":"call_1","outcome":"success","text":"a person saw it","by":"local"}`)
	case "skip":
		s.entry("call.finished", `{"call":"call_1","outcome":"unknown"}`)
	}
	s.entry("model.answered", `{}`)
	s.entry("run.completed", `{}`)
	return s
}

// replace changes the n-th entry of a kind, counting from 0.
func (s *stage) replace(kind string, n int, change func(string) string) {
	for i, t := range s.types {
		if t == kind {
			if n == 0 {
				s.data[i] = change(s.data[i])
				return
			}
			n--
		}
	}
	panic("no such entry: " + kind)
}

// drop leaves out all entries of the kinds.
func (s *stage) drop(kinds ...string) {
	for i := range slices.Backward(slices.Clone(s.types)) {
		if slices.Contains(kinds, s.types[i]) {
			s.types, s.data = slices.Delete(s.types, i, i+1), slices.Delete(s.data, i, i+1)
		}
	}
}

func with(old, repl string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, repl, 1) }
}

func (s *stage) entries() []api.Entry {
	var out []api.Entry
	for i := range s.types {
		out = append(out, api.Entry{Seq: int64(i + 1), Type: s.types[i], Data: json.RawMessage(s.data[i])})
	}
	return out
}

// found makes the checks as the program does, from the whole evidence.
func (s *stage) found() []violation {
	r, err := readRecord(s.run, s.entries())
	e := &evidence{stories: []*story{s.story}, records: map[string]*record{"r_1": r}, ledger: s.ledger, listed: []api.Run{s.run}}
	if err != nil {
		e.found = append(e.found, violation{checkJournal, "r_1", err.Error()})
	}
	if s.run.Hold != nil {
		e.pending = append(e.pending, *s.run.Hold)
	}
	return e.judge()
}

// held makes the run one that waits for its approval.
func (s *stage) held() {
	s.types, s.data = s.types[:3], s.data[:3]
	s.ledger, s.story.attempts = map[string][]mark{}, nil
	s.run.Status, s.run.Output = api.RunHeld, nil
	s.run.Hold = &api.Hold{HoldID: "h_1_1", RunID: "r_1", Status: api.HoldPending}
}

func TestNothingIsFoundWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*stage{
		"approved": approvedRun(t, approve), "charged": approvedRun(t, charge),
		"ran": lostCall(t, "ran"), "retry": lostCall(t, "retry"), "skip": lostCall(t, "skip"),
	} {
		if all := s.found(); len(all) > 0 {
			t.Errorf("%s: %+v", name, all)
		}
	}
	s := lostCall(t, "retry") // the first execution happened too
	s.executed("call_1", "charge", string(s.story.plan.turns[0][0].args), "E1")
	if all := s.found(); len(all) > 0 {
		t.Errorf("executed twice with leave: %+v", all)
	}
	s = approvedRun(t, park)
	s.held()
	if all := s.found(); len(all) > 0 {
		t.Errorf("held: %+v", all)
	}
}

// Each case plants one thing that must not be; the check for it has to find it.
func TestPlantedViolationsAreFound(t *testing.T) {
	t.Parallel()
	args := func(s *stage) string { return string(s.story.plan.turns[0][0].args) }
	for _, c := range []struct {
		name  string
		start func(*testing.T) *stage
		plant func(*stage)
		want  check
	}{
		{"a once tool ran twice", charged, func(s *stage) { s.executed("call_1", "charge", args(s), "E2") }, checkOnce},
		{"it was started twice", charged, func(s *stage) {
			s.types, s.data = slices.Insert(s.types, 2, s.types[2]), slices.Insert(s.data, 2, s.data[2])
		}, checkOnce},
		{"it ran twice, and a person said skip", skipped, func(s *stage) {
			s.executed("call_1", "charge", args(s), "E1")
			s.executed("call_1", "charge", args(s), "E2")
		}, checkOnce},
		{"it ran three times with one retry", retried, func(s *stage) {
			s.executed("call_1", "charge", args(s), "E1")
			s.executed("call_1", "charge", args(s), "E3")
		}, checkOnce},
		{"success without an execution", charged, func(s *stage) { s.ledger = map[string][]mark{} }, checkEffect},
		{"a result of another execution", charged, func(s *stage) { s.replace("call.finished", 0, with("E1", "E9")) }, checkEffect},
		{"it ran and was never started", charged, func(s *stage) { s.drop("call.started") }, checkRecorded},
		{"a call that nobody knows ran", charged, func(s *stage) { s.ledger["r_1/call_7"] = s.ledger["r_1/call_1"] }, checkRecorded},
		{"a run that nobody knows ran", charged, func(s *stage) { s.ledger["r_2/call_1"] = s.ledger["r_1/call_1"] }, checkRecorded},
		{"a rejected call ran", charged, func(s *stage) { s.replace("call.finished", 0, with("success", "rejected")) }, checkNoEffect},
		{"a denied call ended well", charged, func(s *stage) { s.replace("model.answered", 0, with("allow", "deny")) }, checkNoEffect},
		{"a gated call ran and nobody was asked", approved, func(s *stage) {
			s.drop("hold.opened", "hold.decided", "hold.closed")
			s.story.attempts = nil
		}, checkNoEffect},
		{"a call ran that a person rejected", approved, func(s *stage) {
			s.replace("hold.decided", 0, with("approve", "reject"))
			s.story.attempts[0].decisions[0].Action = "reject"
		}, checkNoEffect},
		{"a call ran that nobody decided", approved, func(s *stage) {
			s.drop("hold.decided")
			s.story.attempts = nil
		}, checkNoEffect},
		{"other arguments ran", charged, func(s *stage) { s.ledger["r_1/call_1"][0].Arguments = `{"ref":"x"}` }, checkArguments},
		{"the same arguments in another order ran", charged, func(s *stage) {
			s.ledger["r_1/call_1"][0].Arguments = strings.Replace(args(s), `"z":[1.0,1e2]`, `"z":[1,100]`, 1)
		}, checkArguments},
		{"another tool ran", charged, func(s *stage) { s.ledger["r_1/call_1"][0].Tool = "slow" }, checkArguments},
		{"the journal starts other arguments", charged, func(s *stage) { s.replace("call.started", 0, with("1e2", "1e3")) }, checkArguments},
		{"a person was shown other arguments", approved, func(s *stage) {
			s.replace("hold.opened", 0, with("1e2", "1e3"))
			s.replace("hold.decided", 0, with("1e2", "1e3"))
		}, checkArguments},
		{"an edit did not run", approved, func(s *stage) {
			s.replace("hold.decided", 0, with(`"action":"approve"`, `"action":"edit","data":{"ref":"e"}`))
			s.story.attempts[0].decisions[0] = api.ItemDecision{ID: "call_1", Action: "edit", Data: json.RawMessage(`{"ref":"e"}`)}
		}, checkArguments},
		{"an accepted decision is not recorded", approved, func(s *stage) {
			s.story.attempts[0].decisions = append(s.story.attempts[0].decisions, api.ItemDecision{ID: "call_2", Action: "approve"})
		}, checkDecision},
		{"an accepted decision led to another end", approved, func(s *stage) {
			s.replace("call.finished", 0, with("success", "expired"))
			s.ledger = map[string][]mark{}
		}, checkDecision},
		{"a result of a person is not said to be", answeredRan, func(s *stage) {
			s.replace("call.finished", 0, with(`,"by":"local"`, ""))
			s.executed("call_1", "charge", args(s), "E1")
			s.replace("call.finished", 0, with("a person saw it", "execution E1"))
		}, checkDecision},
		{"a decision was refused for no reason", approved, func(s *stage) {
			s.story.attempts = append(s.story.attempts, attempt{hold: "h_1_1", verdict: denied, code: problem.HoldNotFound, decisions: s.story.attempts[0].decisions})
		}, checkDecision},
		{"both of a race won", approved, func(s *stage) {
			s.story.attempts = append(s.story.attempts, attempt{hold: "h_1_1", verdict: accepted, decisions: []api.ItemDecision{{ID: "call_1", Action: "reject"}}})
		}, checkRace},
		{"a refused decision took effect", approved, func(s *stage) {
			s.story.attempts[0].verdict, s.story.attempts[0].code = denied, problem.HoldDecided
		}, checkLoser},
		{"a decision that nobody posted", approved, func(s *stage) { s.story.attempts = nil }, checkLoser},
		{"an item was decided twice", approved, func(s *stage) {
			s.types, s.data = slices.Insert(s.types, 4, s.types[3]), slices.Insert(s.data, 4, s.data[3])
		}, checkJournal},
		{"a run is stuck", charged, func(s *stage) {
			s.run.Status = api.RunRunning
			s.drop("run.completed")
		}, checkSettled},
		{"a run is queued for ever", charged, func(s *stage) {
			s.run.Status = api.RunQueued
			s.drop("run.completed")
		}, checkSettled},
		{"a run is held that should have been decided", approved, (*stage).held, checkSettled},
		{"a held run without a hold", parked, func(s *stage) {
			s.held()
			s.run.Hold = nil
		}, checkSettled},
		{"a cancelled run is held", parked, func(s *stage) {
			s.held()
			s.story.cancelled = true
		}, checkCancelled},
		{"a run is cancelled and nobody wanted it", charged, func(s *stage) {
			s.run.Status = api.RunCancelled
			s.types[len(s.types)-1] = "run.cancelled"
		}, checkCancelled},
		{"a journal goes on after its end", charged, func(s *stage) { s.entry("call.finished", `{"call":"call_1"}`) }, checkJournal},
		{"the status is not the journal's", charged, func(s *stage) { s.run.Status = api.RunFailed }, checkJournal},
		{"a completed run has an open call", charged, func(s *stage) { s.drop("call.finished") }, checkJournal},
		{"a completed run left out a call", charged, func(s *stage) { s.drop("call.finished", "call.started", "model.answered") }, checkJournal},
		{"a call the model never asked for", charged, func(s *stage) {
			s.replace("model.answered", 1, func(string) string { return `{"calls":[{"id":"call_2","tool":"charge"}]}` })
			s.ran("call_2", "charge", `{}`, "once", "E2")
		}, checkJournal},
		{"a hold is left open", approved, func(s *stage) { s.drop("hold.closed") }, checkJournal},
		{"a call finished twice", charged, func(s *stage) {
			s.types, s.data = slices.Insert(s.types, 4, "call.finished"), slices.Insert(s.data, 4, s.data[3])
		}, checkJournal},
		{"an outcome that is none", charged, func(s *stage) { s.replace("call.finished", 0, with("success", "splendid")) }, checkJournal},
		{"another output", charged, func(s *stage) { s.run.Output = json.RawMessage(`{"answer":"?"}`) }, checkOutput},
		{"a failure without excuse", charged, func(s *stage) {
			s.run.Status, s.run.Error = api.RunFailed, &api.Error{Code: problem.InvalidHistory}
			s.types[len(s.types)-1] = "run.failed"
		}, checkFailure},
		{"expiry failed a run that does not ask for it", charged, func(s *stage) {
			s.run.Status, s.run.Error = api.RunFailed, &api.Error{Code: problem.HoldExpired}
			s.types[len(s.types)-1] = "run.failed"
		}, checkFailure},
		{"an event that is not in the journal", charged, func(s *stage) {
			s.story.seen = append(s.entries(), api.Entry{Seq: 99})
		}, checkFollower},
		{"an event with other data", charged, func(s *stage) {
			s.story.seen = s.entries()
			s.story.seen[2].Data = json.RawMessage(`{}`)
		}, checkFollower},
		{"an event is missing", charged, func(s *stage) { s.story.seen = slices.Delete(s.entries(), 1, 2) }, checkFollower},
		{"the stream ended early", charged, func(s *stage) { s.story.seen = s.entries()[:3] }, checkFollower},
		{"a run vanished", charged, func(s *stage) { s.story.vanished = true }, checkExists},
		{"an accepted run is not there", charged, func(s *stage) { s.story.ids = []string{"r_2"} }, checkExists},
		{"one key made two runs", charged, func(s *stage) { s.story.ids = append(s.story.ids, "r_2") }, checkSingle},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := c.start(t)
			c.plant(s)
			all := s.found()
			if !slices.ContainsFunc(all, func(v violation) bool { return v.Check == c.want }) {
				t.Errorf("%s was not found; found %+v", c.want, all)
			}
		})
	}
}

func charged(t *testing.T) *stage     { t.Helper(); return approvedRun(t, charge) }
func approved(t *testing.T) *stage    { t.Helper(); return approvedRun(t, approve) }
func parked(t *testing.T) *stage      { t.Helper(); return approvedRun(t, park) }
func skipped(t *testing.T) *stage     { t.Helper(); return lostCall(t, "skip") }
func retried(t *testing.T) *stage     { t.Helper(); return lostCall(t, "retry") }
func answeredRan(t *testing.T) *stage { t.Helper(); return lostCall(t, "ran") }

func TestListsThatDisagreeAreFound(t *testing.T) {
	t.Parallel()
	s := parked(t)
	s.held()
	r, err := readRecord(s.run, s.entries())
	if err != nil {
		t.Fatal(err)
	}
	whole := func() *evidence {
		return &evidence{
			stories: []*story{s.story}, records: map[string]*record{"r_1": r},
			listed: []api.Run{s.run}, pending: []api.Hold{*s.run.Hold},
		}
	}
	if all := whole().judge(); len(all) > 0 {
		t.Fatalf("found %+v", all)
	}
	for name, c := range map[string]struct {
		plant func(*evidence)
		want  check
	}{
		"a pending hold is not listed":         {func(e *evidence) { e.pending = nil }, checkIndex},
		"a hold of no held run is listed":      {func(e *evidence) { e.pending = append(e.pending, api.Hold{HoldID: "h_9_1", RunID: "r_9"}) }, checkIndex},
		"a hold is listed twice":               {func(e *evidence) { e.pending = append(e.pending, e.pending[0]) }, checkIndex},
		"a run is listed with another status":  {func(e *evidence) { e.listed[0].Status = api.RunRunning }, checkIndex},
		"a run is listed twice":                {func(e *evidence) { e.listed = append(e.listed, e.listed[0]) }, checkExists},
		"a run is not listed":                  {func(e *evidence) { e.listed = nil }, checkExists},
		"two runs were made of one":            {twoRuns, checkSingle},
		"a journal that could not be read was": {func(e *evidence) { e.found = []violation{{Check: checkJournal}} }, checkJournal},
	} {
		e := whole()
		c.plant(e)
		if all := e.judge(); !slices.ContainsFunc(all, func(v violation) bool { return v.Check == c.want }) {
			t.Errorf("%s: %s was not found; found %+v", name, c.want, all)
		}
	}
}

func twoRuns(e *evidence) {
	input := json.RawMessage(`{"message":"` + e.stories[0].plan.prompt() + `"}`)
	e.listed[0].Input = input
	e.listed = append(e.listed, api.Run{RunID: "r_2", Input: input})
}

// exported is an audit that says what the entries say.
func exported(t *testing.T, entries ...audit.Entry) []byte {
	t.Helper()
	var out []byte
	prev := ""
	for i, e := range entries {
		e.N, e.Prev, e.Env, e.Run = int64(i+1), prev, environment, "r_1"
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(line)
		out, prev = append(append(out, line...), '\n'), "sha256:"+hex.EncodeToString(sum[:])
	}
	return out
}

func TestAnAuditThatDisagreesIsFound(t *testing.T) {
	t.Parallel()
	s := approved(t)
	whole := exported(t,
		audit.Entry{Event: audit.HoldDecided, Items: []audit.Item{{Call: "call_1", Action: "approve", Decided: "sha256:1"}}},
		audit.Entry{Event: audit.CallRan, Call: &audit.Call{ID: "call_1", Arguments: "sha256:1"}})
	r, err := readRecord(s.run, s.entries())
	if err != nil {
		t.Fatal(err)
	}
	first := whole[:bytes.IndexByte(whole, '\n')+1]
	for name, c := range map[string]struct {
		text []byte
		want bool
	}{
		"nothing wrong":      {whole, false},
		"the call missing":   {first, true},
		"all missing":        {nil, true},
		"a decision twice":   {slices.Concat(first, whole), true},
		"a decision changed": {bytes.Replace(whole, []byte("approve"), []byte("reject"), 1), true},
	} {
		e := &evidence{records: map[string]*record{"r_1": r}, audit: c.text}
		if found := e.told(); (len(found) > 0) != c.want {
			t.Errorf("%s: found %+v", name, found)
		}
	}
	e := &evidence{records: map[string]*record{}, audit: whole}
	if found := e.told(); len(found) > 0 {
		t.Errorf("a run whose retention is over: %+v", found)
	}
}

// What may be lost is forgiven, what may never happen is not.
func TestForgive(t *testing.T) {
	t.Parallel()
	kept, lost := forgive([]violation{{Check: checkExists}, {Check: checkOnce}, {Check: checkDecision}, {Check: checkArguments}, {Check: checkSettled}, {Check: checkIndex}})
	if len(kept) != 4 || len(lost) != 2 {
		t.Errorf("kept %v, lost %v", kept, lost)
	}
}

func TestJournalsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(*stage){
		"unknown type":              func(s *stage) { s.entry("run.rested", `{}`) },
		"data that is no object":    func(s *stage) { s.replace("call.started", 0, func(string) string { return `[]` }) },
		"a call that was not asked": func(s *stage) { s.replace("call.started", 0, with("call_1", "call_3")) },
		"a call asked for twice":    func(s *stage) { s.replace("model.answered", 1, func(string) string { return s.data[1] }) },
		"a hold of no call":         func(s *stage) { s.replace("hold.opened", 0, with("call_1", "call_3")) },
		"a decision of no item":     func(s *stage) { s.replace("hold.decided", 0, with("call_1", "call_3")) },
		"a decision of no hold":     func(s *stage) { s.replace("hold.decided", 0, with("h_1_1", "h_1_9")) },
		"other arguments decided":   func(s *stage) { s.replace("hold.decided", 0, with("1e2", "1e3")) },
		"a hold closed twice": func(s *stage) {
			s.types, s.data = slices.Insert(s.types, 5, s.types[4]), slices.Insert(s.data, 5, s.data[4])
		},
		"a hold opened twice": func(s *stage) {
			s.types, s.data = slices.Insert(s.types, 3, s.types[2]), slices.Insert(s.data, 3, s.data[2])
		},
	} {
		s := approved(t)
		plant(s)
		if _, err := readRecord(s.run, s.entries()); err == nil {
			t.Errorf("%s was read without complaint", name)
		}
	}
	gap := approved(t).entries()
	gap[4].Seq = 9
	if _, err := readRecord(api.Run{}, gap); err == nil {
		t.Error("a gap was read without complaint")
	}
}
