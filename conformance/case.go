package conformance

import (
	"encoding/json"

	"agentos/internal/schema"
)

// Expect is the status a case expects of its run before anybody decides.
type Expect string

// The expectations. Held is written held or suspended.
const (
	Completed Expect = "completed"
	Held      Expect = "held"
	Failed    Expect = "failed"
)

// Case is one run and what must be true of it.
type Case struct {
	Capability string
	// Name is unique in its file.
	Name   string
	Input  json.RawMessage
	Expect Expect
	// Steps are the decision requests of a held run; at least one when Expect is
	// Held, none otherwise.
	Steps []Step
	// Output is a subset of the output; nil means any. OutputSchema is used
	// instead when it is set.
	Output       json.RawMessage
	OutputSchema *schema.Schema
	// ErrorCode is the code the run must fail with; "" means any when it must fail.
	ErrorCode string
	// Calls are exact numbers of executions; nil means those that follow from the
	// decisions.
	Calls []CallCount
	// Unknown decides calls whose outcome is unknown after a fault.
	Unknown Decision
	// Fault begins with the run; its Kind is FaultNone, FaultKill or FaultDrop.
	Fault Fault
}

// Fails reports whether the run must end in failure.
func (c Case) Fails() bool { return c.Expect == Failed || c.ErrorCode != "" }

// Step is one decision request of a reviewer.
type Step struct {
	// Decisions are sent in one request; nil approves every item.
	Decisions []Decision
	Hold      HoldShape
	// Fault begins just before the request.
	Fault Fault
}

// Decision is the decision for one item.
type Decision struct {
	ID     string
	Action string
	Data   json.RawMessage
	Reason string
}

// HoldShape is what a reviewer must see; empty fields mean anything.
type HoldShape struct {
	Kind   string
	Intent string
	// Items are subsets of the items, one each and in order.
	Items []json.RawMessage
}

// CallCount is how often a tool must have run.
type CallCount struct {
	// Tool is a raw tool name, or "server/tool".
	Tool  string
	Times int
	// Arguments restrict the count to executions whose arguments hold them.
	Arguments json.RawMessage
}

// FaultKind is a way to disturb a run.
type FaultKind string

// The kinds of fault; package documentation says what each does.
const (
	FaultNone           FaultKind = ""
	FaultKill           FaultKind = "kill"
	FaultDrop           FaultKind = "drop_mcp"
	FaultChangeTool     FaultKind = "change_tool"
	FaultDoubleDecision FaultKind = "double_decision"
	FaultExpire         FaultKind = "expire"
)

// Fault is one disturbance.
type Fault struct {
	Kind FaultKind
	// Points are where to kill; none with FaultKill means every boundary that the
	// case passes in peace.
	Points []string
}

// FaultKinds are the kinds a case may name, in the order of the documentation.
func FaultKinds() []string {
	return []string{string(FaultKill), string(FaultDrop), string(FaultChangeTool), string(FaultDoubleDecision), string(FaultExpire)}
}

// Entries are the journal entries at whose commit a server can be killed. They
// are names of the API.
func Entries() []string {
	return []string{
		"run.created", "model.answered", "call.started", "call.finished", "hold.opened", "hold.decided",
		"hold.closed", "run.recovered", "run.completed", "run.failed", "run.cancelled",
	}
}
