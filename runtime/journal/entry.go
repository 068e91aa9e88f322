// Package journal owns the record of a run: the types of its entries, folding
// them into the state of the run, and deriving the history a model sees, proven
// valid. It is pure: entries come in, state goes out, and nothing about a run is
// kept that cannot be folded again.
package journal

import (
	"encoding/json"
	"time"

	"agentos/holds"
	"agentos/holds/policy"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// Type names a kind of entry. The names are part of the API.
type Type string

// The types of entries.
const (
	RunCreated    Type = "run.created"
	ModelAnswered Type = "model.answered"
	CallStarted   Type = "call.started"
	CallFinished  Type = "call.finished"
	HoldOpened    Type = "hold.opened"
	HoldDecided   Type = "hold.decided"
	HoldClosed    Type = "hold.closed"
	RunRecovered  Type = "run.recovered"
	RunCompleted  Type = "run.completed"
	RunFailed     Type = "run.failed"
	RunCancelled  Type = "run.cancelled"
)

// Last reports whether an entry of the type ends a run.
func (t Type) Last() bool {
	return t == RunCompleted || t == RunFailed || t == RunCancelled
}

// Entry is one line of a journal. Seq counts from 1 without gaps; At is the
// store's clock.
type Entry struct {
	Seq  int64           `json:"seq"`
	At   time.Time       `json:"at"`
	Type Type            `json:"type"`
	Data json.RawMessage `json:"data"`
}

// New is an entry not yet written: the store gives it its place and time.
type New struct {
	Type Type
	Data json.RawMessage
}

// Created is the data of run.created.
type Created struct {
	Agent       string `json:"agent"`
	AgentDigest string `json:"agent_digest"`
	// PolicyDigest is of the operator's rules then, "" without any.
	PolicyDigest string          `json:"policy_digest,omitempty"`
	Capability   string          `json:"capability"`
	Input        json.RawMessage `json:"input"`
	Requester    string          `json:"requester"`
	// RequesterGroups are the groups the requester was in then.
	RequesterGroups []string        `json:"requester_groups,omitempty"`
	SessionID       string          `json:"session_id,omitempty"`
	Metadata        json.RawMessage `json:"metadata,omitempty"`
	// System is the system message of the run, kept so that a manifest changed
	// meanwhile does not rewrite a conversation that has begun. A long one is kept
	// once for all runs: SystemDigest names it and System is filled in when the
	// run is loaded.
	System       string `json:"system,omitempty"`
	SystemDigest string `json:"system_digest,omitempty"`
	// Prompt is the first user message. Where that is the text of an input member,
	// PromptFrom names the member instead.
	Prompt     string `json:"prompt,omitempty"`
	PromptFrom string `json:"prompt_from,omitempty"`
}

// Text returns the first user message.
func (c Created) Text() string {
	if c.PromptFrom == "" {
		return c.Prompt
	}
	text, _ := rawjson.Text(rawjson.Get(c.Input, c.PromptFrom))
	return text
}

// Answered is the data of model.answered.
type Answered struct {
	// Turn counts model calls over the whole run from 1.
	Turn int `json:"turn"`
	// Message is the assistant message exactly as received.
	Message      json.RawMessage `json:"message"`
	FinishReason string          `json:"finish_reason,omitempty"`
	// Asked is the model of the manifest, Model the one that answered.
	Asked     string `json:"asked"`
	Model     string `json:"model"`
	Mock      bool   `json:"mock,omitempty"`
	Usage     *Usage `json:"usage,omitempty"`
	LatencyMS int64  `json:"latency_ms"`
	Attempts  int    `json:"attempts"`
	// Calls are the calls the message asks for, in its order.
	Calls []Asked `json:"calls,omitempty"`
	// Correction is a user message that follows the answer: what the model has
	// to do better.
	Correction string `json:"correction,omitempty"`
	// Servers are the MCP servers as they were at this turn; left out while they
	// are as the last entry that had them says.
	Servers json.RawMessage `json:"mcp_servers,omitempty"`
	// PolicyDigest is of the operator's rules by which the calls were judged, or
	// NoPolicy; left out while it is as the last entry that had one says.
	PolicyDigest string `json:"policy_digest,omitempty"`
	// ActiveMS is the active time of the run so far.
	ActiveMS int64 `json:"active_ms"`
}

// NoPolicy is the digest where an operator has no rules any more.
const NoPolicy = "none"

// Usage counts tokens.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// Asked is one call a model asked for.
type Asked struct {
	// ID is ours: call_<n>, n counting over the run.
	ID string `json:"id"`
	// ProviderID is the provider's; it may be empty or repeated.
	ProviderID string `json:"provider_id,omitempty"`
	// Name is the tool as the model called it.
	Name string `json:"name"`
	// Server and Tool are the alias and the raw tool name; empty when unknown.
	Server string `json:"server,omitempty"`
	Tool   string `json:"tool,omitempty"`
	// Arguments are the proposed arguments; nil when they are no JSON object.
	Arguments json.RawMessage `json:"arguments,omitempty"`
	// ToolDigest is of the definition the arguments were checked against.
	ToolDigest string `json:"tool_digest,omitempty"`
	// Destructive says that the server declared the tool destructive.
	Destructive bool           `json:"destructive,omitempty"`
	Verdict     policy.Verdict `json:"verdict"`
}

// Started is the data of call.started, written before the tool is called.
type Started struct {
	Call           string          `json:"call"`
	Server         string          `json:"server"`
	Tool           string          `json:"tool"`
	ToolDigest     string          `json:"tool_digest"`
	Arguments      json.RawMessage `json:"arguments"`
	Effect         string          `json:"effect"`
	IdempotencyKey string          `json:"idempotency_key"`
}

// Outcome is how a call ended.
type Outcome string

// The outcomes of a call.
const (
	Success  Outcome = "success"
	Error    Outcome = "error"
	Timeout  Outcome = "timeout"
	Denied   Outcome = "denied"
	Rejected Outcome = "rejected"
	Expired  Outcome = "expired"
	Invalid  Outcome = "invalid"
	Unknown  Outcome = "unknown"
)

// Finished is the data of call.finished.
type Finished struct {
	Call    string  `json:"call"`
	Outcome Outcome `json:"outcome"`
	// Text is exactly what the model sees.
	Text string `json:"text"`
	// Structured is the structured result; left out when it is Text.
	Structured json.RawMessage `json:"structured,omitempty"`
	ErrorCode  string          `json:"error_code,omitempty"`
	MCPError   int             `json:"mcp_error,omitempty"`
	DurationMS int64           `json:"duration_ms,omitempty"`
	Reconnects int             `json:"reconnects,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	// By is the person who supplied the result, for a call whose outcome nobody
	// saw.
	By       string `json:"by,omitempty"`
	ActiveMS int64  `json:"active_ms,omitempty"`
}

// Opened is the data of hold.opened.
type Opened struct {
	Hold     holds.Hold `json:"hold"`
	ActiveMS int64      `json:"active_ms,omitempty"`
}

// DecidedItem is one item of hold.decided: what was proposed and what was
// decided are two facts.
type DecidedItem struct {
	ID       string          `json:"id"`
	Proposed json.RawMessage `json:"proposed"`
	Decision holds.Decision  `json:"decision"`
	// Open says that the decision is one of several that the item needs.
	Open bool `json:"open,omitempty"`
	// Reviewers replace the item's where edited arguments ask for stricter ones.
	Reviewers *policy.Reviewers `json:"reviewers,omitempty"`
}

// HoldDecision is the data of hold.decided: the items one request decided.
type HoldDecision struct {
	HoldID string        `json:"hold_id"`
	Items  []DecidedItem `json:"items"`
	By     string        `json:"by"`
}

// Closed is the data of hold.closed.
type Closed struct {
	HoldID string       `json:"hold_id"`
	Why    holds.Status `json:"why"`
	// Reason is why an operator cancelled the hold.
	Reason string `json:"reason,omitempty"`
}

// Recovered is the data of run.recovered.
type Recovered struct {
	Worker string `json:"worker"`
	Epoch  int64  `json:"epoch"`
	// Unfinished are the calls found started and not finished.
	Unfinished []string `json:"unfinished,omitempty"`
}

// Completed is the data of run.completed.
type Completed struct {
	Output   json.RawMessage `json:"output"`
	ActiveMS int64           `json:"active_ms,omitempty"`
}

// Failed is the data of run.failed.
type Failed struct {
	Error    Fault `json:"error"`
	ActiveMS int64 `json:"active_ms,omitempty"`
}

// Fault is why a run failed.
type Fault struct {
	Code    problem.Code     `json:"code"`
	Message string           `json:"message"`
	Details []problem.Detail `json:"details,omitempty"`
}

// Cancel is the data of run.cancelled.
type Cancel struct {
	By string `json:"by"`
}
