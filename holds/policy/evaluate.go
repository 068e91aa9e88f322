package policy

import (
	"slices"
	"time"
)

// DefaultExpires is how long a hold waits when its rules say nothing.
const DefaultExpires = 7 * 24 * time.Hour

// DestructiveHint is the id in a verdict that asks because the server declares
// its tool destructive. No rule may bear it.
const DestructiveHint = "destructive_hint"

// Evaluate decides about call: deny wins over ask, ask over allow, and a call
// that no rule matches is allowed. The order of rules does not change the
// effect; it decides which reason is shown. A destructive tool is asked about
// unless an allow rule names it, without wildcards.
func Evaluate(rules []Rule, call Call) Verdict {
	var deny, ask, allow []Rule
	for _, r := range rules {
		switch {
		case !r.matches(call):
		case r.Effect == Ask:
			ask = append(ask, r)
		case r.Effect == Allow:
			allow = append(allow, r)
		default:
			// An effect this version does not know closes the gate.
			deny = append(deny, r)
		}
	}
	switch {
	case len(deny) > 0:
		return verdict(Deny, deny)
	case len(ask) > 0:
		return askVerdict(ask)
	case call.Destructive && !slices.ContainsFunc(allow, func(r Rule) bool { return !IsGlob(r.Tool) }):
		return askVerdict([]Rule{{ID: DestructiveHint, Effect: Ask, Reason: "The server declares this tool destructive."}})
	case len(allow) > 0:
		return verdict(Allow, allow)
	}
	return Verdict{Effect: Allow}
}

// matches reads the pattern widely for rules that close and narrowly for rules
// that open; see Match.
func (r Rule) matches(c Call) bool {
	if r.Effect == Allow {
		return MatchServerTool(r.Tool, c.Server, c.Tool)
	}
	return Match(r.Tool, c.Server, c.Tool)
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
	}
	return v
}
