// Package client is the typed client of the HTTP API. The command line, the
// conformance kit and the server's tests use it. It repeats nothing by itself,
// with one exception: an event stream that breaks is resumed where it was.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// maxAnswer bounds the body of one answer that is read into memory.
const maxAnswer = 64 << 20

// Config is what a Client needs.
type Config struct {
	// URL is where the server is, such as "http://127.0.0.1:8080".
	URL string
	// HTTP sends the requests; required. It must not have a Timeout shorter than
	// the waits and streams asked for: contexts bound those.
	HTTP *http.Client
	// Key is the API key that requests carry; "" sends none.
	Key string
}

// Client calls one server. It has no state that changes and is safe for
// concurrent use.
type Client struct {
	base string
	http *http.Client
	key  string
}

// New returns a client, or an error that says what is wrong with cfg.
func New(cfg Config) (*Client, error) {
	if cfg.HTTP == nil {
		return nil, errors.New("client: no HTTP client")
	}
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, problem.New(problem.InvalidSettings, "%.100q is no address of a server; write http://host:port", cfg.URL)
	}
	return &Client{base: strings.TrimSuffix(u.String(), "/"), http: cfg.HTTP, key: cfg.Key}, nil
}

// request is one call of the API.
type request struct {
	method string
	path   []string // segments, not escaped
	query  url.Values
	header http.Header
	body   any // nil sends none
}

// path makes the segments of a resource of an environment.
func path(env string, segments ...string) []string {
	return append([]string{"v0", "envs", env}, segments...)
}

// send sends r and returns the answer, whose body the caller closes. An answer
// that is no success is turned into an *Error.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	address := c.base
	var addressSb73 strings.Builder
	for _, s := range r.path {
		addressSb73.WriteString("/" + url.PathEscape(s))
	}
	address += addressSb73.String()
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		raw, err := rawjson.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, r.header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		defer res.Body.Close() //nolint:errcheck // read only
		return nil, failure(res)
	}
	return res, nil
}

// do sends a request with the key.
func (c *Client) do(req *http.Request) (*http.Response, error) {
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	return c.http.Do(req)
}

// call sends r and decodes the answer into out.
func (c *Client) call(ctx context.Context, r request, out any) error {
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read only
	return decode(res, out)
}

// decode reads the answer into out. Fields this version does not know are left
// out: a newer server may have more.
func decode(res *http.Response, out any) error {
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if len(raw) > maxAnswer {
		return fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("the answer is not what this client reads: %w", err)
	}
	return nil
}

// Error is an answer that is no success. It unwraps to its *problem.Error, so
// problem.CodeOf and errors.Is tell the code.
type Error struct {
	Problem *problem.Error
	// Status is the HTTP status.
	Status int
	// RequestID finds the request in the server's log; "" when something else
	// than the server answered.
	RequestID string
	// Hold is the hold as it stands, with errors about a decision; else nil.
	Hold *api.Hold
}

// Error returns code, message and details.
func (e *Error) Error() string {
	text := e.Problem.Error()
	var textSb150 strings.Builder
	for _, d := range e.Problem.Details {
		textSb150.WriteString("; " + d.Path + " " + d.Message)
	}
	text += textSb150.String()
	return text
}

// Unwrap returns the *problem.Error.
func (e *Error) Unwrap() error { return e.Problem }

// failure makes the error of an answer.
func failure(res *http.Response) error {
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer with status %d: %w", res.StatusCode, err)
	}
	out := &Error{Status: res.StatusCode}
	var body api.ErrorBody
	if err := json.Unmarshal(raw, &body); err != nil || body.Error.Code == "" {
		out.Problem = problem.New(problem.Internal, "the answer has status %d and is not one of this API: %.200q", res.StatusCode, raw)
		return out
	}
	out.Problem = problem.New(body.Error.Code, "%s", body.Error.Message).With(body.Error.Details...)
	out.RequestID, out.Hold = body.RequestID, body.Hold
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		out.Problem.RetryAfter = time.Duration(s) * time.Second
	}
	return out
}

// Health asks whether the process serves requests.
func (c *Client) Health(ctx context.Context) error {
	return c.call(ctx, request{method: http.MethodGet, path: []string{"health"}}, &api.Health{})
}

// Ready asks whether the server can do its work; Ready.Ready is the answer, and an
// error means that there was none. The rest is for those who may look.
func (c *Client) Ready(ctx context.Context) (api.Ready, error) {
	var out api.Ready
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/ready", nil)
	if err != nil {
		return out, err
	}
	res, err := c.do(req)
	if err != nil {
		return out, err
	}
	defer res.Body.Close() //nolint:errcheck // read only
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable {
		return out, failure(res)
	}
	return out, decode(res, &out)
}

// Agents lists the agents of an environment.
func (c *Client) Agents(ctx context.Context, env string) ([]api.Agent, error) {
	var out api.AgentList
	err := c.call(ctx, request{method: http.MethodGet, path: path(env, "agents")}, &out)
	return out.Agents, err
}

// Agent reads one agent.
func (c *Client) Agent(ctx context.Context, env, name string) (api.Agent, error) {
	var out api.Agent
	return out, c.call(ctx, request{method: http.MethodGet, path: path(env, "agents", name)}, &out)
}
