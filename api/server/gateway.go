package server

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/runtime/store"
)

// tokenInput carries the run token of a request.
type tokenInput struct {
	token string
	body  json.RawMessage
}

func readRunToken(in *input) tokenInput {
	return tokenInput{token: bearer(in.c.Request())}
}

func readChat(in *input) tokenInput {
	r := readRunToken(in)
	// Whoever has no token is not read to the end.
	if _, _, err := in.s.cfg.Tokens.Verify(r.token); err != nil && in.err == nil {
		in.err = unauthorized(err)
	}
	in.body("", &r.body)
	return r
}

func unauthorized(cause error) error {
	return problem.Wrap(cause, problem.Unauthorized, "this route needs Authorization: Bearer with the token of a run that is being worked on")
}

var errTokenUsedUp = errors.New("the run has moved on from the token's lease")

// runOfToken returns the run that a token stands for. It must be at work under the
// very lease the token was issued for.
func (s *Server) runOfToken(ctx context.Context, token string) (store.View, error) {
	run, epoch, err := s.cfg.Tokens.Verify(token)
	if err != nil {
		return store.View{}, unauthorized(err)
	}
	v, err := s.cfg.Engine.View(ctx, s.cfg.Env, run)
	if problem.CodeOf(err) == problem.RunNotFound {
		return store.View{}, unauthorized(err)
	}
	if err != nil {
		return store.View{}, err
	}
	if v.Epoch != epoch || v.Status != store.Running {
		return store.View{}, unauthorized(errTokenUsedUp)
	}
	return v, nil
}

// models are the models a run may use: those of its agent's manifest.
func (s *Server) models(v store.View) ([]string, error) {
	a, err := s.cfg.Engine.Agent(v.Env, v.Agent)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range a.Manifest.Models {
		out = append(out, m.Use)
		out = append(out, m.Fallback...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// chat forwards a request of a run's program to the model it names. The call is
// not recorded: only the worker that holds the run's lease writes its journal.
func (s *Server) chat(ctx context.Context, in tokenInput) (reply, error) {
	v, err := s.runOfToken(ctx, in.token)
	if err != nil {
		return reply{}, err
	}
	names, err := s.models(v)
	if err != nil {
		return reply{}, err
	}
	if name, _ := rawjson.Text(rawjson.Get(in.body, "model")); !slices.Contains(names, name) {
		return reply{}, problem.New(problem.InvalidRequest, "model %q is not one of the agent's: %s", clip(name), strings.Join(names, ", "))
	}
	raw, _, err := s.cfg.Gateway.Raw(ctx, in.body)
	if err != nil {
		return reply{}, err
	}
	return reply{run: v.ID, body: raw}, nil
}

func (s *Server) listModels(ctx context.Context, in tokenInput) (reply, error) {
	v, err := s.runOfToken(ctx, in.token)
	if err != nil {
		return reply{}, err
	}
	names, err := s.models(v)
	if err != nil {
		return reply{}, err
	}
	out := api.ModelList{Object: "list", Data: make([]api.Model, len(names))}
	for i, name := range names {
		provider, _, _ := strings.Cut(name, "/")
		out.Data[i] = api.Model{ID: name, Object: "model", OwnedBy: provider}
	}
	return reply{run: v.ID, body: out}, nil
}
