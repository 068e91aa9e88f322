package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"agentos/runtime/store"
)

// Document reads a document of an environment. All are in the first partition.
func (s *Store) Document(ctx context.Context, env, name string) (store.Document, error) {
	return s.readDocument(ctx, s.partition(0).document(env, name))
}

func (s *Store) readDocument(ctx context.Context, key string) (store.Document, error) {
	reply, err := s.command(ctx, "read document", "hmget", key, "n", "t")
	if err != nil {
		return store.Document{}, err
	}
	row := list(reply)
	d := store.Document{Version: number(row, 0)}
	if t := text(row, 1); t != "" {
		d.Text = json.RawMessage(t)
	}
	return d, nil
}

// SetDocument replaces a document of an environment.
func (s *Store) SetDocument(ctx context.Context, env, name string, d store.Document) error {
	if err := d.Check(name); err != nil {
		return err
	}
	k := s.partition(0)
	reply, err := s.write(ctx, "set document", s.scripts.document, []string{k.document(env, name)}, k.base, d.Version-1, d.Version, []byte(d.Text))
	if err != nil {
		return err
	}
	if row := list(reply); number(row, 0) == 0 {
		return fmt.Errorf("set document %s: version %d is there: %w", name, number(row, 1), store.ErrConflict)
	}
	return nil
}

// documentPart begins the Part of a trace of a document; its key without the
// prefix follows.
const documentPart = "document "

// inspectDocument reads a document as those who need it will.
func (s *Store) inspectDocument(ctx context.Context, rest string) (in store.Inspection, err error) {
	d, err := s.readDocument(ctx, s.partition(0).base+rest)
	if err != nil || d.Version == 0 && d.Text == nil {
		return in, err
	}
	parts := strings.SplitN(rest, ":", 3)
	env, name := unescape(parts[1]), unescape(parts[2])
	if fault := d.Check(name); fault != nil {
		in.Findings = append(in.Findings, store.Found(store.DocumentDamaged, "", "", fmt.Sprintf("of environment %q: %v", env, fault)))
	}
	return in, nil
}
