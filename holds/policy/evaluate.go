package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// DefaultExpires is how long a hold waits when its rules say nothing.
const DefaultExpires = 7 * 24 * time.Hour

// DestructiveHint is the id in a verdict that asks because the server declares
// its tool destructive. No rule may bear it.
const DestructiveHint = "destructive_hint"

// OperatorOrder is the id in a verdict that denies because an operator has switched
// the tool off. No rule may bear it.
const OperatorOrder = "operator"

// Evaluate decides about call: deny wins over ask, ask over allow, and a call
// that no rule matches is allowed. The order of rules does not change the
// effect; it decides which reason is shown. A destructive tool is asked about
// unless an allow rule names it, without wildcards.
//
// A condition that cannot be decided never opens anything and is never passed
// over: whatever its rule would do, a person is asked.
func Evaluate(rules []Rule, call Call) Verdict {
	known := &facts{call: &call}
	var deny, ask, allow []Rule
	var doubts []string
	for _, r := range rules {
		if !r.matches(call) {
			continue
		}
		if r.When != nil {
			yes, err := r.When.holds(known)
			if err != nil {
				r.Effect = Ask
				doubts = append(doubts, fmt.Sprintf("The condition of rule %s could not be decided: %s.", r.ID, err))
			} else if !yes {
				continue
			}
		}
		switch r.Effect {
		case Ask:
			ask = append(ask, r)
		case Allow:
			allow = append(allow, r)
		case Deny, Conditional:
			fallthrough
		default:
			// An effect this version does not know closes the gate.
			deny = append(deny, r)
		}
	}
	switch {
	case len(deny) > 0:
		return verdict(Deny, deny)
	case len(ask) > 0:
		v := askVerdict(ask)
		v.Reason = withDoubts(v.Reason, doubts)
		return v
	case hintAsks(call, allow):
		return askVerdict([]Rule{hintRule()})
	case len(allow) > 0:
		return verdict(Allow, allow)
	}
	return Verdict{Effect: Allow}
}

// Static tells what is known of the calls of a tool before there is one: the
// effect that conditions cannot change, or Conditional with every rule that may
// have a say.
func Static(rules []Rule, call Call) Verdict {
	var plain, conditional []Rule
	for _, r := range rules {
		switch {
		case !r.matches(call):
		case r.When == nil:
			plain = append(plain, r)
		default:
			conditional = append(conditional, r)
		}
	}
	v := Evaluate(plain, call)
	// A condition may turn out undecided, so even a rule that allows may ask; it
	// changes nothing for a tool that is asked about anyway, except by the hint,
	// which it may lift.
	changes := slices.ContainsFunc(conditional, func(r Rule) bool {
		return v.Effect == Allow || v.Effect == Ask && (r.Effect == Deny || slices.Contains(v.Rules, DestructiveHint))
	})
	if !changes {
		return v
	}
	return verdict(Conditional, append(plain, conditional...))
}

// hintAsks reports whether a destructive tool is asked about for that alone.
func hintAsks(call Call, allow []Rule) bool {
	return call.Destructive && !slices.ContainsFunc(allow, func(r Rule) bool { return !IsGlob(r.Tool) })
}

func hintRule() Rule {
	return Rule{ID: DestructiveHint, Effect: Ask, Reason: "The server declares this tool destructive."}
}

func withDoubts(reason string, doubts []string) string {
	if len(doubts) > maxFaults {
		doubts = append(doubts[:maxFaults:maxFaults], fmt.Sprintf("%d more could not.", len(doubts)-maxFaults))
	}
	return strings.TrimSpace(reason + " " + strings.Join(doubts, " "))
}

// matches reads the pattern widely for rules that close and narrowly for rules
// that open; see Match.
func (r Rule) matches(c Call) bool {
	if r.Effect == Allow {
		return MatchServerTool(r.Tool, c.Server, c.Tool)
	}
	return Match(r.Tool, c.Server, c.Tool)
}

// reviewers are the rule's, under its id.
func (r Rule) reviewers() Reviewers {
	out := r.Reviewers
	out.Sets = slices.Clone(out.Sets)
	for i := range out.Sets {
		out.Sets[i].Rule = r.ID
	}
	return out
}

func verdict(e Effect, rules []Rule) Verdict {
	v := Verdict{Effect: e}
	for _, r := range rules {
		v.Rules = append(v.Rules, r.ID)
		if v.Reason == "" {
			v.Reason = r.Reason
		}
	}
	return v
}

func askVerdict(rules []Rule) Verdict {
	v := verdict(Ask, rules)
	v.OnExpire = RejectOnExpire
	for _, r := range rules {
		wait := r.Expires
		if wait <= 0 {
			wait = DefaultExpires
		}
		if v.Expires == 0 || wait < v.Expires {
			v.Expires = wait
		}
		if r.OnExpire == FailOnExpire {
			v.OnExpire = FailOnExpire
		}
		v.Reviewers = v.Reviewers.And(r.reviewers())
	}
	return v
}
