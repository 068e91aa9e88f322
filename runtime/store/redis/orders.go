package redis

import (
	"context"
	"encoding/json"
	"fmt"

	"agentos/runtime/store"
)

// Orders reads the orders of an environment from the first partition, which has
// them before the others.
func (s *Store) Orders(ctx context.Context, env string) (store.Orders, error) {
	name := escape(env)
	reply, err := s.command(ctx, "read orders", "hmget", s.partition(0).orders(), name+" n", name+" o")
	if err != nil {
		return store.Orders{}, err
	}
	row := list(reply)
	o := store.Orders{Version: number(row, 0)}
	if t := text(row, 1); t != "" {
		o.Text = json.RawMessage(t)
	}
	return o, nil
}

// SetOrders replaces the orders in the first partition, which settles who was
// first, and then in the others. When one of these fails, repeating the change
// brings them level.
func (s *Store) SetOrders(ctx context.Context, env string, o store.Orders) error {
	seen := any(o.Version - 1)
	for i := range s.cfg.Partitions {
		k := s.partition(i)
		reply, err := s.read(ctx, "set orders", s.scripts.order, []string{k.orders()}, k.base, escape(env), seen, o.Version, []byte(o.Text))
		if err != nil {
			return err
		}
		row := list(reply)
		if i == 0 && number(row, 0) == 0 {
			return fmt.Errorf("set orders: version %d is there: %w", number(row, 1), store.ErrConflict)
		}
		seen = ""
	}
	return nil
}
