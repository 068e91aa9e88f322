package api

import "encoding/json"

// HoldStatus is where a hold stands.
type HoldStatus string

// The statuses of a hold.
const (
	HoldPending   HoldStatus = "pending"
	HoldDecided   HoldStatus = "decided"
	HoldExpired   HoldStatus = "expired"
	HoldCancelled HoldStatus = "cancelled"
)

// Hold is a question to a person that a run waits on.
type Hold struct {
	HoldID     string     `json:"hold_id"`
	RunID      string     `json:"run_id"`
	Env        string     `json:"env"`
	Agent      string     `json:"agent"`
	Capability string     `json:"capability"`
	Status     HoldStatus `json:"status"`
	// Kind is "tool_call" or "outcome_unknown".
	Kind string `json:"kind"`
	// Intent is one sentence: what happens on approval.
	Intent string `json:"intent"`
	// Requester is who asked for the run.
	Requester string `json:"requester,omitempty"`
	Items     []Item `json:"items"`
	// Actions are what can be done with an item of this hold.
	Actions []string `json:"actions"`
	// Revision grows with every change; a decision may name the one it saw.
	Revision  int64 `json:"revision"`
	CreatedAt Time  `json:"created_at"`
	ExpiresAt Time  `json:"expires_at"`
	// OnExpire is "reject" or "fail".
	OnExpire string `json:"on_expire,omitempty"`
	// Reason is why an operator cancelled the hold; its run goes on.
	Reason string `json:"reason,omitempty"`
	// AlreadyRan are the calls of the run that have finished. Only reading a
	// single hold tells them; elsewhere it is nil and absent.
	AlreadyRan []RanCall `json:"already_ran,omitzero"`
}

// Item is one thing to decide.
type Item struct {
	// ID is our call id, unique in the run.
	ID    string `json:"id"`
	Title string `json:"title"`
	// Data are the arguments exactly as they will be sent when they are approved.
	Data json.RawMessage `json:"data"`
	// Proposed are the arguments the hold was opened with, where Data are those of
	// an edit that waits for more people to approve it.
	Proposed json.RawMessage `json:"proposed,omitempty"`
	// Server is the alias in the manifest, Tool the raw tool name.
	Server string `json:"server"`
	Tool   string `json:"tool"`
	// ToolDigest binds the item to one definition of the tool.
	ToolDigest string `json:"tool_digest,omitempty"`
	// Schema is the input schema of the tool, which an edit must satisfy.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Rules and Reason say why a person is asked.
	Rules  []string `json:"rules,omitempty"`
	Reason string   `json:"reason,omitempty"`
	// Changed is set when the tool's definition is not the one an earlier
	// approval was given for.
	Changed *Change `json:"changed,omitempty"`
	// Reviewers are who may decide; nil means one person, whoever may decide at all.
	Reviewers *Reviewers `json:"reviewers,omitempty"`
	// Votes are what people said, oldest first, of an item that more than one must
	// approve; Approvals is how many approve it as it stands.
	Votes     []Vote `json:"votes,omitempty"`
	Approvals int    `json:"approvals,omitempty"`
	// Decision is nil while the item is not decided.
	Decision *Decision `json:"decision,omitempty"`
}

// Change shows a tool definition that was approved and is no longer offered.
type Change struct {
	OldDigest   string          `json:"old_digest"`
	OldSchema   json.RawMessage `json:"old_schema,omitempty"`
	OldDecision *Decision       `json:"old_decision,omitempty"`
}

// Decision is what one person decided about one item.
type Decision struct {
	Action string          `json:"action"`
	Data   json.RawMessage `json:"data,omitempty"`
	Reason string          `json:"reason,omitempty"`
	By     string          `json:"by"`
	At     Time            `json:"at"`
}

// Reviewers say who may decide an item.
type Reviewers struct {
	// Require is how many different people must approve the same arguments.
	Require int `json:"require"`
	// NotRequester keeps the person who asked for the run from deciding.
	NotRequester bool `json:"not_requester,omitempty"`
	// Sets are people by role and name; a reviewer belongs to every one of them.
	Sets []ReviewerSet `json:"sets,omitempty"`
}

// ReviewerSet are the people one rule lets decide: everyone with one of the roles
// and everyone with one of the names.
type ReviewerSet struct {
	Rule  string   `json:"rule"`
	Roles []string `json:"roles,omitempty"`
	Users []string `json:"users,omitempty"`
	// Escalate are more people from a time on; nil none.
	Escalate *Escalation `json:"escalate,omitempty"`
}

// Escalation are people who may decide too from a time on.
type Escalation struct {
	At    Time     `json:"at"`
	Roles []string `json:"roles,omitempty"`
	Users []string `json:"users,omitempty"`
}

// Vote is what one person said of an item that more than one must approve.
type Vote struct {
	Decision
	// Void says that the vote was for other arguments: they were edited since.
	Void bool `json:"void,omitempty"`
}

// RanCall is a call that finished before the hold was looked at.
type RanCall struct {
	ID      string `json:"id"`
	Server  string `json:"server"`
	Tool    string `json:"tool"`
	Outcome string `json:"outcome"`
	// Arguments are those the tool was called with.
	Arguments json.RawMessage `json:"arguments"`
}

// HoldList is one page of holds, newest first.
type HoldList struct {
	Holds []Hold `json:"holds"`
	// NextCursor is absent on the last page.
	NextCursor string `json:"next_cursor,omitempty"`
}

// Decide is the body that decides items of a hold, all or nothing.
type Decide struct {
	Decisions []ItemDecision `json:"decisions"`
	// Revision is the revision the decider looked at; 0 leaves it open.
	Revision int64 `json:"revision,omitempty"`
}

// ItemDecision is the decision for one item.
type ItemDecision struct {
	ID     string          `json:"id"`
	Action string          `json:"action"`
	Data   json.RawMessage `json:"data,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

// Decided is the answer to a decision: the hold afterwards and its run.
type Decided struct {
	Hold Hold `json:"hold"`
	Run  Run  `json:"run"`
}
