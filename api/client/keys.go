package client

import (
	"context"
	"net/http"
	"net/url"

	"agentos/api"
)

// Me tells who the server takes the caller for.
func (c *Client) Me(ctx context.Context) (api.Me, error) {
	var out api.Me
	return out, c.call(ctx, request{method: http.MethodGet, path: []string{"v0", "me"}}, &out)
}

// Keys lists the API keys of an environment, oldest first.
func (c *Client) Keys(ctx context.Context, env string) ([]api.Key, error) {
	var out api.KeyList
	err := c.call(ctx, request{method: http.MethodGet, path: path(env, "keys")}, &out)
	return out.Keys, err
}

// CreateKey makes an API key. When the answer is lost a key may be there whose
// secret nobody knows: revoke it and make another.
func (c *Client) CreateKey(ctx context.Context, env string, k api.CreateKey) (api.CreatedKey, error) {
	var out api.CreatedKey
	return out, c.call(ctx, request{method: http.MethodPost, path: path(env, "keys"), body: k}, &out)
}

// RevokeKey ends a key, on every server of the store within about a second. A
// repeat changes nothing. force revokes the last admin key too.
func (c *Client) RevokeKey(ctx context.Context, env, id string, force bool) (api.Key, error) {
	var query url.Values
	if force {
		query = url.Values{"force": {"true"}}
	}
	var out api.Key
	return out, c.call(ctx, request{method: http.MethodDelete, path: path(env, "keys", id), query: query}, &out)
}
