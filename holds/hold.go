// Package holds owns the question a run waits on: the hold, its items, and what
// a decision does to them. It is pure: who decides and what time it is come in
// as arguments, and the new hold goes out as a value. A hold at one revision
// never changes, so a store needs only to compare revisions to make a decision
// atomic.
package holds

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"agentos/holds/policy"
)

// Status is where a hold stands.
type Status string

// The statuses. Only a pending hold can be decided.
const (
	Pending   Status = "pending"
	Decided   Status = "decided"
	Expired   Status = "expired"
	Cancelled Status = "cancelled"
)

// Kind is what a hold asks about.
type Kind string

// The kinds of hold.
const (
	// ToolCall asks whether calls may run.
	ToolCall Kind = "tool_call"
	// OutcomeUnknown asks what became of a call that was started and whose end
	// nobody saw.
	OutcomeUnknown Kind = "outcome_unknown"
)

// Action is what a person can do with an item.
type Action string

// The actions. Approve, Edit and Reject belong to ToolCall; Ran, Retry and Skip
// to OutcomeUnknown.
const (
	Approve Action = "approve"
	Edit    Action = "edit"
	Reject  Action = "reject"
	// Ran says that the call had its effect; data is its result.
	Ran Action = "ran"
	// Retry runs the call again with the same idempotency key.
	Retry Action = "retry"
	// Skip goes on without knowing.
	Skip Action = "skip"
)

// Actions returns the actions a hold of the kind offers.
func Actions(k Kind) []Action {
	switch k {
	case ToolCall:
		return []Action{Approve, Edit, Reject}
	case OutcomeUnknown:
		return []Action{Ran, Retry, Skip}
	}
	return nil
}

// Hold is a question to a person.
type Hold struct { //nolint:recvcheck // Closed returns a changed copy
	ID         string `json:"hold_id"`
	RunID      string `json:"run_id"`
	Env        string `json:"env"`
	Agent      string `json:"agent"`
	Capability string `json:"capability"`
	Kind       Kind   `json:"kind"`
	Status     Status `json:"status"`
	// Intent is one sentence: what will happen on approval.
	Intent string `json:"intent"`
	// Requester is who asked for the run.
	Requester string   `json:"requester,omitempty"`
	Items     []Item   `json:"items"`
	Actions   []Action `json:"actions"`
	// Revision is the number of journal entries the run had when the hold last
	// changed. It is unique within a run, so a revision of an earlier hold never
	// fits a later one.
	Revision  int64     `json:"revision"`
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is when the hold stops being decidable, on the store's clock.
	ExpiresAt time.Time       `json:"expires_at"`
	OnExpire  policy.OnExpire `json:"on_expire,omitempty"`
	// Reason is why an operator cancelled the hold.
	Reason string `json:"reason,omitempty"`
	// Requests are the accepted decision requests that carried an idempotency
	// key, so that a repeat is recognised.
	Requests []Request `json:"requests,omitempty"`
}

// Item is one thing to decide. For a tool call the id is our call id.
type Item struct {
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
	// Reviewers are who may decide the item, and how many of them must approve.
	Reviewers policy.Reviewers `json:"reviewers,omitzero"`
	// Votes are what people said, oldest first, of an item that more than one must
	// approve.
	Votes []Vote `json:"votes,omitempty"`
	// Decision is nil while nobody has decided the item.
	Decision *Decision `json:"decision,omitempty"`
}

// Change shows a definition that was approved and the one offered now.
type Change struct {
	OldDigest string          `json:"old_digest"`
	OldSchema json.RawMessage `json:"old_schema,omitempty"`
	// OldDecision is the decision that no longer applies.
	OldDecision *Decision `json:"old_decision,omitempty"`
}

// Decision is what one person decided about one item.
type Decision struct {
	Action Action `json:"action"`
	// Data are the arguments of an edit, or the result given with ran.
	Data   json.RawMessage `json:"data,omitempty"`
	Reason string          `json:"reason,omitempty"`
	// By is the identity from the credential, never from the request.
	By string    `json:"by"`
	At time.Time `json:"at"`
	// From is the address the decision came from, for the record only.
	From string `json:"from,omitempty"`
}

// Vote is what one person said of an item that more than one must approve.
type Vote struct {
	Decision
	// Void says that the vote was for other arguments: they were edited since.
	Void bool `json:"void,omitempty"`
}

// Request is the memory of an accepted decision request.
type Request struct {
	// Key is the Idempotency-Key header.
	Key string `json:"key"`
	// Digest is of the decisions and the decider.
	Digest string `json:"digest"`
}

// Pending returns the items nobody has decided yet.
func (h *Hold) Pending() []Item {
	var out []Item
	for _, it := range h.Items {
		if it.Decision == nil {
			out = append(out, it)
		}
	}
	return out
}

// Item returns the item called id, or nil.
func (h *Hold) Item(id string) *Item {
	for i := range h.Items {
		if h.Items[i].ID == id {
			return &h.Items[i]
		}
	}
	return nil
}

// Approvals is how many different people approve the item as it stands.
func (it *Item) Approvals() int {
	people := map[string]bool{}
	for _, v := range it.Votes {
		if !v.Void && v.approves() {
			people[v.By] = true
		}
	}
	return len(people)
}

func (d *Decision) approves() bool { return d.Action == Approve || d.Action == Edit }

// Record adds what a person decided about it, which must be entitled and sound
// (see Apply). It decides the item when one person is enough, when it is no
// approval, or when it is the last approval that was needed. Whoever reads a
// journal works out the same from its entries.
func (it *Item) Record(d Decision) {
	if it.Reviewers.Needed() == 1 {
		it.Decision = &d
		return
	}
	it.Votes = slices.Clone(it.Votes)
	if d.Action == Edit && !bytes.Equal(d.Data, it.Data) {
		for i := range it.Votes {
			it.Votes[i].Void = true
		}
		if it.Proposed == nil {
			it.Proposed = it.Data
		}
		it.Data = d.Data
	}
	it.Votes = append(it.Votes, Vote{Decision: d})
	if !d.approves() || it.Approvals() >= it.Reviewers.Needed() {
		it.Decision = &d
	}
}

// Tighten replaces the reviewers by stricter ones. What was said so far counts no
// more: it was said under other rules.
func (it *Item) Tighten(r policy.Reviewers) {
	it.Reviewers = r
	it.Votes = slices.Clone(it.Votes)
	for i := range it.Votes {
		it.Votes[i].Void = true
	}
}

// said returns what the person called by has said of the item as it stands, or nil.
func (it *Item) said(by string) *Decision {
	for i := range it.Votes {
		if v := &it.Votes[i]; !v.Void && v.By == by {
			return &v.Decision
		}
	}
	if it.Decision != nil && it.Decision.By == by {
		return it.Decision
	}
	return nil
}

// Closed returns a copy of h that was ended without a decision.
func (h Hold) Closed(status Status, revision int64) Hold {
	h.Status, h.Revision = status, revision
	return h
}
