// Package audit owns the record of what people decided and changed, and of what ran
// because of it: one chain of entries for each environment, in which every entry
// names the digest of the one before. Whoever has the chain, or a copy of it, can
// tell offline that nothing was changed, taken out or put in between, and that
// every call which needed a person ran with the arguments that were approved.
//
// Entries about runs are worked out from their journals, after the fact and by
// anybody (FromRun); entries about other acts are appended before the act. Arguments
// are named by their digests: the chain is kept for ever, what was in a run is not.
package audit

import (
	"encoding/json"
	"time"
)

// Event names what an entry is about. The names are part of the export.
type Event string

// The events.
const (
	// HoldDecided is a decision that was accepted, whether or not more people are
	// needed; HoldExpired and HoldCancelled are holds that nobody decided.
	HoldDecided   Event = "hold.decided"
	HoldExpired   Event = "hold.expired"
	HoldCancelled Event = "hold.cancelled"
	// CallRan is a call that a person had let run.
	CallRan      Event = "call.ran"
	RunCancelled Event = "run.cancelled"

	AgentPaused  Event = "agent.paused"
	AgentResumed Event = "agent.resumed"
	ToolOff      Event = "tool.off"
	ToolOn       Event = "tool.on"
	// PolicyLoaded is a server that began to judge calls by other rules than the
	// last one which told.
	PolicyLoaded Event = "policy.loaded"
	// Repaired is a repair of indexes that was asked for.
	Repaired   Event = "store.repaired"
	KeyCreated Event = "key.created"
	KeyRevoked Event = "key.revoked"
)

// Entry is one line of the chain.
type Entry struct {
	// N counts from 1. Prev is the digest of the line before, "" in the first.
	// Both are set when the entry is appended.
	N    int64  `json:"n"`
	Prev string `json:"prev"`
	// At is when it happened, by the clock of the store or the server.
	At    time.Time `json:"at"`
	Env   string    `json:"env"`
	Event Event     `json:"event"`
	// By is who did it, from the credential; From the address it came from.
	By   string `json:"by,omitempty"`
	From string `json:"from,omitempty"`

	Agent string `json:"agent,omitempty"`
	Run   string `json:"run,omitempty"`
	Hold  string `json:"hold,omitempty"`
	// Tool is the name or glob of an order about tools.
	Tool string `json:"tool,omitempty"`
	// Items are what was decided, of hold.decided.
	Items []Item `json:"items,omitempty"`
	// Call is what ran, of call.ran.
	Call *Call `json:"call,omitempty"`
	// Reason is what the person said, for events without items.
	Reason string `json:"reason,omitempty"`
	// Detail is what else there is to say of the event.
	Detail json.RawMessage `json:"detail,omitempty"`
}

// Item is a decision about one call.
type Item struct {
	// Call is our id of the call in its run.
	Call       string `json:"call"`
	Server     string `json:"server"`
	Tool       string `json:"tool"`
	ToolDigest string `json:"tool_digest,omitempty"`
	// Seen is the digest of the arguments as they were shown.
	Seen   string `json:"seen"`
	Action string `json:"action"`
	// Decided is, of an approval, the digest of the arguments that may run; of
	// "ran" that of the result the person gave.
	Decided string `json:"decided,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Open says that more people are needed.
	Open bool `json:"open,omitempty"`
}

// Call is a call as it ran.
type Call struct {
	ID         string `json:"id"`
	Server     string `json:"server"`
	Tool       string `json:"tool"`
	ToolDigest string `json:"tool_digest"`
	// Arguments is the digest of the arguments that were sent.
	Arguments string `json:"arguments"`
	// Outcome is how it ended; "unknown" when nobody saw that.
	Outcome string `json:"outcome"`
}

// Keyed is an entry to be appended, with the key it has once.
type Keyed struct {
	Key string
	// Seq is the journal entry it comes from, 0 for none.
	Seq   int64
	Entry Entry
}
