package policyfile

import (
	"slices"
	"strings"
	"unicode"

	"agentos/holds/policy"
	"agentos/internal/strictyaml"
)

// maxRequire bounds how many people a rule may ask for.
const maxRequire = 20

// readReviewers reads who may decide. Which roles and users there are is known
// only to the server that the manifest will run on.
func readReviewers(v strictyaml.Value) policy.Reviewers {
	o := v.Object()
	if !o.Valid() {
		return policy.Reviewers{}
	}
	r := policy.Reviewers{
		Require:      int(o.Get("require").Int(1, maxRequire, 0)),
		NotRequester: o.Get("not_requester").Bool(false),
	}
	set := policy.ReviewerSet{Roles: people(o.Get("roles")), Users: people(o.Get("users"))}
	o.Close()
	if len(set.Roles)+len(set.Users) > 0 {
		r.Sets = []policy.ReviewerSet{set}
	}
	if v.Len() == 0 {
		v.Problem("says nothing; leave it out for one person, whoever may decide")
	}
	return r
}

// escalate reads {escalate: {to: {roles, users}, after}} into the rule's reviewers.
func escalate(v strictyaml.Value, rule *policy.Rule) {
	o := v.Object()
	e := o.Get("escalate")
	e.Required()
	eo := e.Object()
	to, after := eo.Get("to"), eo.Get("after")
	who := to.Object()
	more := &policy.Escalation{
		Roles: people(who.Get("roles")), Users: people(who.Get("users")),
		AfterMS: after.Duration(maxExpires, 0).Milliseconds(),
	}
	if eo.Valid() {
		to.Required()
		after.Required()
	}
	who.Close()
	eo.Close()
	o.Close()
	expires := rule.Expires
	if expires == 0 {
		expires = policy.DefaultExpires
	}
	switch {
	case len(rule.Reviewers.Sets) == 0:
		v.Problem("needs reviewers with roles or users; without them everyone is asked from the beginning")
	case who.Valid() && len(more.Roles)+len(more.Users) == 0:
		to.Problem("names nobody; give roles or users")
	case more.After() >= expires:
		after.Problem("must be less than expires (%s), or nobody else is ever asked", expires)
	default:
		rule.Reviewers.Sets[0].Escalate = more
	}
}

// checkRequire reports a number of people that can never come together.
func checkRequire(v strictyaml.Value, r policy.Reviewers) {
	if len(r.Sets) == 0 {
		return
	}
	s := r.Sets[0]
	roles, users := s.Roles, slices.Clone(s.Users)
	if e := s.Escalate; e != nil {
		roles, users = slices.Concat(roles, e.Roles), append(users, e.Users...)
	}
	slices.Sort(users)
	if users = slices.Compact(users); len(roles) == 0 && r.Require > len(users) {
		v.Problem("asks for %d people and names %d users; nobody could ever approve", r.Require, len(users))
	}
}

// people reads a list of roles or users.
func people(v strictyaml.Value) []string {
	var out []string
	if v.IsList() && v.Len() == 0 {
		v.Problem("is empty; leave it out for everyone who may decide")
	}
	for _, item := range v.List(maxPeople) {
		name := item.String()
		switch {
		case !item.IsText():
			continue
		case name == "" || len(name) > 256 || strings.ContainsFunc(name, notInName):
			item.Problem("must be a name of 1 to 256 visible characters without spaces")
		case name == policy.AnyRole:
			item.Problem("stands for nobody in particular; leave roles and users out for everyone who may decide")
		case slices.Contains(out, name):
			item.Problem("is listed twice")
		}
		out = append(out, name)
	}
	return out
}

func notInName(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }
