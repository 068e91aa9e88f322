package capabilities

import (
	"time"

	"agentos/holds/policy"
	"agentos/internal/strictyaml"
)

// policy reads policy.rules.
func (r *reader) policy(v strictyaml.Value) {
	o := v.Object()
	for _, item := range o.Get("rules").List(maxNames) {
		r.a.Rules = append(r.a.Rules, r.rule(item, ""))
	}
	o.Close()
}

// rules reads approve or deny: names, globs, server/tool, or rules whose effect
// is given by the list.
func (r *reader) rules(v strictyaml.Value, effect policy.Effect, prefix string) []policy.Rule {
	var out []policy.Rule
	listed := map[string]bool{}
	for _, item := range v.List(maxNames) {
		var rule policy.Rule
		if item.IsMapping() {
			rule = r.rule(item, effect)
		} else {
			rule = complete(policy.Rule{Effect: effect, Tool: toolPattern(item)})
		}
		if rule.ID == "" {
			rule.ID = prefix + ":" + rule.Tool
			if rule.Tool != "" && listed[rule.ID] {
				item.Problem("%q is listed twice; rules about the same tool need an id each", clip(rule.Tool))
			}
			listed[rule.ID] = true
		}
		out = append(out, rule)
	}
	return out
}

// rule reads the long form. effect is empty in policy.rules, where the author
// writes it; there a missing id becomes "<effect>:<tool>".
func (r *reader) rule(v strictyaml.Value, effect policy.Effect) policy.Rule {
	o := v.Object()
	id, tool := o.Get("id"), o.Get("tool")
	expires, onExpire := o.Get("expires"), o.Get("on_expire")
	own := effect == ""
	if own {
		e := o.Get("effect")
		if o.Valid() {
			e.Required()
		}
		effect = policy.Effect(e.OneOf(string(policy.Allow), string(policy.Ask), string(policy.Deny)))
	}
	if o.Valid() {
		tool.Required()
	}
	rule := policy.Rule{
		ID: r.ruleID(id), Effect: effect, Tool: toolPattern(tool),
		When:     condition(o.Get("when")),
		Expires:  expires.Duration(maxExpires, 0),
		OnExpire: readOnExpire(onExpire),
		Reason:   r.text(o.Get("reason"), none),
	}
	reviewers := o.Get("reviewers")
	rule.Reviewers = readReviewers(reviewers)
	if onExpire.IsMapping() {
		escalate(onExpire, &rule)
	}
	checkRequire(reviewers, rule.Reviewers)
	o.Close()
	if effect == policy.Allow || effect == policy.Deny {
		for _, field := range []strictyaml.Value{expires, onExpire, reviewers} {
			if field.Present() {
				field.Problem("'%s' does not apply to effect %s (it applies to ask)", field.Key(), effect)
			}
		}
	}
	if own && rule.ID == "" && rule.Tool != "" && effect != "" {
		rule.ID = string(effect) + ":" + rule.Tool
		if r.ruleIDs[rule.ID] {
			v.Problem("a second rule %q; rules about the same tool need an id each", clip(rule.ID))
		}
		r.ruleIDs[rule.ID] = true
	}
	return complete(rule)
}

// condition reads a CEL expression. It is no template: what it compares with is
// in the call, not in the file.
func condition(v strictyaml.Value) *policy.Condition {
	text := v.String()
	if !v.IsText() {
		return nil
	}
	c, err := policy.CompileCondition(text)
	if err != nil {
		v.Problem("%s", err)
	}
	return c
}

func (r *reader) ruleID(v strictyaml.Value) string {
	id := v.Matching(plainName, "a name of letters, digits, _, . and -")
	switch {
	case id == "":
	case id == policy.DestructiveHint:
		v.Problem("%q is reserved", id)
	case r.ruleIDs[id]:
		v.Problem("the id %q is used twice", id)
	}
	r.ruleIDs[id] = true
	return id
}

// readOnExpire reads reject or fail. The long form, read by escalate, rejects when
// nobody has decided in the end.
func readOnExpire(v strictyaml.Value) policy.OnExpire {
	if v.IsMapping() {
		return policy.RejectOnExpire
	}
	if v.Text() == "escalate" {
		v.Problem("says not to whom; write {escalate: {to: {roles: [...]}, after: 24h}}")
		return ""
	}
	return policy.OnExpire(v.OneOf(string(policy.RejectOnExpire), string(policy.FailOnExpire)))
}

// complete fills in the defaults of a rule that asks.
func complete(rule policy.Rule) policy.Rule {
	if rule.Effect != policy.Ask {
		rule.Expires, rule.OnExpire, rule.Reviewers = time.Duration(0), "", policy.Reviewers{}
		return rule
	}
	if rule.Expires == 0 {
		rule.Expires = policy.DefaultExpires
	}
	if rule.OnExpire == "" {
		rule.OnExpire = policy.RejectOnExpire
	}
	return rule
}
