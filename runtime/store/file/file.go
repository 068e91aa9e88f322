// Package file is the embedded store: one SQLite file, written by one goroutine
// of one process, or nothing but memory. It owns the file's schema, its lock and
// the group commit; what an operation promises is said in package store. Only
// cmd/agentos names it.
//
// Writes go through a channel to the writer, which puts what has gathered there
// into one transaction: operations that come at the same time share an fsync, an
// operation that comes alone waits for nobody. Each runs inside a savepoint, so
// that one that fails takes nothing else with it, and none is answered before the
// transaction is on disk. Reads run beside the writer on connections of their own
// and see what was answered.
package file

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentos/internal/clock"
	"agentos/runtime/store"
)

// readers is the number of connections that read at the same time.
const readers = 4

// Config says where a store keeps its runs.
type Config struct {
	// Path is the file; its directory is made when it is missing. "" and
	// ":memory:" keep runs in memory only.
	Path string
	// Clock is the store's clock; required.
	Clock clock.Clock
	// Retention is how long finished runs are kept; 0 keeps them for ever.
	Retention time.Duration
	// Log gets what is told about runs that cannot be read; nil drops it.
	Log *slog.Logger
}

// Store keeps runs in a file. It is a store.Store.
type Store struct {
	clock     clock.Clock
	retention int64 // ms
	memory    bool

	lock *os.File
	// opened are the databases and connections to close, in the order of opening.
	opened []io.Closer
	// idle are the readers nobody uses; nil for memory, where the writer reads.
	idle chan *conn

	ops       chan *op
	closing   chan struct{}
	stopped   chan struct{}
	closeOnce sync.Once
	closeErr  error
	// failed says that the newest transaction could not be written.
	failed atomic.Bool
	// swept is when the retention was last looked after; the writer's own.
	swept int64

	// aside are the runs that Claim could not read, by id.
	aside sync.Map
	log   *slog.Logger

	bell bell
}

var _ store.Store = (*Store)(nil)

// Open opens the store and makes the file when there is none. The file stays
// locked until Close or the end of the process: opening it a second time gives
// store.ErrLocked with the code store_locked. A file written by a newer version,
// or by another program, is refused. ctx ends the opening, not the store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Clock == nil {
		return nil, errors.New("store file: no clock")
	}
	s := &Store{
		clock: cfg.Clock, retention: cfg.Retention.Milliseconds(),
		memory: cfg.Path == "" || cfg.Path == ":memory:",
		ops:    make(chan *op), closing: make(chan struct{}), stopped: make(chan struct{}), log: cfg.Log,
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	w, err := s.open(ctx, cfg.Path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", cfg.Path, err), s.release())
	}
	go s.write(context.WithoutCancel(ctx), w)
	return s, nil
}

// open takes the lock and makes the connections; it returns the writer's.
func (s *Store) open(ctx context.Context, path string) (*conn, error) {
	var err error
	if !s.memory {
		if path, err = place(path); err != nil {
			return nil, err
		}
		if s.lock, err = lock(ctx, path); err != nil {
			return nil, err
		}
	}
	w, err := s.connect(ctx, source(path, s.memory, false), 1)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, w[0]); err != nil || s.memory {
		return w[0], err
	}
	rs, err := s.connect(ctx, source(path, false, true), readers)
	if err != nil {
		return nil, err
	}
	s.idle = make(chan *conn, readers)
	for _, r := range rs {
		s.idle <- r
	}
	return w[0], nil
}

// connect makes n connections to the source.
func (s *Store) connect(ctx context.Context, source string, n int) ([]*conn, error) {
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, db)
	out := make([]*conn, n)
	for i := range out {
		c, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		s.opened = append(s.opened, c)
		out[i] = &conn{c: c, stmts: map[string]*sql.Stmt{}}
	}
	return out, nil
}

// Close lets the operations under way end, closes the file and gives up the lock.
// Later operations get store.ErrUnavailable. It may be called more than once.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		<-s.stopped
		if s.idle != nil {
			for range readers { // wait for reads under way
				<-s.idle
			}
		}
		s.bell.close()
		s.closeErr = s.release()
	})
	return s.closeErr
}

// release closes what open has opened, the newest first, so that the writer is
// the last to leave and tidies the file.
func (s *Store) release() error {
	var errs []error
	for _, c := range slices.Backward(s.opened) {
		errs = append(errs, c.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// Health reports the driver, and the runs that Claim has set aside since the file
// was opened. After a write that failed it fails until a write
// succeeds again, which it tries itself.
func (s *Store) Health(ctx context.Context) (store.Health, error) {
	h := store.Health{Driver: "file", Durable: true}
	if s.memory {
		h = store.Health{Driver: "memory", Warnings: []string{
			"runs are kept in memory only and are lost when the process ends; set a store file or Redis to keep them",
		}}
	}
	if s.failed.Load() {
		err := s.do(ctx, func(t *txn) error { return t.exec("UPDATE probe SET at = ?", t.now) })
		return h, err
	}
	aside, err := read(ctx, s, func(t *txn) ([]string, error) {
		var at int64
		if err := t.one("SELECT at FROM probe").Scan(&at); err != nil {
			return nil, err
		}
		return t.aside(s)
	})
	if len(aside) > 0 {
		h.Warnings = append(h.Warnings, store.AsideWarning(int64(len(aside)), aside))
	}
	return h, err
}

// aside returns the runs that Claim could not read, as far as that is so still.
func (t *txn) aside(s *Store) (ids []string, err error) {
	s.aside.Range(func(key, _ any) bool {
		id, _ := key.(string) //nolint:errcheck // wait stores nothing else
		_, found := t.run(id)
		switch {
		case errors.Is(found, store.ErrDamaged):
			ids = append(ids, id)
		case found == nil || errors.Is(found, store.ErrNotFound):
			s.aside.Delete(id)
		default:
			err = found
		}
		return err == nil
	})
	slices.Sort(ids)
	return ids, err
}
