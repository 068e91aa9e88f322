package redis

import (
	"bufio"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"agentos/runtime/store"
)

// Health writes to every partition, which finds a full, read-only or unreachable
// server and missing replicas, tells of runs that Claim has set aside, and reads from
// every server how safe the data are.
func (s *Store) Health(ctx context.Context) (store.Health, error) {
	h := store.Health{Driver: "redis", Durable: true}
	aside, some := int64(0), []string(nil)
	for i := range s.cfg.Partitions {
		k := s.partition(i)
		reply, err := s.write(ctx, "check health", s.scripts.health, []string{k.layout(), k.aside(), k.due()}, k.base)
		if err != nil {
			return h, err
		}
		aside += number(list(reply), 0)
		for _, id := range list(at(list(reply), 1)) {
			some = append(some, word(id))
		}
	}
	if aside > 0 {
		h.Warnings = append(h.Warnings, store.AsideWarning(aside, some))
	}
	leave, err := s.enter("check health")
	if err != nil {
		return h, err
	}
	defer leave()
	var mu sync.Mutex
	err = s.eachServer(ctx, func(ctx context.Context, c goredis.Cmdable) error {
		info, err := c.Info(ctx).Result()
		if err != nil {
			return err
		}
		// Managed servers often refuse CONFIG.
		fsync, err := c.ConfigGet(ctx, "appendfsync").Result()
		if err != nil && !isReply(err) {
			return err
		}
		durable, warnings := judge(parseInfo(info), fsync["appendfsync"])
		mu.Lock()
		defer mu.Unlock()
		h.Durable = h.Durable && durable
		h.Warnings = append(h.Warnings, warnings...)
		return nil
	})
	if err != nil {
		return h, failure(ctx, "check health", err)
	}
	slices.Sort(h.Warnings)
	h.Warnings = slices.Compact(h.Warnings)
	return h, nil
}

// warn logs how this server can lose data. A server that is read-only or full can
// still be read from, so a failing check is a warning, too.
func (s *Store) warn(ctx context.Context) {
	h, err := s.Health(ctx)
	if err != nil {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "the store is not healthy", slog.Any("error", err))
	}
	for _, w := range h.Warnings {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "the store has a warning", slog.String("warning", w))
	}
}

// eachServer calls f for the server, or for every master of a cluster, at the
// same time.
func (s *Store) eachServer(ctx context.Context, f func(context.Context, goredis.Cmdable) error) error {
	if c, ok := s.client.(*goredis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error { return f(ctx, c) })
	}
	return f(ctx, s.client)
}

// parseInfo reads the lines "name:value" of INFO.
func parseInfo(info string) map[string]string {
	out := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// judge says whether a server with this INFO keeps what it acknowledged through a
// crash of its machine, and how it can lose data otherwise. fsync is "" when the
// server does not tell.
func judge(info map[string]string, fsync string) (durable bool, warnings []string) {
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		warnings = append(warnings, "redis: maxmemory-policy is "+policy+": under memory pressure runs and journals are deleted; set it to noeviction")
	}
	switch {
	case info["aof_enabled"] == "0":
		warnings = append(warnings, "redis: appendonly is off: a crash loses every run changed since the last snapshot, and approved calls may run twice; set appendonly yes")
	case info["aof_enabled"] != "1":
		warnings = append(warnings, "redis: the server does not tell whether appendonly is on; see to it that it is")
	case fsync == "":
		warnings = append(warnings, "redis: the server does not tell appendfsync; unless it is always, a crash of its machine can lose the newest writes")
	case fsync != "always":
		warnings = append(warnings, "redis: appendfsync is "+fsync+": a crash of the machine can lose the writes of the last second or more; set it to always to keep every one")
	default:
		durable = true
	}
	for _, name := range []string{"aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"} {
		if status := info[name]; status != "" && status != "ok" {
			warnings = append(warnings, "redis: "+name+" is "+status+": the server cannot write to its disk")
			durable = false
		}
	}
	return durable, warnings
}
