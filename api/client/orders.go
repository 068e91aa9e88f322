package client

import (
	"context"
	"net/http"

	"agentos/api"
)

// Orders reads what operators have ordered for an environment.
func (c *Client) Orders(ctx context.Context, env string) (api.Orders, error) {
	var out api.Orders
	return out, c.call(ctx, request{method: http.MethodGet, path: path(env, "orders")}, &out)
}

// PauseAgent keeps the runs of an agent where they are until ResumeAgent. A repeat
// changes nothing, as with all orders.
func (c *Client) PauseAgent(ctx context.Context, env, agent string, p api.PauseAgent) (api.Orders, error) {
	var out api.Orders
	return out, c.call(ctx, request{method: http.MethodPost, path: path(env, "agents", agent, "pause"), body: p}, &out)
}

// ResumeAgent ends PauseAgent.
func (c *Client) ResumeAgent(ctx context.Context, env, agent string) (api.Orders, error) {
	var out api.Orders
	return out, c.call(ctx, request{method: http.MethodPost, path: path(env, "agents", agent, "resume")}, &out)
}

// SwitchOff forbids tools: when it returns, no call of them starts any more. It may
// take long where many holds ask about them. After an error the tools may be off
// and some of these holds still pending; a repeat does the rest.
func (c *Client) SwitchOff(ctx context.Context, env string, t api.SwitchOff) (api.SwitchedOff, error) {
	var out api.SwitchedOff
	return out, c.call(ctx, request{method: http.MethodPost, path: path(env, "tools", "off"), body: t}, &out)
}

// SwitchOn takes a SwitchOff of the same tool and agent back.
func (c *Client) SwitchOn(ctx context.Context, env string, t api.SwitchOn) (api.Orders, error) {
	var out api.Orders
	return out, c.call(ctx, request{method: http.MethodPost, path: path(env, "tools", "on"), body: t}, &out)
}
