package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"agentos/internal/rawjson"
	"agentos/runtime/store"
)

// Store is what a chain needs of the store.
type Store interface {
	AppendLog(ctx context.Context, name string, seen int64, items ...store.LogItem) (known []string, err error)
	LogEnd(ctx context.Context, name string) (n int64, last json.RawMessage, err error)
	Log(ctx context.Context, name string, after int64, limit int) ([]json.RawMessage, error)
}

// Chain appends to the chain of one environment and reads it. Any number of
// processes may append to the same one. It is safe for concurrent use.
type Chain struct {
	store Store
	env   string

	mu sync.Mutex // guards the fields below, and that one append follows another
	// n and head are the end of the chain as this process knows it; known says
	// that it has looked.
	known bool
	n     int64
	head  string
}

// NewChain returns the chain of env.
func NewChain(s Store, env string) *Chain { return &Chain{store: s, env: env} }

// name is the log of the chain.
func (c *Chain) name() string { return "audit " + c.env }

// digest is what the next line says of a line.
func digest(line []byte) string {
	sum := sha256.Sum256(line)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Append adds the entries whose keys the chain does not have yet, in order. When it
// returns nil all of them are in the chain; after an error it may be repeated.
// Errors are those of the store.
func (c *Chain) Append(ctx context.Context, list ...Keyed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(list) > 0 {
		if !c.known {
			if err := c.look(ctx); err != nil {
				return err
			}
		}
		items, head, err := c.link(list)
		if err != nil {
			return err
		}
		known, err := c.store.AppendLog(ctx, c.name(), c.n, items...)
		switch {
		case errors.Is(err, store.ErrConflict):
			c.known = false // another process was faster
		case err != nil:
			c.known = false
			return fmt.Errorf("append to the audit of %s: %w", c.env, err)
		case len(known) > 0:
			list = slices.DeleteFunc(slices.Clone(list), func(k Keyed) bool { return slices.Contains(known, k.Key) })
		default:
			c.n, c.head = c.n+int64(len(items)), head
			return nil
		}
	}
	return nil
}

// look reads the end of the chain.
func (c *Chain) look(ctx context.Context) error {
	n, last, err := c.store.LogEnd(ctx, c.name())
	if err != nil {
		return fmt.Errorf("read the end of the audit of %s: %w", c.env, err)
	}
	c.known, c.n, c.head = true, n, ""
	if n > 0 {
		c.head = digest(last)
	}
	return nil
}

// link makes the lines that follow the end of the chain.
func (c *Chain) link(list []Keyed) (items []store.LogItem, head string, err error) {
	head = c.head
	for i, k := range list {
		e := k.Entry
		e.N, e.Prev, e.Env = c.n+int64(i)+1, head, c.env
		line, err := rawjson.Marshal(e)
		if err != nil {
			return nil, "", fmt.Errorf("write audit entry %s: %w", k.Key, err)
		}
		items, head = append(items, store.LogItem{Key: k.Key, Text: line}), digest(line)
	}
	return items, head, nil
}

// Read returns up to limit lines after line n, byte for byte.
func (c *Chain) Read(ctx context.Context, n int64, limit int) ([]json.RawMessage, error) {
	lines, err := c.store.Log(ctx, c.name(), n, limit)
	if err != nil {
		return nil, fmt.Errorf("read the audit of %s: %w", c.env, err)
	}
	return lines, nil
}

// End returns how many entries the chain has.
func (c *Chain) End(ctx context.Context) (int64, error) {
	n, _, err := c.store.LogEnd(ctx, c.name())
	if err != nil {
		return 0, fmt.Errorf("read the end of the audit of %s: %w", c.env, err)
	}
	return n, nil
}
