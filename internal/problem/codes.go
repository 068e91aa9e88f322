package problem

// Codes of failed requests.
const (
	Internal            Code = "internal"
	InvalidRequest      Code = "invalid_request"
	InvalidJSON         Code = "invalid_json"
	UnsupportedMedia    Code = "unsupported_media_type"
	BodyTooLarge        Code = "body_too_large"
	InvalidInput        Code = "invalid_input"
	InvalidDecision     Code = "invalid_decision"
	InvalidEdit         Code = "invalid_edit"
	EditDenied          Code = "edit_denied"
	IdempotencyConflict Code = "idempotency_conflict"
	EnvNotFound         Code = "env_not_found"
	AgentNotFound       Code = "agent_not_found"
	CapabilityNotFound  Code = "capability_not_found"
	RunNotFound         Code = "run_not_found"
	HoldNotFound        Code = "hold_not_found"
	KeyNotFound         Code = "key_not_found"
	RouteNotFound       Code = "route_not_found"
	MethodNotAllowed    Code = "method_not_allowed"
	HoldDecided         Code = "hold_decided"
	HoldExpired         Code = "hold_expired"
	HoldCancelled       Code = "hold_cancelled"
	HoldStale           Code = "hold_stale"
	RunFinished         Code = "run_finished"
	ForbiddenOrigin     Code = "forbidden_origin"
	MisdirectedHost     Code = "misdirected_host"
	Unauthorized        Code = "unauthorized"
	Forbidden           Code = "forbidden"
	Overloaded          Code = "overloaded"
	StoreUnavailable    Code = "store_unavailable"
)

// Codes of failed runs. HoldExpired and Internal are used for both.
const (
	InvalidOutput       Code = "invalid_output"
	TooManyTurns        Code = "too_many_turns"
	TokenBudgetExceeded Code = "token_budget_exceeded"
	Timeout             Code = "timeout"
	ModelError          Code = "model_error"
	ModelUnavailable    Code = "model_unavailable"
	MCPUnavailable      Code = "mcp_unavailable"
	EgressDenied        Code = "egress_denied"
	InvalidHistory      Code = "invalid_history"
	RecoveryExhausted   Code = "recovery_exhausted"
	JournalDamaged      Code = "journal_damaged"
)

// Codes of faults that stop a command or the start of a server.
const (
	InvalidManifest Code = "invalid_manifest"
	InvalidSettings Code = "invalid_settings"
	StoreLocked     Code = "store_locked"
)

// InvalidBody says that a request's body is JSON and not of the documented shape.
const InvalidBody Code = "invalid_body"
