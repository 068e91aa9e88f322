// Package policyfile reads policy rules as people write them: one syntax for the
// manifest of an agent and for the operator's platform file. Every fault is
// reported at its place in the file. It is pure.
package policyfile

import (
	"regexp"
	"strings"
	"time"

	"agentos/holds/policy"
	"agentos/internal/strictyaml"
)

// Limits of a rule: far above what people write, far below what hurts.
const (
	maxExpires = 365 * 24 * time.Hour
	maxPeople  = 100
	maxPattern = 256
)

// ruleID is what a rule may be called. It has no colon: names with one are made
// from other things than an author's choice.
var ruleID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Reader reads the rules of one file, whose ids are unique.
type Reader struct {
	text func(strictyaml.Value) string
	ids  map[string]bool
}

// NewReader returns a reader for one file. text reads what is shown to people, such
// as a reason.
func NewReader(text func(strictyaml.Value) string) *Reader {
	return &Reader{text: text, ids: map[string]bool{}}
}

// Policy reads a section {rules: [...]} of at most limit rules. name says what the
// i-th rule is called, counted from 0, when its author gives it no id.
func (r *Reader) Policy(v strictyaml.Value, limit int, name func(i int, rule policy.Rule) string) []policy.Rule {
	var out []policy.Rule
	o := v.Object()
	for i, item := range o.Get("rules").List(limit) {
		rule := r.Rule(item, "")
		if rule.ID == "" && rule.Tool != "" && rule.Effect != "" {
			if rule.ID = name(i, rule); r.ids[rule.ID] {
				item.Problem("a second rule called %q; give it an id", clip(rule.ID))
			}
			r.ids[rule.ID] = true
		}
		out = append(out, rule)
	}
	o.Close()
	return out
}

// Rule reads one rule. effect is what the list it stands in gives it, or "" where
// the author writes it. The id is "" when the author gives none.
func (r *Reader) Rule(v strictyaml.Value, effect policy.Effect) policy.Rule {
	o := v.Object()
	id, tool := o.Get("id"), o.Get("tool")
	expires, onExpire := o.Get("expires"), o.Get("on_expire")
	if effect == "" {
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
		ID: r.id(id), Effect: effect, Tool: Tool(tool),
		When:     condition(o.Get("when")),
		Expires:  expires.Duration(maxExpires, 0),
		OnExpire: readOnExpire(onExpire),
		Reason:   r.text(o.Get("reason")),
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

func (r *Reader) id(v strictyaml.Value) string {
	id := v.Matching(ruleID, "a name of letters, digits, _, . and -")
	switch {
	case id == "":
		return ""
	case id == policy.DestructiveHint, id == policy.OperatorOrder: // no rules of a file
		v.Problem("%q is reserved", id)
	case r.ids[id]:
		v.Problem("the id %q is used twice", id)
	}
	r.ids[id] = true
	return id
}

// Short returns the rule that a bare tool name or pattern stands for in a list
// that gives the effect. It has no id.
func Short(v strictyaml.Value, effect policy.Effect) policy.Rule {
	return complete(policy.Rule{Effect: effect, Tool: Tool(v)})
}

// Tool reads a raw tool name or glob. Which names exist is known only when the
// servers are connected.
func Tool(v strictyaml.Value) string {
	s := v.String()
	if !v.IsText() {
		return ""
	}
	if s == "" || len(s) > maxPattern || strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' }) {
		v.Problem("must be a tool name or glob of 1 to %d characters without spaces around it", maxPattern)
	}
	return s
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

func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
