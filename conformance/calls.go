package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentos/api"
	"agentos/internal/rawjson"
)

// expected is what the kit expects of one call.
type expected struct {
	call api.Call
	// peace is how often it runs undisturbed: 0 or 1. times is how often it runs
	// with the fault that was played.
	peace, times int
	// arguments are what may run; nil means anything.
	arguments json.RawMessage
}

// effectOnce is the effect class of calls that never run a second time by
// themselves.
const effectOnce = "once"

// counts compares what ran with what was decided.
func (a *attempt) counts(ctx context.Context) error {
	t, err := a.k.client.Trajectory(ctx, env, a.run.RunID)
	if err != nil {
		return a.gone(err)
	}
	rec, err := a.recovery(ctx)
	if err != nil {
		return err
	}
	lost, err := a.lost()
	if err != nil {
		return err
	}
	want := map[string]expected{}
	for _, turn := range t.Turns {
		for _, c := range turn.Calls {
			want[c.ID] = a.expect(c, rec, lost)
		}
	}
	ran, err := a.ran(t)
	if err != nil {
		return err
	}
	a.checkTimes(want, ran)
	a.checkArguments(want, ran)
	if a.ordered(FaultDrop) && a.check(CheckFault, len(lost) > 0, "an answer that was kept back", "no call to drop") == nil {
		a.checkLost(want, lost)
	}
	if a.fired {
		fault := rec.fault(a.c.Unknown.Action)
		a.result.check(CheckRecovered, fault == "", "the outcome that the crash table names", fault)
	}
	return nil
}

// expect works out from the decisions and the fault how often a call must have
// run.
func (a *attempt) expect(c api.Call, rec recovery, lost map[string]bool) expected {
	e := expected{call: c, arguments: c.ProposedArguments}
	r, ruled := a.rulings[c.ID]
	switch {
	case r.expired || r.action == actionReject:
	case r.action == actionApprove || r.action == actionEdit:
		e.peace, e.arguments = 1, r.arguments
	case c.Outcome == "denied" || c.Outcome == "invalid":
	case !ruled && c.Verdict.Effect == "ask":
		// Nobody has decided it: it must not have run.
	default:
		e.peace = 1
	}
	e.times = e.peace
	if e.peace == 0 {
		return e
	}
	key := a.run.RunID + "/" + c.ID
	switch {
	case rec.inFlight[c.ID] && (c.Effect != effectOnce || r.unknown == actionRetry):
		e.times = a.before[key] + 1
	case rec.inFlight[c.ID]:
		e.times = a.before[key]
	case lost[c.ID] && (c.Effect != effectOnce || r.unknown == actionRetry):
		e.times = 2
	}
	return e
}

// ran are the executions of the run: those that the proxies noted, and for
// servers without a proxy those that the trajectory tells.
func (a *attempt) ran(t api.Trajectory) ([]Execution, error) {
	var out []Execution
	if a.k.own() {
		var err error
		if out, err = a.executions(); err != nil {
			return nil, err
		}
	}
	for _, turn := range t.Turns {
		for _, c := range turn.Calls {
			if c.Server == "" || a.k.proxied(c.Server) {
				continue
			}
			for range c.Executions {
				out = append(out, Execution{Server: c.Server, Tool: c.Tool, Arguments: c.ExecutedArguments, Key: a.run.RunID + "/" + c.ID})
			}
		}
	}
	return out, nil
}

// checkTimes checks the number of executions of each call, and the totals that
// the case names.
func (a *attempt) checkTimes(want map[string]expected, ran []Execution) {
	got := map[string]int{}
	for _, e := range ran {
		got[e.Key]++
	}
	var faults, wanted []string
	for id, w := range want {
		key := a.run.RunID + "/" + id
		if got[key] != w.times {
			wanted = append(wanted, fmt.Sprintf("%s (%s) %d times", id, w.call.Name, w.times))
			faults = append(faults, fmt.Sprintf("%s %d times", id, got[key]))
		}
		delete(got, key)
	}
	for key, n := range got {
		wanted = append(wanted, "only calls of the run")
		faults = append(faults, fmt.Sprintf("%d executions with the idempotency key %q", n, key))
	}
	if !a.turned {
		for _, c := range a.c.Calls {
			if n := c.count(ran); n != c.Times+c.disturbance(want) {
				wanted = append(wanted, fmt.Sprintf("%s %d times", c.Tool, c.Times+c.disturbance(want)))
				faults = append(faults, fmt.Sprintf("%s %d times", c.Tool, n))
			}
		}
	}
	slices.Sort(wanted)
	slices.Sort(faults)
	a.result.check(CheckTimes, len(faults) == 0, strings.Join(wanted, ", "), strings.Join(faults, ", "))
}

// count returns how many executions the case's entry is about.
func (c CallCount) count(ran []Execution) int {
	n := 0
	for _, e := range ran {
		if c.names(e.Server, e.Tool) && (c.Arguments == nil || subset(c.Arguments, e.Arguments) == "") {
			n++
		}
	}
	return n
}

// disturbance is how many more or fewer executions the fault makes right.
func (c CallCount) disturbance(want map[string]expected) int {
	n := 0
	for _, w := range want {
		if c.names(w.call.Server, w.call.Tool) && (c.Arguments == nil || subset(c.Arguments, w.arguments) == "") {
			n += w.times - w.peace
		}
	}
	return n
}

func (c CallCount) names(server, tool string) bool {
	return c.Tool == tool || c.Tool == server+"/"+tool
}

// checkArguments checks that every execution had the arguments that a person
// approved or, without a person, those that the model proposed.
func (a *attempt) checkArguments(want map[string]expected, ran []Execution) {
	for _, e := range ran {
		_, id, _ := strings.Cut(e.Key, "/")
		w, ok := want[id]
		if !ok || w.arguments == nil || rawjson.Equal(w.arguments, e.Arguments) {
			continue
		}
		a.result.check(CheckApproved, false, fmt.Sprintf("%s with %s", id, w.arguments), string(e.Arguments))
		return
	}
	a.result.check(CheckApproved, true, "", "")
}

// lost are the calls whose answer a drop_mcp fault kept back.
func (a *attempt) lost() (map[string]bool, error) {
	if !a.k.own() {
		return nil, nil
	}
	all, err := readLines[Execution](a.k.cfg.Dir, lostFile)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, e := range all {
		if run, id, _ := strings.Cut(e.Key, "/"); run == a.run.RunID {
			out[id] = true
		}
	}
	return out, nil
}

// checkLost checks how a call ended whose answer was lost with its server: one
// that may run again did so, any other is nowhere called a success.
func (a *attempt) checkLost(want map[string]expected, lost map[string]bool) {
	fault := ""
	for id := range lost {
		c := want[id].call
		switch again := c.Effect != effectOnce; {
		case again && c.Outcome != "success" && c.Outcome != "error":
			fault = fmt.Sprintf("%s (%s) ended %q", id, c.Effect, c.Outcome)
		case again && c.Reconnects == 0:
			fault = id + " shows no reconnect"
		case !again && a.rulings[id].unknown == "" && c.Outcome != "unknown":
			fault = fmt.Sprintf("%s (%s) ended %q without asking anybody", id, c.Effect, c.Outcome)
		}
	}
	a.result.check(CheckLost, fault == "", "read and idempotent run again, once ends unknown or asks a person", fault)
}
