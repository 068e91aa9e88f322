package api

import "encoding/json"

// Agent is a served agent.
type Agent struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Version     string `json:"version,omitempty"`
	// Digest identifies the manifest and its bundle.
	Digest       string       `json:"digest"`
	Capabilities []Capability `json:"capabilities"`
	MCPServers   []MCPServer  `json:"mcp_servers"`
	// Paused is the order by which the agent's runs wait; absent when they do not.
	Paused *Order `json:"paused,omitempty"`
}

// AgentList are all agents of an environment, by name.
type AgentList struct {
	Agents []Agent `json:"agents"`
}

// Capability is a named operation of an agent.
type Capability struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"input"`
	Output      json.RawMessage `json:"output"`
	// TimeoutMS bounds the active time of a run.
	TimeoutMS int64 `json:"timeout_ms"`
	// Model is the "provider/model" of the loop; absent without a loop.
	Model string `json:"model,omitempty"`
	// Tools are what the model is offered now, in the order it sees them.
	Tools []Tool `json:"tools"`
}

// Tool is a tool of a capability.
type Tool struct {
	// Name is the one the model sees; Server and Tool are the alias and the raw
	// name, which policy goes by.
	Name        string          `json:"name"`
	Server      string          `json:"server"`
	Tool        string          `json:"tool"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	// Effect is "read", "idempotent" or "once": whether it may run again after a
	// crash.
	Effect  string  `json:"effect"`
	Verdict Verdict `json:"verdict"`
}

// MCPServer is how a configured MCP server does. It never holds commands,
// environment, URLs or headers.
type MCPServer struct {
	// Name is the alias in the manifest.
	Name string `json:"name"`
	// Transport is "stdio" or "streamable_http".
	Transport string `json:"transport_type"`
	// Status is connected, disconnected, failed or not_connected.
	Status   string `json:"status"`
	Required bool   `json:"required"`
	// ServerInfo and ProtocolVersion are what the server says of itself; absent
	// before the first connection.
	ServerInfo      *ServerInfo `json:"server_info,omitempty"`
	ProtocolVersion string      `json:"protocol_version,omitempty"`
	ToolCount       int         `json:"tool_count"`
	// Reconnects counts the connections after the first.
	Reconnects int `json:"reconnects"`
	// Error is the cause of a failed or lost connection.
	Error string `json:"error,omitempty"`
	// Excluded are tools that were left out, with the reason; Warnings faults that
	// left a tool usable.
	Excluded []string `json:"excluded,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// ServerInfo is what an MCP server calls itself.
type ServerInfo struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Ready says whether the server can do its work, and what an operator should
// know about how it does it.
type Ready struct {
	Ready bool       `json:"ready"`
	Store StoreReady `json:"store"`
	// MCPConnected says that every required server of every agent is connected.
	MCPConnected bool         `json:"mcp_connected"`
	Agents       []AgentReady `json:"agents"`
	// MockModel says which models the mock model answers for; absent when none.
	MockModel string `json:"mock_model,omitempty"`
	// Warnings are about the store, the settings and policy.
	Warnings []string `json:"warnings"`
}

// Readiness is what of Ready those are told who may not look at more.
type Readiness struct {
	Ready bool `json:"ready"`
}

// StoreReady is what the store says of itself.
type StoreReady struct {
	Reachable bool   `json:"reachable"`
	Driver    string `json:"driver,omitempty"`
	// Durable says that acknowledged writes survive a crash of the store.
	Durable bool `json:"durable"`
}

// AgentReady are the MCP servers of one agent, and whether its runs go on.
type AgentReady struct {
	Agent      string      `json:"agent"`
	MCPServers []MCPServer `json:"mcp_servers"`
	// Paused is as in Agent. A paused agent is no reason not to be ready.
	Paused *Order `json:"paused,omitempty"`
}

// ModelList are the models of the gateway in the shape OpenAI clients read.
type ModelList struct {
	Object string  `json:"object"`
	Data   []Model `json:"data"`
}

// Model is one model of the gateway.
type Model struct {
	// ID is "provider/model".
	ID      string `json:"id"`
	Object  string `json:"object"`
	OwnedBy string `json:"owned_by"`
	Created int64  `json:"created"`
}
