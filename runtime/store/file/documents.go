package file

import (
	"bytes"
	"context"
	"fmt"

	"agentos/runtime/store"
)

// Document reads a document of an environment.
func (s *Store) Document(ctx context.Context, env, name string) (store.Document, error) {
	return read(ctx, s, func(t *txn) (store.Document, error) { return t.document(env, name) })
}

func (t *txn) document(env, name string) (d store.Document, err error) {
	err = t.one("SELECT version, text FROM documents WHERE env = ? AND name = ?", env, name).Scan(&d.Version, (*[]byte)(&d.Text))
	if isNone(err) {
		return store.Document{}, nil
	}
	return d, err
}

// SetDocument replaces a document of an environment.
func (s *Store) SetDocument(ctx context.Context, env, name string, d store.Document) error {
	if err := d.Check(name); err != nil {
		return err
	}
	return s.do(ctx, func(t *txn) error {
		was, err := t.document(env, name)
		switch {
		case err != nil:
			return err
		case was.Version == d.Version && bytes.Equal(was.Text, d.Text):
			return nil
		case was.Version != d.Version-1:
			return fmt.Errorf("set document %s: version %d is there: %w", name, was.Version, store.ErrConflict)
		}
		return t.exec(`INSERT INTO documents (env, name, version, text) VALUES (?, ?, ?, ?)
			ON CONFLICT (env, name) DO UPDATE SET version = excluded.version, text = excluded.text`, env, name, d.Version, blob(d.Text))
	})
}
