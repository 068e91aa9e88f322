package policy

import (
	"reflect"
	"slices"
	"time"
)

// AnyRole is the role of the person of a server without keys. It stands for every
// role and every user, and still is one person: two are not made of it.
const AnyRole = "*"

// Person is who wants to decide, from the credential. Roles are the person's roles
// and groups.
type Person struct {
	Name  string
	Roles []string
}

// Reviewers say who may decide about a call, and how many must agree. The zero
// value means one person, whoever may decide at all.
type Reviewers struct {
	// Require is how many different people must approve the same arguments; 0 and 1
	// mean one.
	Require int `json:"require,omitempty"`
	// NotRequester keeps the person who asked for the run from deciding.
	NotRequester bool `json:"not_requester,omitempty"`
	// Sets are people by role and name; a reviewer belongs to every one of them.
	Sets []ReviewerSet `json:"sets,omitempty"`
}

// ReviewerSet are the people whom one rule lets decide: everyone with one of the
// roles and everyone with one of the names.
type ReviewerSet struct {
	// Rule is the rule that asks.
	Rule  string   `json:"rule,omitempty"`
	Roles []string `json:"roles,omitempty"`
	Users []string `json:"users,omitempty"`
	// Escalate widens the set after a while; nil never.
	Escalate *Escalation `json:"escalate,omitempty"`
}

// Escalation are more people of whom one may be asked when a hold has waited for
// some time. It is a matter of the clock alone: nothing happens at that moment.
type Escalation struct {
	Roles []string `json:"roles,omitempty"`
	Users []string `json:"users,omitempty"`
	// AfterMS is the time since the hold was opened, in milliseconds.
	AfterMS int64 `json:"after_ms"`
}

// After is the time since the hold was opened.
func (e *Escalation) After() time.Duration { return time.Duration(e.AfterMS) * time.Millisecond }

// Needed is how many people must approve; at least 1.
func (r Reviewers) Needed() int { return max(r.Require, 1) }

// Lacking returns the first set that who does not belong to when the hold has
// waited that long, or nil.
func (r Reviewers) Lacking(who Person, waited time.Duration) *ReviewerSet {
	for i := range r.Sets {
		if !r.Sets[i].has(who, waited) {
			return &r.Sets[i]
		}
	}
	return nil
}

func (s ReviewerSet) has(who Person, waited time.Duration) bool {
	if named(who, s.Roles, s.Users) {
		return true
	}
	e := s.Escalate
	return e != nil && waited >= e.After() && named(who, e.Roles, e.Users)
}

func named(who Person, roles, users []string) bool {
	if slices.Contains(who.Roles, AnyRole) || slices.Contains(users, who.Name) {
		return true
	}
	return slices.ContainsFunc(who.Roles, func(role string) bool { return slices.Contains(roles, role) })
}

// And returns what satisfies both: every set of either, the larger number, and
// not the requester when one of them says so.
func (r Reviewers) And(other Reviewers) Reviewers {
	out := Reviewers{Require: max(r.Require, other.Require), NotRequester: r.NotRequester || other.NotRequester}
	for _, s := range slices.Concat(r.Sets, other.Sets) {
		if !slices.ContainsFunc(out.Sets, func(t ReviewerSet) bool { return reflect.DeepEqual(s, t) }) {
			out.Sets = append(out.Sets, s)
		}
	}
	return out
}

// Equal reports whether r and other are the same.
func (r Reviewers) Equal(other Reviewers) bool { return reflect.DeepEqual(r, other) }
