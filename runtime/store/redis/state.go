package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"agentos/runtime/store"
)

// stateKey returns the hash that holds a scope, and the run it belongs to or "".
func (s *Store) stateKey(scope string) (key, run string) {
	if id, ok := strings.CutPrefix(scope, "run/"); ok {
		return s.keysOf(id).runState(id), id
	}
	return s.keysOf(scope).scope(scope), ""
}

// GetState reads a value of agent code.
func (s *Store) GetState(ctx context.Context, scope, key string) (json.RawMessage, error) {
	name, _ := s.stateKey(scope)
	reply, err := s.command(ctx, "get state", "hget", name, key)
	if err != nil {
		return nil, err
	}
	value, ok := reply.(string)
	if !ok {
		return nil, fmt.Errorf("state %q of %q: %w", key, scope, store.ErrNotFound)
	}
	return json.RawMessage(value), nil
}

// PutState writes a value of agent code. That of a run lives as long as the run.
func (s *Store) PutState(ctx context.Context, scope, key string, value json.RawMessage) error {
	name, run := s.stateKey(scope)
	if run == "" {
		_, err := s.command(ctx, "put state", "hset", name, key, []byte(value))
		return err
	}
	k := s.keysOf(run)
	_, err := s.read(ctx, "put state", s.scripts.put, []string{name, k.run(run)}, k.base, key, []byte(value))
	return err
}

// DeleteState removes a value of agent code, if it is there.
func (s *Store) DeleteState(ctx context.Context, scope, key string) error {
	name, _ := s.stateKey(scope)
	_, err := s.command(ctx, "delete state", "hdel", name, key)
	return err
}
