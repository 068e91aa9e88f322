package problem

// The comment of each code is its line in docs/errors.md; a test of
// internal/archtest keeps the two together.

// Codes of failed requests.
const (
	// Internal: A fault of the server itself; its log has the cause.
	Internal Code = "internal"
	// InvalidRequest: A parameter or header is unknown or out of bounds; details name each.
	InvalidRequest Code = "invalid_request"
	// InvalidJSON: The body is not JSON as this API reads it: UTF-8, no duplicate names.
	InvalidJSON Code = "invalid_json"
	// InvalidBody: The body is JSON but not of the documented shape; details hold the paths.
	InvalidBody Code = "invalid_body"
	// UnsupportedMedia: The body is not sent as application/json in UTF-8, uncompressed.
	UnsupportedMedia Code = "unsupported_media_type"
	// BodyTooLarge: The body is longer than the server takes (1 MiB).
	BodyTooLarge Code = "body_too_large"
	// InvalidInput: The input does not fit the capability's schema; details hold the paths.
	InvalidInput Code = "invalid_input"
	// InvalidDecision: An item, an action or its data does not fit the hold; nothing was applied.
	InvalidDecision Code = "invalid_decision"
	// InvalidEdit: Edited arguments do not fit the tool's schema; the hold stays open.
	InvalidEdit Code = "invalid_edit"
	// EditDenied: Policy denies the call with the edited arguments; the hold stays open.
	EditDenied Code = "edit_denied"
	// NotReviewer: The rule that asks names other people; the message says whom.
	NotReviewer Code = "not_reviewer"
	// RequesterMayNotDecide: The person asked for the run, and the rule wants somebody else to decide.
	RequesterMayNotDecide Code = "requester_may_not_decide"
	// AlreadyVoted: The person has said something else about the item, which waits for other people.
	AlreadyVoted Code = "already_voted"
	// IdempotencyConflict: The Idempotency-Key was used for another request.
	IdempotencyConflict Code = "idempotency_conflict"
	// EnvNotFound: The server has no such environment.
	EnvNotFound Code = "env_not_found"
	// AgentNotFound: The server has no such agent; the message lists those it has.
	AgentNotFound Code = "agent_not_found"
	// CapabilityNotFound: The agent has no such capability, or one without a loop.
	CapabilityNotFound Code = "capability_not_found"
	// RunNotFound: The environment has no such run, or its retention is over.
	RunNotFound Code = "run_not_found"
	// HoldNotFound: The environment has no such hold, or the retention of its run is over.
	HoldNotFound Code = "hold_not_found"
	// RouteNotFound: The API has no such path.
	RouteNotFound Code = "route_not_found"
	// MethodNotAllowed: The path does not take this method.
	MethodNotAllowed Code = "method_not_allowed"
	// HoldDecided: The hold or the item was decided otherwise before; the hold comes with the error.
	HoldDecided Code = "hold_decided"
	// HoldExpired: Nobody decided in time. Of a run: its rule says on_expire: fail.
	HoldExpired Code = "hold_expired"
	// HoldCancelled: The hold was cancelled with its run, or by an operator; its reason says so.
	HoldCancelled Code = "hold_cancelled"
	// HoldStale: The decision was made on another revision of the hold; look at it again.
	HoldStale Code = "hold_stale"
	// ForbiddenOrigin: A browser made the request for a page of another origin.
	ForbiddenOrigin Code = "forbidden_origin"
	// MisdirectedHost: The Host header does not name this machine.
	MisdirectedHost Code = "misdirected_host"
	// Unauthorized: The credential is missing, or does not count: an API key, on the gateway route the token of a run.
	Unauthorized Code = "unauthorized"
	// Forbidden: The key lacks the role that the request takes; the message names it.
	Forbidden Code = "forbidden"
	// RateLimited: Too many credentials from one address did not count; Retry-After says when to try again.
	RateLimited Code = "rate_limited"
	// KeyNotFound: There is no such API key.
	KeyNotFound Code = "key_not_found"
	// NoAdminKey: No key with the role admin would be left, or there is none yet.
	NoAdminKey Code = "no_admin_key"
	// QueueFull: As many runs are waiting as the server allows; Retry-After says when to try again.
	QueueFull Code = "queue_full"
	// StoreUnavailable: The store did not answer; the same request may be repeated, one that creates a run only with an Idempotency-Key.
	StoreUnavailable Code = "store_unavailable"
)

// Codes of failed runs. HoldExpired and Internal are used for both.
const (
	// InvalidOutput: The model's answer does not fit the output schema after two corrections.
	InvalidOutput Code = "invalid_output"
	// TooManyTurns: No answer within max_turns model calls.
	TooManyTurns Code = "too_many_turns"
	// TokenBudgetExceeded: The run used its max_tokens.
	TokenBudgetExceeded Code = "token_budget_exceeded"
	// Timeout: The run used up its active time. Of a call: call_timeout expired.
	Timeout Code = "timeout"
	// ModelError: The provider refused the request or the key, or its answer makes no sense.
	ModelError Code = "model_error"
	// ModelUnavailable: No model of the run could be reached; settings or time can help.
	ModelUnavailable Code = "model_unavailable"
	// MCPUnavailable: A required MCP server is not connected.
	MCPUnavailable Code = "mcp_unavailable"
	// EgressDenied: A connection is not covered by network.allow; the message has the line to add.
	EgressDenied Code = "egress_denied"
	// InvalidHistory: The conversation is not one a provider accepts; no provider was called.
	InvalidHistory Code = "invalid_history"
	// RecoveryExhausted: Workers took the run over three times and got no further.
	RecoveryExhausted Code = "recovery_exhausted"
	// JournalDamaged: Entries of the run are missing or unreadable in the store.
	JournalDamaged Code = "journal_damaged"
)

// Codes of faults that stop a command or the start of a server.
const (
	// InvalidManifest: The manifest is faulty, or has a rule that protects nothing although it reads so.
	InvalidManifest Code = "invalid_manifest"
	// InvalidSettings: A flag, a variable or a setting is faulty.
	InvalidSettings Code = "invalid_settings"
	// StoreLocked: Another process has the store file open.
	StoreLocked Code = "store_locked"
)
