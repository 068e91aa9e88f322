package server

import (
	"context"
	"log/slog"
	"net/http"

	"agentos/api"
	"agentos/api/auth"
)

func (s *Server) listKeys(ctx context.Context, _ nothing) (reply, error) {
	keys, err := s.cfg.Keys.List(ctx)
	if err != nil {
		return reply{}, err
	}
	return reply{body: api.KeyList{Keys: keys}}, nil
}

// createKeyInput is a request for a key.
type createKeyInput struct {
	by   auth.Actor
	body api.CreateKey
}

// actor is who makes the request, and from where.
func (in *input) actor() auth.Actor {
	return auth.Actor{Name: in.principal(), From: from(in.c.Request())}
}

func readCreateKey(in *input) createKeyInput {
	r := createKeyInput{by: in.actor()}
	in.env()
	in.body("CreateKey", &r.body)
	return r
}

func (s *Server) createKey(ctx context.Context, in createKeyInput) (reply, error) {
	ctx, cancel := change(ctx)
	defer cancel()
	made, err := s.cfg.Keys.Create(ctx, in.by, in.body)
	if err != nil {
		return reply{}, err
	}
	s.cfg.Log.InfoContext(ctx, "API key created", slog.String("created_key_id", made.Key.ID), slog.String("name", made.Key.Name),
		slog.Any("roles", made.Key.Roles), slog.Any("groups", made.Key.Groups), slog.String("by", in.by.Name))
	return reply{status: http.StatusCreated, body: made}, nil
}

// revokeKeyInput names a key to revoke.
type revokeKeyInput struct {
	by    auth.Actor
	id    string
	force bool
}

func readRevokeKey(in *input) revokeKeyInput {
	in.env()
	r := revokeKeyInput{by: in.actor(), id: in.param("key"), force: in.oneOf("force", "true", "false") == "true"}
	in.noBody()
	return r
}

func (s *Server) revokeKey(ctx context.Context, in revokeKeyInput) (reply, error) {
	ctx, cancel := change(ctx)
	defer cancel()
	k, err := s.cfg.Keys.Revoke(ctx, in.by, in.id, in.force)
	if err != nil {
		return reply{}, err
	}
	s.cfg.Log.InfoContext(ctx, "API key revoked", slog.String("revoked_key_id", k.ID), slog.String("name", k.Name), slog.String("by", in.by.Name))
	return reply{body: k}, nil
}

func toMe(p auth.Principal) api.Me {
	out := api.Me{Name: p.Name, Roles: []string{}, Groups: append([]string{}, p.Groups...), KeyID: p.KeyID}
	for _, r := range p.Effective() {
		out.Roles = append(out.Roles, string(r))
	}
	return out
}
