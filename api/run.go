package api

import "encoding/json"

// RunStatus is where a run stands.
type RunStatus string

// The statuses of a run.
const (
	RunQueued    RunStatus = "queued"
	RunRunning   RunStatus = "running"
	RunHeld      RunStatus = "held"
	RunCompleted RunStatus = "completed"
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
)

// Finished reports whether a run of the status has ended.
func (s RunStatus) Finished() bool {
	return s == RunCompleted || s == RunFailed || s == RunCancelled
}

// CreateRun is the body that creates a run.
type CreateRun struct {
	Input     json.RawMessage `json:"input"`
	SessionID string          `json:"session_id,omitempty"`
	// Metadata is an object of the caller's own, kept and given back unread.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Run is one execution of a capability.
type Run struct {
	RunID       string    `json:"run_id"`
	Status      RunStatus `json:"status"`
	Env         string    `json:"env"`
	Agent       string    `json:"agent"`
	AgentDigest string    `json:"agent_digest"`
	// PolicyDigest is of the operator's rules the run was created under; absent
	// without any.
	PolicyDigest string `json:"policy_digest,omitempty"`
	Capability   string `json:"capability"`
	CreatedAt    Time   `json:"created_at"`
	UpdatedAt    Time   `json:"updated_at"`
	// Input is null when the first entry of the run is damaged.
	Input json.RawMessage `json:"input"`
	// Output is set when the run completed, Error when it failed.
	Output json.RawMessage `json:"output,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	// Hold is the pending hold of a held run.
	Hold *Hold `json:"hold,omitempty"`
	// CancelledBy is who cancelled the run, or asked to while it was worked on.
	CancelledBy string `json:"cancelled_by,omitempty"`
	Usage       Usage  `json:"usage"`
	// Waiting says why a run that is not finished makes no progress, such as a model
	// that cannot be reached; absent otherwise.
	Waiting string `json:"waiting,omitempty"`
	// Turns is the number of model calls that were answered.
	Turns     int    `json:"turns"`
	Requester string `json:"requester"`
	// RequesterGroups are the groups the requester was in then.
	RequesterGroups []string        `json:"requester_groups,omitempty"`
	SessionID       string          `json:"session_id,omitempty"`
	Metadata        json.RawMessage `json:"metadata,omitempty"`
}

// RunList is one page of runs, newest first.
type RunList struct {
	Runs []Run `json:"runs"`
	// NextCursor is absent on the last page.
	NextCursor string `json:"next_cursor,omitempty"`
}

// Entry is one entry of a run's journal, the data of one server-sent event.
type Entry struct {
	// Seq counts from 1 without gaps; it is the id of the event.
	Seq int64 `json:"seq"`
	At  Time  `json:"at"`
	// Type is such as "run.created"; it is the name of the event.
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// Trajectory is what happened in a run, step by step.
type Trajectory struct {
	Run Run `json:"run"`
	// MCPServers are the configured MCP servers as the run last saw them.
	MCPServers []MCPServer `json:"mcp_servers"`
	Turns      []Turn      `json:"turns"`
	Holds      []HoldEvent `json:"holds"`
	Recoveries []Recovery  `json:"recoveries"`
	Totals     Totals      `json:"totals"`
}

// Turn is one model call and the calls it asked for.
type Turn struct {
	Turn int  `json:"turn"`
	At   Time `json:"at"`
	// ModelAsked is the model of the manifest, ModelUsed the one that answered.
	ModelAsked   string `json:"model_asked"`
	ModelUsed    string `json:"model_used"`
	Mock         bool   `json:"mock"`
	FinishReason string `json:"finish_reason,omitempty"`
	LatencyMS    int64  `json:"latency_ms"`
	Attempts     int    `json:"attempts"`
	// Usage is absent when the provider reported none.
	Usage *Usage `json:"usage,omitempty"`
	// Message is the assistant message as received.
	Message    json.RawMessage `json:"message"`
	Correction string          `json:"correction,omitempty"`
	// PolicyDigest is of the operator's rules by which the calls were judged; absent
	// without any.
	PolicyDigest string `json:"policy_digest,omitempty"`
	Calls        []Call `json:"calls"`
}

// Call is one tool call as far as it has come.
type Call struct {
	ID         string `json:"id"`
	ProviderID string `json:"provider_id,omitempty"`
	// Provider says where the tool lives; it is always "mcp".
	Provider string `json:"provider"`
	// Name is the tool as the model called it; Server and Tool are the alias and
	// the raw name, absent when there is no such tool.
	Name   string `json:"name"`
	Server string `json:"server,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Effect string `json:"effect,omitempty"`
	// Destructive says that the server declared the tool destructive.
	Destructive bool    `json:"destructive,omitempty"`
	Verdict     Verdict `json:"verdict"`
	// Arguments are three facts: what the model proposed (absent when they were
	// no JSON object), what a person approved or put in their place, and what the
	// tool was called with.
	ProposedArguments json.RawMessage `json:"proposed_arguments,omitempty"`
	DecidedArguments  json.RawMessage `json:"decided_arguments,omitempty"`
	ExecutedArguments json.RawMessage `json:"executed_arguments,omitempty"`
	Decisions         []CallDecision  `json:"decisions,omitempty"`
	// Executions is how often the call was started: more than once after a crash.
	Executions int   `json:"executions"`
	StartedAt  *Time `json:"started_at,omitempty"`
	FinishedAt *Time `json:"finished_at,omitempty"`
	// Outcome is absent while the call has not ended.
	Outcome    string          `json:"outcome,omitempty"`
	Text       string          `json:"text,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
	ErrorCode  string          `json:"error_code,omitempty"`
	// MCPError is the JSON-RPC error code, absent when there was none.
	MCPError   int    `json:"mcp_error,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Reconnects int    `json:"reconnects"`
	Truncated  bool   `json:"truncated,omitempty"`
	ResultBy   string `json:"result_by,omitempty"`
}

// CallDecision is what a person decided about a call, in which hold.
type CallDecision struct {
	HoldID string `json:"hold_id"`
	Decision
	// Open says that more people had to approve after it.
	Open bool `json:"open,omitempty"`
}

// HoldEvent is one hold of a run: when and why it began and ended.
type HoldEvent struct {
	HoldID   string   `json:"hold_id"`
	Kind     string   `json:"kind"`
	Intent   string   `json:"intent"`
	Items    []string `json:"items"`
	OpenedAt Time     `json:"opened_at"`
	// ClosedAt and Why are absent while the hold is pending.
	ClosedAt *Time  `json:"closed_at,omitempty"`
	Why      string `json:"why,omitempty"`
	// Reason is why an operator cancelled the hold; absent otherwise.
	Reason string `json:"reason,omitempty"`
}

// Recovery is one take-over of the run after a worker died.
type Recovery struct {
	At     Time   `json:"at"`
	Worker string `json:"worker"`
	Epoch  int64  `json:"epoch"`
	// Unfinished are the calls that were found started and not finished.
	Unfinished []string `json:"unfinished"`
}

// Totals add up a run.
type Totals struct {
	Turns      int   `json:"turns"`
	Calls      int   `json:"calls"`
	Executions int   `json:"executions"`
	Holds      int   `json:"holds"`
	Reconnects int   `json:"reconnects"`
	Recoveries int   `json:"recoveries"`
	Usage      Usage `json:"usage"`
	// ModelMS adds up the model calls. ActiveMS is the time the run was worked on,
	// held and queued time left out.
	ModelMS  int64 `json:"model_ms"`
	ActiveMS int64 `json:"active_ms"`
}
