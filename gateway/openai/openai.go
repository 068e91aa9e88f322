// Package openai reaches any API that speaks OpenAI chat completions: OpenAI
// itself, OpenRouter, Ollama, vLLM and the like, told apart by base URL and key. It
// owns the HTTP exchange and nothing else: bodies pass through as bytes, and what a
// reply means is the gateway's business. It makes no retries.
package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"agentos/gateway"
	"agentos/internal/clock"
	"agentos/internal/problem"
)

const (
	// maxErrorBody is how much of an error's body is read.
	maxErrorBody = 64 << 10
	// maxRetryAfter bounds what a header may ask for: an absurd one must not park
	// a run for years.
	maxRetryAfter = 24 * time.Hour
)

// Config says where the API is and how to reach it.
type Config struct {
	// BaseURL is what "/chat/completions" is appended to, such as
	// "https://api.openai.com/v1". A query, such as an api-version, is kept.
	BaseURL string
	// APIKey is sent as a bearer token; empty sends none (local servers).
	APIKey string
	// Client makes the requests. Required. Its redirect policy is not used:
	// redirects are refused, since following one would carry the conversation,
	// and on some the key, to a host nobody configured.
	Client *http.Client
	// Clock reads Retry-After headers that hold a date. Required.
	Clock clock.Clock
}

// Provider is one API. It is safe for concurrent use.
type Provider struct {
	url    string
	key    string
	client *http.Client
	clock  clock.Clock
}

// New returns a Provider or an invalid_settings error. The error never shows the
// key or the URL, which may hold one.
func New(cfg Config) (*Provider, error) {
	if cfg.Client == nil || cfg.Clock == nil {
		return nil, problem.New(problem.Internal, "the model provider needs Client and Clock")
	}
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, problem.New(problem.InvalidSettings,
			`the base URL of a model provider must look like "https://host/v1", without user name and fragment`)
	}
	for _, c := range []byte(cfg.APIKey) {
		if c <= ' ' || c >= 0x7f {
			return nil, problem.New(problem.InvalidSettings,
				"the API key of a model provider holds a space, line end or other character that a header cannot carry")
		}
	}
	client := *cfg.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Provider{url: u.JoinPath("chat/completions").String(), key: cfg.APIKey, client: &client, clock: cfg.Clock}, nil
}

// Complete implements gateway.Provider. When ctx ends it returns an error that
// wraps the cause.
func (p *Provider) Complete(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, problem.Wrap(err, problem.Internal, "the request to the model provider could not be made")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "agentos")
	if p.key != "" {
		req.Header.Set("Authorization", "Bearer "+p.key)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, failed(ctx, "no answer from the model provider", err)
	}
	defer resp.Body.Close() //nolint:errcheck // the body was read, or is of no more use
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, p.refused(ctx, resp)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, gateway.MaxBody+1))
	if err != nil {
		return nil, failed(ctx, "the connection broke within the model provider's answer", err)
	}
	if len(raw) > gateway.MaxBody {
		return nil, problem.New(problem.ModelError, "the answer is longer than %d bytes", gateway.MaxBody)
	}
	return raw, nil
}

// refused is the failure of an answer with another status than 2xx. A body that
// cannot be read does not hide the status.
func (p *Provider) refused(ctx context.Context, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("model provider: %w", context.Cause(ctx))
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return problem.New(problem.ModelError, "HTTP %d: redirects are not followed; correct the base URL", resp.StatusCode)
	}
	return gateway.StatusError(resp.StatusCode, body, retryAfter(resp.Header.Get("Retry-After"), p.clock.Now()))
}

// failed is the failure of an exchange that err cut short. The URL that the
// client puts in its errors is left out, since a base URL may hold a key.
func failed(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("model provider: %w", context.Cause(ctx))
	}
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	if t := net.Error(nil); errors.As(err, &t) && t.Timeout() {
		return gateway.ConnectionError(what + ": timed out")
	}
	return gateway.ConnectionError(what + ": " + err.Error())
}

// retryAfter reads a Retry-After header (RFC 9110, 10.2.3): seconds or a date.
// Zero stands for none, one in the past and one that is neither.
func retryAfter(header string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseInt(header, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		d = time.Duration(min(seconds, int64(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}
