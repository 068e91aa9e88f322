// Package api owns the contract of the HTTP API: the OpenAPI document and the
// structs that its bodies decode into. It has no behaviour. The server fills the
// structs, the client reads them; both are held to the document by tests.
//
// Values that belong to agents, tools and reviewers stay json.RawMessage, so that
// a 19-digit id or the order of members is the same for the caller, the reviewer
// and the tool.
package api

import (
	_ "embed"
	"time"

	"agentos/internal/problem"
)

// Document is the OpenAPI 3.1 document in YAML, as it is in the source tree.
//
//go:embed openapi.yaml
var Document []byte

// TimeLayout is RFC 3339 in UTC with milliseconds, the precision stores keep.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// Time is a moment as the API writes it; see TimeLayout. Reading accepts any
// RFC 3339 time.
type Time struct{ time.Time }

// MarshalJSON writes t in TimeLayout.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"` + TimeLayout + `"`)), nil
}

// Error is why a request or a run failed.
type Error struct {
	// Code is stable; programs go by it.
	Code problem.Code `json:"code"`
	// Message tells a person what to change.
	Message string           `json:"message"`
	Details []problem.Detail `json:"details,omitempty"`
}

// ErrorBody is the body of every answer that is not a success.
type ErrorBody struct {
	Error Error `json:"error"`
	// RequestID finds the request in the server's log.
	RequestID string `json:"request_id"`
	// Hold is the hold as it stands, with errors about a decision on it.
	Hold *Hold `json:"hold,omitempty"`
}

// Usage counts tokens of model calls.
type Usage struct {
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	TotalTokens  int64 `json:"total_tokens"`
}

// Verdict is what policy says about a call.
type Verdict struct {
	// Effect is "allow", "ask" or "deny"; for a listed tool also "conditional",
	// where it depends on the call.
	Effect string `json:"effect"`
	// Rules are the ids of the deciding rules; absent when the default applied.
	Rules  []string `json:"rules,omitempty"`
	Reason string   `json:"reason,omitempty"`
	// Reviewers are who may decide about a call with effect "ask", without those of
	// an escalation; nil means one person, whoever may decide at all.
	Reviewers *Reviewers `json:"reviewers,omitempty"`
}

// Index is the answer at "/": where to go from there.
type Index struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	OpenAPI string `json:"openapi"`
	Agents  string `json:"agents"`
	Health  string `json:"health"`
	Ready   string `json:"ready"`
	Metrics string `json:"metrics"`
}

// Health says that the process serves requests.
type Health struct {
	Status string `json:"status"`
}
