package api

// Orders are what operators have ordered for an environment: on every server of
// its store, whatever manifests allow.
type Orders struct {
	// Version grows with every change; 0 when none were ever given.
	Version int64 `json:"version"`
	// Paused are the agents whose runs wait, in the order they were paused.
	Paused []Pause `json:"paused"`
	// Off are the tools of which no call starts, in the order they were switched off.
	Off []ToolOff `json:"off"`
}

// Order is who ordered something, why and when.
type Order struct {
	// By comes from the credential.
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	// At is when a server was asked, which is before the order bound everybody.
	At Time `json:"at"`
}

// Pause keeps the runs of an agent where they are.
type Pause struct {
	Agent string `json:"agent"`
	Order
}

// ToolOff forbids tools.
type ToolOff struct {
	// Agent is whose tools are meant; absent for those of every agent.
	Agent string `json:"agent,omitempty"`
	// Tool is a raw tool name or glob, or "server/tool" with globs in both parts.
	Tool string `json:"tool"`
	Order
}

// PauseAgent is the body that pauses an agent.
type PauseAgent struct {
	Reason string `json:"reason"`
}

// SwitchOff is the body that switches tools off.
type SwitchOff struct {
	// Tool and Agent are as in ToolOff.
	Tool   string `json:"tool"`
	Agent  string `json:"agent,omitempty"`
	Reason string `json:"reason"`
}

// SwitchOn is the body that takes a SwitchOff back: the one of the same tool and
// agent, letter by letter.
type SwitchOn struct {
	Tool  string `json:"tool"`
	Agent string `json:"agent,omitempty"`
}

// SwitchedOff is the answer to SwitchOff.
type SwitchedOff struct {
	Orders
	// CancelledHolds is how many pending holds asked about such a tool and were
	// cancelled by this request.
	CancelledHolds int `json:"cancelled_holds"`
	// Matches are the tools of this server's agents that are meant, as far as their
	// MCP servers have told them; none of them means that the name may be wrong.
	Matches []ToolName `json:"matches"`
}

// ToolName names a tool of an agent.
type ToolName struct {
	Agent string `json:"agent"`
	// Server is the alias in the manifest, Tool the raw name.
	Server string `json:"server"`
	Tool   string `json:"tool"`
}
