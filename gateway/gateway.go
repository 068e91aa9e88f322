// Package gateway is the only way to a model. It sends OpenAI chat-completions
// requests as raw JSON to the provider that a "provider/model" name selects,
// repeats what failed for a passing reason, falls back to other models, and reads
// the many shapes of a reply in one place (ParseReply, ParseArguments).
//
// It refuses to decide anything about a run: which calls may run, what a
// correction says, how long a parked run sleeps. Bytes of messages, tools and
// arguments pass through unchanged in both directions. Every error that leaves it
// is redacted and shortened here, whatever the provider wrote.
//
// There is no circuit breaker: a provider that is down costs each call its quick
// attempts and then parks the run, which already keeps workers free.
package gateway

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// MaxBody is the longest request or reply in bytes.
const MaxBody = 16 << 20

// MockProvider is the provider name of the conformance kit's model; replies of
// "mock/…" are marked as such.
const MockProvider = "mock"

// Provider reaches one model API.
type Provider interface {
	// Complete sends one chat-completions request body (OpenAI shape, "model"
	// without the provider prefix) once and returns the raw body of the answer,
	// at most MaxBody bytes, not yet looked into. It returns promptly when ctx
	// ends. A failed call is a *problem.Error made by StatusError or
	// ConnectionError; its message may hold the provider's own words in full,
	// because the gateway redacts and shortens them.
	Complete(ctx context.Context, body json.RawMessage) (json.RawMessage, error)
}

// Request is one model call of a run.
type Request struct {
	// Model is "provider/model"; what follows the first slash goes to the provider.
	Model string
	// Fallback are models tried in order when the one before is unavailable.
	Fallback []string
	// Messages are the history, sent byte for byte.
	Messages []json.RawMessage
	// Tools are {"type":"function","function":{…}} in a stable order; with none
	// the key is absent, since providers refuse an empty list.
	Tools []json.RawMessage
	// Extra are further members, appended in order, such as response_format. They
	// must not repeat model, messages or tools.
	Extra []rawjson.Field
}

// Config is what a Gateway is made of.
type Config struct {
	// Providers are the reachable APIs by the name before the slash.
	Providers map[string]Provider
	// StandIn answers for every provider that is not in Providers. It is for
	// development only; nil, the default, makes such a model unavailable.
	StandIn Provider
	// Clock is required.
	Clock clock.Clock
	// Rand returns a random number in [0,n), for jitter. Required.
	Rand func(n int64) int64
	// Redact replaces secrets, in plain or encoded form, in text that users and
	// logs see. Required: providers like to repeat keys in their errors.
	Redact func(string) string
	// MaxWait is the longest pause before another attempt that may keep the
	// caller waiting; 2s by default. A longer one is left to the caller.
	MaxWait time.Duration
	// Attempts is how often one model is tried; 4 by default.
	Attempts int
}

// Gateway sends requests to models. It has no state that changes and is safe for
// concurrent use.
type Gateway struct {
	cfg Config
}

// New returns a Gateway, or an error that names what cfg lacks.
func New(cfg Config) (*Gateway, error) {
	if cfg.Clock == nil || cfg.Rand == nil || cfg.Redact == nil {
		return nil, problem.New(problem.Internal, "the gateway needs Clock, Rand and Redact")
	}
	for name, p := range cfg.Providers {
		if p == nil || name == "" || strings.Contains(name, "/") {
			return nil, problem.New(problem.InvalidSettings, "model provider %q: a name without a slash and a provider are needed", name)
		}
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = 2 * time.Second
	}
	if cfg.Attempts <= 0 {
		cfg.Attempts = 4
	}
	cfg.Providers = maps.Clone(cfg.Providers)
	return &Gateway{cfg: cfg}, nil
}

// Complete asks the model of r, then its fallbacks, and returns the first answer.
//
// It fails with model_error when asking again cannot help (the request or the key
// is refused, the answer makes no sense), and with model_unavailable when it can.
// RetryAfter of the latter says when; zero means that only a change of settings
// helps. A model_error of r.Model is final: falling back would hide a fault that a
// person has to mend. When ctx ends, the error wraps its cause.
func (g *Gateway) Complete(ctx context.Context, r Request) (Reply, error) {
	models := append([]string{r.Model}, r.Fallback...)
	_, reply, err := g.ask(ctx, models, r.body)
	return reply, err
}

// body encodes r for the model called name at its provider.
func (r Request) body(name string) json.RawMessage {
	fields := []rawjson.Field{
		{Name: "model", Value: rawjson.Quote(name)},
		{Name: "messages", Value: array(r.Messages)},
	}
	if len(r.Tools) > 0 {
		fields = append(fields, rawjson.Field{Name: "tools", Value: array(r.Tools)})
	}
	return rawjson.Object(append(fields, r.Extra...))
}

// array encodes elements as a JSON array, byte for byte.
func array(elements []json.RawMessage) json.RawMessage {
	size := 2
	for _, e := range elements {
		size += len(e) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']')
}

// Raw forwards a chat-completions request of a program, checked strictly and
// encoded anew, so that what was checked is what the provider reads. It returns
// the provider's body as it came and the reply read from it. Besides the errors of
// Complete it returns invalid_json, invalid_request and body_too_large.
func (g *Gateway) Raw(ctx context.Context, body json.RawMessage) (json.RawMessage, Reply, error) {
	fields, model, err := checkRaw(body)
	if err != nil {
		return nil, Reply{}, err
	}
	return g.ask(ctx, []string{model}, func(name string) json.RawMessage {
		out := slices.Clone(fields)
		for i := range out {
			if out[i].Name == "model" {
				out[i].Value = rawjson.Quote(name)
			}
		}
		return rawjson.Object(out)
	})
}

// checkRaw returns the members of body and its model.
func checkRaw(body json.RawMessage) ([]rawjson.Field, string, error) {
	if len(body) > MaxBody {
		return nil, "", problem.New(problem.BodyTooLarge, "the request is longer than %d bytes", MaxBody)
	}
	if err := rawjson.Check(body); err != nil {
		return nil, "", problem.New(problem.InvalidJSON, "the request is no valid JSON: %v", err)
	}
	fields, err := rawjson.Fields(body)
	if err != nil {
		return nil, "", problem.New(problem.InvalidRequest, "the request: %v", err)
	}
	if err := checkNames(fields); err != nil {
		return nil, "", err
	}
	if s := string(rawjson.Get(body, "stream")); s != "" && s != "false" && s != "null" {
		return nil, "", problem.New(problem.InvalidRequest, "stream is not supported yet; leave it out or set it to false")
	}
	if k := rawjson.Kind(rawjson.Get(body, "messages")); k != "array" {
		return nil, "", problem.New(problem.InvalidRequest, "messages must be a list")
	}
	model, _ := rawjson.Text(rawjson.Get(body, "model"))
	if provider, name, ok := strings.Cut(model, "/"); !ok || provider == "" || name == "" {
		return nil, "", problem.New(problem.InvalidRequest, `model must be a text "provider/model", such as "openai/gpt-4o-mini"`)
	}
	return fields, model, nil
}

// checkNames refuses member names that differ from another, or from one that is
// checked here, only in case: some servers read JSON without regard to case and
// would see a request that nobody checked.
func checkNames(fields []rawjson.Field) error {
	seen := map[string]string{"model": "model", "messages": "messages", "stream": "stream", "tools": "tools"}
	for _, f := range fields {
		folded := strings.ToLower(f.Name)
		if other, ok := seen[folded]; ok && other != f.Name {
			return problem.New(problem.InvalidRequest, "%q: write %q, or leave it out", f.Name, other)
		}
		seen[folded] = f.Name
	}
	return nil
}

// Providers are the names of the configured providers, sorted.
func (g *Gateway) Providers() []string {
	return slices.Sorted(maps.Keys(g.cfg.Providers))
}

// StandsIn reports whether the mock model answers for model because its provider
// is not configured.
func (g *Gateway) StandsIn(model string) bool {
	t, err := g.route(model)
	return err == nil && t.standIn
}

// target is where a model is reached.
type target struct {
	provider Provider
	asked    string // provider/model as asked for
	answers  string // provider/model that answers
	name     string // the model at the provider
	standIn  bool
}

func (g *Gateway) route(model string) (target, *problem.Error) {
	provider, name, ok := strings.Cut(model, "/")
	if !ok || provider == "" || name == "" {
		return target{}, problem.New(problem.ModelUnavailable, `model %q names no provider; write "provider/model"`, model)
	}
	if p, ok := g.cfg.Providers[provider]; ok {
		return target{provider: p, asked: model, answers: model, name: name}, nil
	}
	if g.cfg.StandIn != nil {
		return target{provider: g.cfg.StandIn, asked: model, answers: MockProvider + "/" + name, name: name, standIn: true}, nil
	}
	known := "none"
	if names := g.Providers(); len(names) > 0 {
		known = strings.Join(names, ", ")
	}
	return target{}, problem.New(problem.ModelUnavailable,
		"model %q: provider %q is not configured; set its API key or choose another (configured: %s)", model, provider, known)
}
