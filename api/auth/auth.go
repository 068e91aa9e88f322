// Package auth owns identity: the API keys of an environment, who stands behind a
// credential, and which roles there are. It refuses to know HTTP, runs and holds.
//
// A key is kept as the SHA-256 of its text, in a document of the store. Its text is
// 256 random bits, so that a fast hash is enough: there is nothing to guess. Each
// server follows the document, and so a revoked key ends everywhere within about a
// second.
//
// Without any key everybody is Local. The first key ends that, for good.
package auth

import (
	"context"
	"slices"

	"agentos/holds/policy"
)

// Role says what a principal may do.
type Role string

// The roles. Each of the others includes Viewer, and Admin includes all.
const (
	// Viewer reads runs, holds, agents and metrics.
	Viewer Role = "viewer"
	// Runner starts and cancels runs.
	Runner Role = "runner"
	// Reviewer decides holds, as far as the rules that ask let it.
	Reviewer Role = "reviewer"
	// Admin makes and revokes keys, pauses agents, switches tools off.
	Admin Role = "admin"
)

// Roles are all roles, from the least.
func Roles() []Role { return []Role{Viewer, Runner, Reviewer, Admin} }

// Principal is who makes a request. The zero value is nobody, who may do nothing.
type Principal struct {
	// Name is who it is: the requester of runs, the decider of holds.
	Name  string
	Roles []Role
	// Groups are the operator's own words for people.
	Groups []string
	// KeyID is the key the principal came with, "" for Local.
	KeyID string
}

// Local is everybody on a server without keys: one person, of every group.
func Local() Principal {
	return Principal{Name: localName, Roles: []Role{Admin}, Groups: []string{policy.AnyRole}}
}

// localName is reserved: what was asked for and decided without keys stays apart
// from what people do with keys.
const localName = "local"

// Can reports whether p has the role, itself or in another one.
func (p Principal) Can(role Role) bool {
	return slices.Contains(p.Roles, role) || slices.Contains(p.Roles, Admin) || role == Viewer && len(p.Roles) > 0
}

// Effective returns every role that p has, those that others include too.
func (p Principal) Effective() []Role {
	return slices.DeleteFunc(Roles(), func(r Role) bool { return !p.Can(r) })
}

// Words are the roles and groups of p, as policy compares them. No group has the
// name of a role.
func (p Principal) Words() []string {
	var out []string
	for _, r := range p.Effective() {
		out = append(out, string(r))
	}
	return append(out, p.Groups...)
}

// principalKey is where a context has its principal.
type principalKey struct{}

// With returns a context of a request that p makes.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// From returns who makes the request of ctx: nobody unless With said so.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal) //nolint:errcheck // nobody is the right answer then
	return p
}
