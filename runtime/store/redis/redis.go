// Package redis keeps runs in Redis: one server, Sentinel or Cluster. Every
// operation of the contract is one Lua script and one round trip. It owns the
// keys under its prefix and nothing else of the database; it is the only
// importer of go-redis and is named only by cmd/agentos.
//
// All keys of a run, of its holds and of the indexes they are in share the hash
// tag of a partition, so that a script never crosses a slot of a cluster. The
// client library never repeats a command by itself: what may be repeated is
// decided here, and writes carry an operation token by which a repeat is
// recognised.
package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/runtime/store"
)

// format is the version of the layout of keys and values. A store of another
// format is refused.
const format = "3"

// Config says which Redis and how to use it.
type Config struct {
	// URL names the server: redis://user:password@host:port/db, rediss:// for
	// TLS, redis+sentinel://host:port,host:port/db?master=name, or
	// redis+cluster://host:port,host:port; rediss+sentinel and rediss+cluster use
	// TLS. Required.
	URL string
	// Prefix begins every key and channel; default "agentos". Braces are refused.
	Prefix string
	// Partitions spreads runs over the slots of a cluster; default 1. It is
	// recorded at the first start and cannot be changed later.
	Partitions int
	// Retention is how long finished runs are kept, at least a millisecond; 0
	// keeps them for ever. Unfinished runs never expire.
	Retention time.Duration
	// WaitReplicas is how many replicas must have a write before it counts;
	// default 0. It cannot be combined with a cluster.
	WaitReplicas int
	// Log gets the warnings. Required.
	Log *slog.Logger
	// Offset is added to the server's clock in every script. Only tests set it.
	Offset func() time.Duration
}

// Store keeps runs in Redis. It is safe for concurrent use.
type Store struct {
	cfg     Config
	client  goredis.UniversalClient
	scripts scripts
	clock   clock.Clock
	news    *hub
	trips   atomic.Int64
	// turn is the partition whose notices are claimed first.
	turn atomic.Uint32

	// open is held for reading by every operation under way, and for writing by
	// Close; closed is guarded by it.
	open   sync.RWMutex
	closed bool
}

var _ store.Store = (*Store)(nil)

// Open connects to Redis and checks that the data there were laid out with the
// same format and partitions. It fails with the code invalid_settings when cfg cannot
// work, and with ErrUnavailable when Redis cannot be reached. What Health warns of is logged. The logger of the client library,
// which is one for the process, is set to cfg.Log.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	opts, err := options(&cfg)
	if err != nil {
		return nil, problem.New(problem.InvalidSettings, "%v", err)
	}
	all, err := loadScripts()
	if err != nil {
		return nil, err
	}
	goredis.SetLogger(libraryLog{cfg.Log})
	s := &Store{cfg: cfg, client: goredis.NewUniversalClient(opts), scripts: all, clock: clock.System{}}
	s.news = newHub(context.WithoutCancel(ctx), s.client, s.clock, cfg.Log)
	if err := s.checkLayout(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.warn(ctx)
	return s, nil
}

// options completes cfg and returns the options of the client for it.
func options(cfg *Config) (*goredis.UniversalOptions, error) {
	if err := complete(cfg); err != nil {
		return nil, err
	}
	opts, err := parseURL(cfg.URL)
	if err == nil && cfg.WaitReplicas > 0 && opts.IsClusterMode {
		err = errors.New("redis: wait_replicas does not work with a cluster; set min-replicas-to-write on its nodes instead")
	}
	return opts, err
}

func complete(cfg *Config) error {
	if cfg.Prefix == "" {
		cfg.Prefix = "agentos"
	}
	if cfg.Partitions == 0 {
		cfg.Partitions = 1
	}
	switch {
	case cfg.Log == nil:
		return errors.New("redis: Config.Log is required")
	case strings.ContainsAny(cfg.Prefix, "{}"):
		return fmt.Errorf("redis: the prefix %q has braces, which Redis takes for a hash tag; leave them out", cfg.Prefix)
	case cfg.Partitions < 1 || cfg.Partitions > maxPartitions:
		return fmt.Errorf("redis: partitions must be 1 to %d, not %d", maxPartitions, cfg.Partitions)
	case cfg.Retention < 0 || (cfg.Retention > 0 && cfg.Retention < time.Millisecond):
		return fmt.Errorf("redis: retention must be 0 or at least 1ms, not %s", cfg.Retention)
	case cfg.WaitReplicas < 0:
		return fmt.Errorf("redis: wait_replicas must not be negative, but is %d", cfg.WaitReplicas)
	}
	return nil
}

func (s *Store) checkLayout(ctx context.Context) error {
	k := s.partition(0)
	partitions := strconv.Itoa(s.cfg.Partitions)
	reply, err := s.read(ctx, "open", s.scripts.open, []string{k.layout()}, k.base, format, partitions)
	if err != nil {
		return err
	}
	was := list(reply)
	if got := text(was, 0); got != format {
		return fmt.Errorf("redis: the data under prefix %q have format %s, this version reads format %s", s.cfg.Prefix, got, format)
	}
	if got := text(was, 1); got != partitions {
		return fmt.Errorf("redis: the store under prefix %q was created with %s partitions and cannot be opened with %s; set partitions to %s, or use another server or database",
			s.cfg.Prefix, got, partitions, got)
	}
	return nil
}

// RoundTrips returns how many requests this process has sent to Redis for
// operations of the store, repeats included.
func (s *Store) RoundTrips() int64 { return s.trips.Load() }

// Close waits for the operations under way and releases the connections. It may
// be called more than once.
func (s *Store) Close() error {
	s.open.Lock()
	defer s.open.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.news.close()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}

// libraryLog turns the printing of the client library into debug lines: what
// matters is in the errors of the operations.
type libraryLog struct{ log *slog.Logger }

// Printf is what the library calls.
func (l libraryLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.LogAttrs(ctx, slog.LevelDebug, "redis client", slog.String("detail", fmt.Sprintf(format, v...)))
}
