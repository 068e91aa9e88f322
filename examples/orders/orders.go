// Package orders is the MCP server of the example agent: two tools over stdio,
// one harmless and one that should wait for a person. Its orders live in memory
// and start anew with the process.
package orders

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"sync"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// order is one row of the shop.
type order struct {
	Status string `json:"status"`
	Total  string `json:"total"`
}

// shop holds the orders; the server calls its tools concurrently.
type shop struct {
	mu     sync.Mutex
	orders map[string]order
}

// Serve answers MCP on in and out until ctx ends or in is closed.
func Serve(ctx context.Context, version string, in io.Reader, out, errs io.Writer) error {
	s := &shop{orders: map[string]order{
		"A-1001": {Status: "shipped", Total: "84.90"},
		"A-1002": {Status: "processing", Total: "250.00"},
	}}
	srv := server.NewMCPServer("orders", version, server.WithToolCapabilities(false))
	srv.AddTool(mcpgo.NewToolWithRawSchema("lookup_order", "Look up an order's status and total.", json.RawMessage(
		`{"type":"object","properties":{"order_id":{"type":"string"}},"required":["order_id"],"additionalProperties":false}`)), s.lookup)
	srv.AddTool(mcpgo.NewToolWithRawSchema("cancel_order", "Cancel an order. Irreversible.", json.RawMessage(
		`{"type":"object","properties":{"order_id":{"type":"string"},"reason":{"type":"string"}},"required":["order_id","reason"],"additionalProperties":false}`)), s.cancel)
	stdio := server.NewStdioServer(srv)
	stdio.SetErrorLogger(log.New(errs, "orders: ", 0))
	return stdio.Listen(ctx, in, out)
}

func (s *shop) lookup(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
	id := r.GetString("order_id", "")
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.orders[id]
	if !ok {
		return result(struct {
			OrderID string `json:"order_id"`
			Status  string `json:"status"`
		}{id, "not found"})
	}
	return result(struct {
		OrderID string `json:"order_id"`
		order
	}{id, o})
}

func (s *shop) cancel(_ context.Context, r mcpgo.CallToolRequest) (*mcpgo.CallToolResult, error) {
	id := r.GetString("order_id", "")
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.orders[id]
	if !ok {
		return result(struct {
			OrderID   string `json:"order_id"`
			Cancelled bool   `json:"cancelled"`
			Error     string `json:"error"`
		}{id, false, "not found"})
	}
	o.Status = "cancelled"
	s.orders[id] = o
	return result(struct {
		OrderID   string `json:"order_id"`
		Cancelled bool   `json:"cancelled"`
		Reason    string `json:"reason"`
	}{id, true, r.GetString("reason", "")})
}

func result(v any) (*mcpgo.CallToolResult, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mcpgo.NewToolResultText(string(text)), nil
}
