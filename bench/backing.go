package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"agentos/internal/clock"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/redis"
)

// retention is what agentos serve keeps finished runs for; keeping it costs
// commands.
const retention = 30 * 24 * time.Hour

// The stores by name.
const (
	redisStore = "redis"
	fileStore  = "file"
)

// backing is where one store keeps its data. It can be opened again and again.
type backing struct {
	name   string
	dir    string
	path   string  // of the file, "" for Redis
	server *server // nil for the file
}

// newBacking makes an empty one in a directory of its own under dir.
func newBacking(ctx context.Context, name, dir, fsync string) (*backing, error) {
	dir, err := os.MkdirTemp(dir, name+"-")
	if err != nil {
		return nil, err
	}
	if name == fileStore {
		return &backing{name: name, dir: dir, path: filepath.Join(dir, "agentos.db")}, nil
	}
	s, err := startServer(ctx, dir, fsync)
	return &backing{name: name, dir: dir, server: s}, err
}

// close ends the server and deletes the data.
func (b *backing) close() error {
	var err error
	if b.server != nil {
		err = b.server.close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// url is what agentos serve --store takes.
func (b *backing) url() string {
	if b.server == nil {
		return "file:" + b.path
	}
	return "redis://" + b.server.addr
}

// open opens the store.
func (b *backing) open(ctx context.Context) (*counted, error) { return openStore(ctx, b.url()) }

func openStore(ctx context.Context, url string) (*counted, error) {
	if path, ok := strings.CutPrefix(url, "file:"); ok {
		s, err := file.Open(ctx, file.Config{Path: path, Clock: clock.System{}, Retention: retention})
		return &counted{Store: s}, err
	}
	s, err := redis.Open(ctx, redis.Config{URL: url, Retention: retention, Log: slog.New(slog.DiscardHandler)})
	return &counted{Store: s, driver: s}, err
}

// written is a count of bytes written that grows with every transition: the
// append-only file of Redis, or what this process has given to write(2), which for
// the file is its write-ahead log and the requests to the tool.
func (b *backing) written(ctx context.Context) (int64, error) {
	if b.server == nil {
		return procNumber("/proc/self/io", "wchar:")
	}
	info, err := b.server.info(ctx, "persistence")
	if err != nil {
		return 0, err
	}
	return info["aof_current_size"] + info["aof_buffer_length"], nil
}

// size is what the data take while no process has the store open: keys and bytes
// of memory in Redis, bytes of the file.
func (b *backing) size(ctx context.Context) (keys, bytes int64, err error) {
	if b.server == nil {
		info, err := os.Stat(b.path)
		if err != nil {
			return 0, 0, err
		}
		return 0, info.Size(), nil
	}
	if err := b.server.alone(ctx); err != nil {
		return 0, 0, err
	}
	info, err := b.server.info(ctx, "memory")
	if err != nil {
		return 0, 0, err
	}
	keys, err = b.server.client.DBSize(ctx).Result()
	return keys, info["used_memory"], err
}

// counted counts the operations of a store that a run needs. Claims and renewals
// are not counted: one of them serves all runs of a process.
type counted struct {
	store.Store
	driver *redis.Store // nil for the file
	n      atomic.Int64
}

func (c *counted) trips() int64 { return c.n.Load() }

// driverTrips is the driver's own count, claims and renewals included.
func (c *counted) driverTrips() int64 {
	if c.driver == nil {
		return 0
	}
	return c.driver.RoundTrips()
}

// Create counts.
func (c *counted) Create(ctx context.Context, r store.Create) (store.Created, error) {
	c.n.Add(1)
	return c.Store.Create(ctx, r)
}

// Commit counts.
func (c *counted) Commit(ctx context.Context, l store.Lease, tx store.Tx) (store.Committed, error) {
	c.n.Add(1)
	return c.Store.Commit(ctx, l, tx)
}

// Decide counts.
func (c *counted) Decide(ctx context.Context, d store.Decide) (store.Decided, error) {
	c.n.Add(1)
	return c.Store.Decide(ctx, d)
}

// Run counts.
func (c *counted) Run(ctx context.Context, id string) (store.View, error) {
	c.n.Add(1)
	return c.Store.Run(ctx, id)
}

// Journal counts.
func (c *counted) Journal(ctx context.Context, id string, after int64) ([]journal.Entry, error) {
	c.n.Add(1)
	return c.Store.Journal(ctx, id, after)
}

// Hold counts.
func (c *counted) Hold(ctx context.Context, id string) (store.HoldView, error) {
	c.n.Add(1)
	return c.Store.Hold(ctx, id)
}

// Watch counts: it subscribes.
func (c *counted) Watch(ctx context.Context, id string) (<-chan struct{}, error) {
	c.n.Add(1)
	return c.Store.Watch(ctx, id)
}

// procNumber reads the number after a label in a file of /proc.
func procNumber(path, label string) (int64, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(raw), label)
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 {
		return 0, fmt.Errorf("%s has no %s", path, label)
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("%s: %s", path, label), err)
	}
	return n, nil
}
