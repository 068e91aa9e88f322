package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// shape is what a run is about.
type shape string

// The shapes of runs.
const (
	lookup     shape = "lookup"      // reads and idempotent writes
	charge     shape = "charge"      // one call that must not run twice
	parallel   shape = "parallel"    // several calls of one message on both servers
	serial     shape = "serial"      // the same, one after another
	slow       shape = "slow"        // a tool that takes up to three seconds
	flaky      shape = "flaky"       // a tool that fails, in the result or in the protocol
	refused    shape = "refused"     // calls that policy denies or that do not fit the schema
	approve    shape = "approve"     // one approval
	edit       shape = "edit"        // one approval with other arguments
	reject     shape = "reject"      // one refusal
	partial    shape = "partial"     // several items, decided one by one
	duplicate  shape = "duplicate"   // the same decision twice at once, on two processes
	race       shape = "race"        // approve and reject at once, on two processes
	chain      shape = "chain"       // approvals in several turns
	expire     shape = "expire"      // nobody decides in time, or at the last moment
	expireFail shape = "expire_fail" // the same, and expiry fails the run
	cancel     shape = "cancel"      // cancelled at a random time
	cancelRace shape = "cancel_race" // cancelled and approved at once
	park       shape = "park"        // left held
)

// mix is how often each shape comes, of the sum of all.
var mix = []struct {
	shape  shape
	weight int
}{
	{lookup, 14},
	{charge, 12},
	{parallel, 8},
	{serial, 4},
	{slow, 5},
	{flaky, 5},
	{refused, 3},
	{approve, 8},
	{edit, 6},
	{reject, 5},
	{partial, 6},
	{duplicate, 5},
	{race, 6},
	{chain, 4},
	{expire, 3},
	{expireFail, 2},
	{cancel, 6},
	{cancelRace, 4},
	{park, 1},
}

// plan is all that is decided about a run before it begins. It is the same for
// the same seed and number.
type plan struct {
	n     int
	seed  uint64
	shape shape
	// capability is the one of the manifest.
	capability string
	// turns are the calls the model asks for, turn by turn; then it answers.
	turns [][]toolCall
	// oddIDs: the model gives all calls the same id.
	oddIDs bool
}

// toolCall is one call the model asks for.
type toolCall struct {
	server, tool string
	args         json.RawMessage
}

// name is the tool as the model sees it.
func (c toolCall) name() string { return "mcp__" + c.server + "__" + c.tool }

// newPlan makes the plan of run n.
func newPlan(seed uint64, n int) plan {
	d := dice{rand.New(rand.NewPCG(seed, uint64(n)))}
	p := plan{n: n, seed: seed, shape: d.shape(), capability: "work", oddIDs: d.chance(5)}
	one := func(tools ...string) {
		var calls []toolCall
		for _, t := range tools {
			calls = append(calls, d.call(p, len(p.turns), len(calls), t))
		}
		p.turns = append(p.turns, calls)
	}
	switch p.shape {
	case lookup:
		one("read")
		if d.chance(50) {
			one("set", "read")
		}
	case charge:
		one("charge")
	case parallel, serial:
		one("read", "charge", "set", "charge", "read")
	case slow:
		one("slow")
	case flaky:
		one("flaky", "read")
		one("charge")
	case refused:
		one("drop", "charge", "broken")
	case approve, edit, reject, duplicate, race, cancelRace, park:
		one("refund")
	case partial:
		one("refund", "charge", "refund", "refund")
	case chain:
		one("refund")
		one("charge")
		one("refund", "refund")
	case expire, expireFail:
		one("refund", "read")
	case cancel:
		one(pick(d, "slow", "charge", "refund"), "read")
		one("charge")
	}
	if c := map[shape]string{serial: "serial", expire: "hasty", expireFail: "strict"}[p.shape]; c != "" {
		p.capability = c
	}
	return p
}

// prompt is the user message of the run, by which the model knows its plan.
func (p plan) prompt() string { return fmt.Sprintf("run %d of chaos %d", p.n, p.seed) }

// planOf reads a prompt back.
func planOf(prompt string) (plan, error) {
	var n int
	var seed uint64
	if _, err := fmt.Sscanf(prompt, "run %d of chaos %d", &n, &seed); err != nil {
		return plan{}, fmt.Errorf("no prompt of ours: %q", prompt)
	}
	return newPlan(seed, n), nil
}

// answer is what the model says at last.
func (p plan) answer() string { return fmt.Sprintf("run %d is done", p.n) }

// call returns what our n-th call of the run is, counting from 1 over all turns.
func (p plan) call(n int) (toolCall, bool) {
	for _, t := range p.turns {
		if n <= len(t) {
			return t[n-1], n > 0
		}
		n -= len(t)
	}
	return toolCall{}, false
}

// dice are the random choices of one run.
type dice struct{ *rand.Rand }

// chance is true in percent of 100 cases.
func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func (d dice) shape() shape {
	sum := 0
	for _, m := range mix {
		sum += m.weight
	}
	at := d.IntN(sum)
	for _, m := range mix {
		if at -= m.weight; at < 0 {
			return m.shape
		}
	}
	panic("unreachable: at is less than the sum of the weights")
}

// call makes the arguments of a call: no two calls have the same, the numbers are
// too long for a float64, and the order of members and the escapes are unusual.
func (d dice) call(p plan, turn, i int, tool string) toolCall {
	c := toolCall{server: pick(d, "local", "local", "shared"), tool: tool}
	more := ""
	switch tool {
	case "charge", "refund", "read", "set":
		if d.chance(50) {
			more = fmt.Sprintf(`"ms":%d,`, d.IntN(80)) // time to be killed in
		}
	case "slow":
		more = fmt.Sprintf(`"ms":%d,`, 200+d.IntN(2800))
	case "flaky":
		more = pick(d, `"fail":"tool",`, `"fail":"protocol",`)
	case "broken": // the schema wants a text
		c.tool = "charge"
		c.args = json.RawMessage(fmt.Sprintf(`{"ref":%d}`, p.n))
		return c
	}
	c.args = json.RawMessage(fmt.Sprintf(`{"z":[1.0,1e2],%s"ref":"%d/%d/%d <&> \u00e9é","amount":9007199254%09d}`, more, p.n, turn, i, d.IntN(1e9)))
	return c
}
