// Package policy decides, from values alone, what may happen to one tool call:
// allow, ask or deny. It touches no network, store or clock.
package policy

import (
	"encoding/json"
	"time"
)

// Effect is what a rule does to a call it matches.
type Effect string

// The effects, from weakest to strongest: deny wins over ask, ask over allow.
const (
	Allow Effect = "allow"
	Ask   Effect = "ask"
	Deny  Effect = "deny"
	// Conditional is the effect of a Static verdict that depends on the call.
	Conditional Effect = "conditional"
)

// OnExpire says what happens to a call whose hold was not decided in time.
type OnExpire string

// The choices; expiry never approves.
const (
	RejectOnExpire OnExpire = "reject"
	FailOnExpire   OnExpire = "fail"
)

// Rule is one line of policy. Rules match the server alias and the raw tool
// name, never what the model sees, so that renaming opens no gate.
type Rule struct {
	// ID names the rule in verdicts; unique among the rules that apply to one
	// capability.
	ID     string
	Effect Effect
	// Tool is a raw tool name or glob, or "server/tool" with globs in both parts;
	// see Match.
	Tool string
	// When narrows the rule to the calls for which it is true; nil means every
	// call of the tool.
	When *Condition
	// Expires is how long a hold of this rule waits; 7 days by default.
	Expires time.Duration
	// OnExpire is RejectOnExpire by default.
	OnExpire OnExpire
	// Reason is shown to the reviewer, and to the model when the rule denies.
	Reason string
	// Reviewers are who may decide when the rule asks. Its sets, at most one, are
	// given the id of the rule in a verdict.
	Reviewers Reviewers
}

// Verdict is the outcome for one call.
type Verdict struct {
	Effect Effect `json:"effect"`
	// Rules are the ids of the rules that led to the effect; empty when the
	// default (allow) applied.
	Rules []string `json:"rules,omitempty"`
	// Reason is the reason of the first deciding rule that has one, and which
	// conditions could not be decided.
	Reason string `json:"reason,omitempty"`
	// Reviewers are, when the effect is Ask, what satisfies every deciding rule.
	Reviewers Reviewers `json:"reviewers,omitzero"`

	// Expires and OnExpire are set when the effect is Ask: the shortest wait of
	// the deciding rules, and fail when any of them says so.
	Expires  time.Duration `json:"-"`
	OnExpire OnExpire      `json:"-"`
}

// Call is what a verdict is about.
type Call struct {
	// Server is the alias in the manifest, Tool the raw name at the server.
	Server string
	Tool   string
	// Destructive says that the server declares destructiveHint: true; such a
	// call is asked about unless a rule that names the tool allows it.
	Destructive bool

	// Args are the arguments, exactly as they would be sent; Input is the input
	// of the run. They and what follows are for conditions.
	Args      json.RawMessage
	Input     json.RawMessage
	Requester Requester
	Run       Run
}
