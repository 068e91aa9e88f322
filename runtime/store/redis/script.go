package redis

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"agentos/runtime/store"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is a Lua script and the name Redis caches it under.
type script struct{ source, sha string }

// scripts are all of them, one per transition or read.
type scripts struct {
	open, health, create, peek, claim, renew, commit, decide, cancel *script
	run, runs, journal, hold, holds, put, order, document            *script
	fsckPage, fsckRun                                                *script
	notices, settle, append, logEnd                                  *script
}

func loadScripts() (scripts, error) {
	var s scripts
	var fault error
	load := func(to **script, names ...string) {
		var source strings.Builder
		for _, name := range append([]string{"prelude"}, names...) {
			part, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
			if err != nil {
				fault = err
			}
			source.Write(part)
		}
		*to = &script{source.String(), goredis.NewScript(source.String()).Hash()}
	}
	load(&s.open, "open")
	load(&s.health, "health")
	load(&s.create, "create")
	load(&s.peek, "peek")
	load(&s.claim, "claim")
	load(&s.renew, "renew")
	load(&s.commit, "advance", "commit")
	load(&s.decide, "advance", "decide")
	load(&s.cancel, "advance", "cancel")
	load(&s.run, "run")
	load(&s.runs, "list", "runs")
	load(&s.journal, "journal")
	load(&s.hold, "hold")
	load(&s.holds, "list", "holds")
	load(&s.put, "put")
	load(&s.order, "order")
	load(&s.document, "document")
	load(&s.notices, "notices")
	load(&s.settle, "settle")
	load(&s.append, "append")
	load(&s.logEnd, "log_end")
	load(&s.fsckPage, "fsck", "fsck_page")
	load(&s.fsckRun, "advance", "fsck", "fsck_index", "fsck_keys", "fsck_run")
	return s, fault
}

// attempts is how often an operation is sent before the caller hears of it.
const attempts = 4

// write runs a script that changes a run under an operation token, so it may be
// sent again when the answer was lost, and waits for the replicas asked for.
func (s *Store) write(ctx context.Context, what string, sc *script, keys []string, args ...any) (any, error) {
	return s.retry(ctx, what, func() (any, error) { return s.send(ctx, sc, s.cfg.WaitReplicas, keys, args) })
}

// read runs a script that gives the same answer, or does the same again, however
// often it is sent.
func (s *Store) read(ctx context.Context, what string, sc *script, keys []string, args ...any) (any, error) {
	return s.retry(ctx, what, func() (any, error) { return s.send(ctx, sc, 0, keys, args) })
}

// once runs a script that must not be sent again.
func (s *Store) once(ctx context.Context, what string, sc *script, keys []string, args ...any) (any, error) {
	leave, err := s.enter(what)
	if err != nil {
		return nil, err
	}
	defer leave()
	reply, err := s.send(ctx, sc, 0, keys, args)
	if err != nil {
		return nil, failure(ctx, what, err)
	}
	return reply, nil
}

func (s *Store) retry(ctx context.Context, what string, send func() (any, error)) (any, error) {
	leave, err := s.enter(what)
	if err != nil {
		return nil, err
	}
	defer leave()
	wait := 20 * time.Millisecond
	for n := 1; ; n++ {
		reply, err := send()
		if err == nil {
			return reply, nil
		}
		if n == attempts || ctx.Err() != nil || !passing(err) {
			return nil, failure(ctx, what, err)
		}
		select {
		case <-s.clock.After(wait):
			wait *= 4
		case <-ctx.Done():
			return nil, failure(ctx, what, err)
		}
	}
}

// enter keeps the store open until leave is called.
func (s *Store) enter(what string) (leave func(), err error) {
	s.open.RLock()
	if s.closed {
		s.open.RUnlock()
		return nil, fmt.Errorf("redis: %s: %w: it was closed", what, store.ErrUnavailable)
	}
	return s.open.RUnlock, nil
}

// send runs a script by its name and, when the server does not know it (after a
// restart, a failover or SCRIPT FLUSH), by its text, which teaches it the name.
// args begin with the base of the keys; the clock's offset goes before them.
func (s *Store) send(ctx context.Context, sc *script, replicas int, keys []string, args []any) (any, error) {
	line := make([]any, 0, 4+len(keys)+len(args))
	line = append(line, "evalsha", sc.sha, len(keys))
	for _, k := range keys {
		line = append(line, k)
	}
	line = append(append(line, s.offset()), args...)
	reply, err := s.roundTrip(ctx, line, replicas)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		line[0], line[1] = "eval", sc.source
		return s.roundTrip(ctx, line, replicas)
	}
	return reply, err
}

// replicaTimeout is how long a write waits for its replicas.
const replicaTimeout = time.Second

func (s *Store) roundTrip(ctx context.Context, line []any, replicas int) (any, error) {
	s.trips.Add(1)
	cmd := goredis.NewCmd(ctx, line...)
	if replicas == 0 {
		err := s.client.Process(ctx, single{cmd})
		return cmd.Val(), err
	}
	// WAIT counts the writes of its own connection, which a pipeline shares.
	pipe := s.client.Pipeline()
	err := pipe.Process(ctx, cmd)
	wait := pipe.Do(ctx, "wait", replicas, replicaTimeout.Milliseconds())
	if err == nil {
		_, err = pipe.Exec(ctx)
	}
	if cmd.Err() != nil || err != nil {
		return nil, errors.Join(cmd.Err(), err)
	}
	got, err := wait.Int()
	if err == nil && got < replicas {
		err = fmt.Errorf("%w: the write reached %d of %d replicas", store.ErrUnavailable, got, replicas)
	}
	return cmd.Val(), err
}

// single is a command that the cluster client, too, sends once.
type single struct{ *goredis.Cmd }

// NoRetry is what the library asks.
func (single) NoRetry() bool { return true }

func (s *Store) offset() string {
	if s.cfg.Offset == nil {
		return "0"
	}
	return strconv.FormatInt(s.cfg.Offset().Milliseconds(), 10)
}

// command sends one plain command, which does the same however often it is sent.
// Nothing found is a nil reply.
func (s *Store) command(ctx context.Context, what string, line ...any) (any, error) {
	return s.retry(ctx, what, func() (any, error) {
		reply, err := s.roundTrip(ctx, line, 0)
		if errors.Is(err, goredis.Nil) {
			return nil, nil //nolint:nilnil // nil is what the server answered
		}
		return reply, err
	})
}
