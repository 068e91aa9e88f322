package capabilities

import (
	"agentos/holds/policy"
	"agentos/holds/policyfile"
	"agentos/internal/strictyaml"
)

// policy reads policy.rules. A rule without an id is called "<effect>:<tool>".
func (r *reader) policy(v strictyaml.Value) {
	r.a.Rules = r.rules.Policy(v, maxNames, func(_ int, rule policy.Rule) string {
		return string(rule.Effect) + ":" + rule.Tool
	})
}

// listed reads approve or deny: names, globs, server/tool, or rules whose effect
// is given by the list.
func (r *reader) listed(v strictyaml.Value, effect policy.Effect, prefix string) []policy.Rule {
	var out []policy.Rule
	seen := map[string]bool{}
	for _, item := range v.List(maxNames) {
		var rule policy.Rule
		if item.IsMapping() {
			rule = r.rules.Rule(item, effect)
		} else {
			rule = policyfile.Short(item, effect)
		}
		if rule.ID == "" {
			rule.ID = prefix + ":" + rule.Tool
			if rule.Tool != "" && seen[rule.ID] {
				item.Problem("%q is listed twice; rules about the same tool need an id each", clip(rule.Tool))
			}
			seen[rule.ID] = true
		}
		out = append(out, rule)
	}
	return out
}
