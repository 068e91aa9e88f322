package file

import (
	"context"
	"fmt"

	"agentos/runtime/store"
)

// Orders reads the orders of an environment.
func (s *Store) Orders(ctx context.Context, env string) (store.Orders, error) {
	return read(ctx, s, func(t *txn) (store.Orders, error) { return t.orders(env) })
}

func (t *txn) orders(env string) (o store.Orders, err error) {
	err = t.one("SELECT version, text FROM orders WHERE env = ?", env).Scan(&o.Version, (*[]byte)(&o.Text))
	if isNone(err) {
		return store.Orders{}, nil
	}
	return o, err
}

// SetOrders replaces the orders of an environment.
func (s *Store) SetOrders(ctx context.Context, env string, o store.Orders) error {
	_, err := change(ctx, s, func(t *txn) (struct{}, error) {
		was, err := t.orders(env)
		if err == nil && was.Version != o.Version-1 {
			err = fmt.Errorf("set orders: version %d is there: %w", was.Version, store.ErrConflict)
		}
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, t.exec(`INSERT INTO orders (env, version, text) VALUES (?, ?, ?)
			ON CONFLICT (env) DO UPDATE SET version = excluded.version, text = excluded.text`, env, o.Version, blob(o.Text))
	})
	return err
}
