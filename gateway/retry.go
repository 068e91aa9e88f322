package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentos/internal/problem"
)

// firstPause is the pause before the second attempt; each further one doubles.
const firstPause = 250 * time.Millisecond

// ask tries models in order. encode makes the request body for the name of a
// model at its provider.
func (g *Gateway) ask(ctx context.Context, models []string, encode func(name string) json.RawMessage) (json.RawMessage, Reply, error) {
	start := g.cfg.Clock.Now()
	attempts := 0
	var failures []*problem.Error
	for i, model := range models {
		t, failure := g.route(model)
		if failure == nil {
			raw, reply, n, err := g.askOne(ctx, t, encode(t.name))
			attempts += n
			if err == nil {
				reply.Attempts, reply.Latency = attempts, g.cfg.Clock.Now().Sub(start)
				return raw, reply, nil
			}
			if ctx.Err() != nil {
				return nil, Reply{}, fmt.Errorf("model call: %w", context.Cause(ctx))
			}
			failure = problem.From(err)
		}
		failures = append(failures, failure)
		if i == 0 && failure.Code != problem.ModelUnavailable {
			break
		}
	}
	return nil, Reply{}, merge(failures)
}

// askOne tries one model until it answers, refuses, or needs a longer pause than
// the caller may be kept waiting. It returns how often it tried.
func (g *Gateway) askOne(ctx context.Context, t target, body json.RawMessage) (json.RawMessage, Reply, int, error) {
	for n := 1; ; n++ {
		raw, reply, err := g.once(ctx, t, body)
		if err == nil || ctx.Err() != nil {
			return raw, reply, n, err
		}
		failure := g.shown(err, t.asked, n)
		if failure.Code != problem.ModelUnavailable {
			return nil, Reply{}, n, failure
		}
		pause := g.pause(n, failure.RetryAfter)
		if n >= g.cfg.Attempts || failure.RetryAfter > g.cfg.MaxWait {
			failure.RetryAfter = pause
			return nil, Reply{}, n, failure
		}
		select {
		case <-ctx.Done():
			return nil, Reply{}, n, ctx.Err()
		case <-g.cfg.Clock.After(pause):
		}
	}
}

// once makes one attempt.
func (g *Gateway) once(ctx context.Context, t target, body json.RawMessage) (json.RawMessage, Reply, error) {
	raw, err := t.provider.Complete(ctx, body)
	if err != nil {
		return nil, Reply{}, err
	}
	reply, err := ParseReply(raw)
	if err != nil {
		return nil, Reply{}, err
	}
	reply.Model = t.answers
	reply.Mock = strings.HasPrefix(t.answers, MockProvider+"/")
	return raw, reply, nil
}

// shown makes err fit to be shown. The cause is dropped on purpose: it has not
// been redacted and would reach the log.
func (g *Gateway) shown(err error, model string, attempts int) *problem.Error {
	p := problem.From(err)
	message := model + ": " + shorten(g.cfg.Redact(p.Message))
	if attempts > 1 {
		message = fmt.Sprintf("%s (attempt %d)", message, attempts)
	}
	return &problem.Error{Code: p.Code, Message: message, RetryAfter: p.RetryAfter}
}

// pause is how long to wait after attempt n: what the provider asked for or a
// doubling pause, whichever is longer, and up to a quarter more, so that many
// runs that failed together do not come back together.
func (g *Gateway) pause(n int, asked time.Duration) time.Duration {
	pause := g.cfg.MaxWait
	if n < 16 { // beyond, the shift would overflow
		pause = min(pause, firstPause<<(n-1))
	}
	pause = max(pause, asked)
	return pause + time.Duration(g.cfg.Rand(int64(pause)/4+1))
}

// merge makes one error of the failures of all models: the first when it is
// final, otherwise model_unavailable until the first of them may work again.
func merge(failures []*problem.Error) *problem.Error {
	if len(failures) == 1 {
		return failures[0]
	}
	out := &problem.Error{Code: problem.ModelUnavailable}
	texts := make([]string, len(failures))
	for i, f := range failures {
		texts[i] = f.Message
		if f.RetryAfter > 0 && (out.RetryAfter == 0 || f.RetryAfter < out.RetryAfter) {
			out.RetryAfter = f.RetryAfter
		}
	}
	out.Message = strings.Join(texts, "; ")
	return out
}
