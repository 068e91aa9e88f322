package redis_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/testenv"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/redis"
)

// What was acknowledged before a kill -9 is there afterwards, for the process
// that wrote it and for a new one.
func TestKilledServerKeepsHolds(t *testing.T) {
	t.Parallel()
	for _, fsync := range []string{"always", "everysec"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			r := testenv.StartRedis(t, "appendonly yes", "appendfsync "+fsync)
			s := open(t, r.URL())
			run, h := hang(t, s)
			watch, err := s.Watch(t.Context(), run.ID)
			if err != nil {
				t.Fatal(err)
			}
			r.Restart()
			for _, s := range []*redis.Store{s, open(t, r.URL())} {
				got, err := s.Hold(t.Context(), h.ID)
				if err != nil || got.Hold.Status != holds.Pending || got.Record.Status != store.Held || len(got.Journal) != 2 {
					t.Errorf("after the restart: %+v, %v", got, err)
				}
			}
			d, err := s.Decide(t.Context(), approval(h, "ann"))
			if err != nil {
				t.Fatal(err)
			}
			r.Restart()
			if _, err := s.Commit(t.Context(), d.Lease, ending()); err != nil {
				t.Error(err)
			}
			<-watch
		})
	}
}

// Nothing an unfinished run needs expires; of a finished one everything does.
func TestRetention(t *testing.T) {
	t.Parallel()
	r := server(t)
	s := open(t, r.URL(), func(c *redisConfig) { c.Retention = 200 * time.Millisecond })
	ctx := t.Context()
	_, h := hang(t, s)
	other, err := s.Create(ctx, newRun(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutState(ctx, "run/"+h.RunID, "k", []byte(`1`)); err != nil {
		t.Fatal(err)
	}
	for _, key := range keysLike(r, "*") {
		if ttl := r.Command("PTTL", key); ttl != ":-1" {
			t.Errorf("key %s of an unfinished run has a time to live: %s", key, ttl)
		}
	}
	d, err := s.Decide(ctx, approval(h, "ann"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(ctx, d.Lease, ending()); err != nil {
		t.Fatal(err)
	}
	if err := s.PutState(ctx, "run/"+h.RunID, "late", []byte(`1`)); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := s.Run(ctx, h.RunID)
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if rows, next, err := s.Runs(ctx, store.RunFilter{Env: "default"}, store.Page{Limit: 50}); err != nil || next != "" ||
		len(rows) != 1 || rows[0].ID != other.Record.ID {
		t.Errorf("runs = %v, %q, %v; the finished one is gone", rows, next, err)
	}
	if _, err := s.Hold(ctx, h.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("hold of an expired run: %v", err)
	}
	// The next run that ends sweeps what the first has left in the indexes.
	claimed, err := s.Claim(ctx, 1, time.Minute)
	if err != nil || len(claimed) != 1 {
		t.Fatal(claimed, err)
	}
	if _, err := s.Commit(ctx, claimed[0].Lease, ending()); err != nil {
		t.Fatal(err)
	}
	for _, key := range keysLike(r, "*") {
		for _, id := range []string{h.RunID, h.ID} {
			if strings.HasSuffix(key, id) {
				t.Errorf("key %s is left", key)
			}
			if r.Command("TYPE", key) == "+zset" && r.Command("ZSCORE", key, id) != "$-1" {
				t.Errorf("%s is left in %s", id, key)
			}
		}
	}
}

// A part lost behind the driver's back: the run can be seen and failed, and is
// never begun anew under its id.
func TestDamage(t *testing.T) {
	t.Parallel()
	r := server(t)
	ctx := t.Context()
	for lose, field := range map[string]string{"j": "1", "h": "h1", "r": "v"} {
		t.Run(lose, func(t *testing.T) {
			var offset time.Duration
			s := open(t, r.URL(), prefix("lose-"+lose), func(c *redisConfig) { c.Offset = func() time.Duration { return offset } })
			run, h := hang(t, s)
			if got := r.Command("HDEL", "lose-"+lose+":{p0}:r:"+run.ID, field); got != ":1" {
				t.Fatalf("HDEL %s: %s", field, got)
			}
			if _, err := s.Decide(ctx, approval(h, "ann")); !errors.Is(err, store.ErrDamaged) {
				t.Errorf("decide: %v", err)
			}
			if _, err := s.Hold(ctx, h.ID); !errors.Is(err, store.ErrDamaged) {
				t.Errorf("hold: %v", err)
			}
			again := newRun(time.Minute)
			again.RunID = run.ID
			if c, err := s.Create(ctx, again); lose != "h" && !errors.Is(err, store.ErrDamaged) || lose == "h" && !c.Existing {
				t.Errorf("create under the old id: %+v, %v", c, err)
			}
			offset = 2 * time.Hour
			got, err := s.Claim(ctx, 10, time.Minute)
			if lose == "r" {
				if err != nil || len(got) != 0 {
					t.Errorf("claim = %+v, %v", got, err)
				}
				return
			}
			if err != nil || len(got) != 1 || len(got[0].Journal) != 0 {
				t.Fatalf("claim = %+v, %v; want one run without a journal", got, err)
			}
			step := store.Tx{Op: token(), Status: store.Running, Lease: time.Minute, Entries: []journal.New{entry(journal.ModelAnswered, `{}`)}}
			if _, err := s.Commit(ctx, got[0].Lease, step); err == nil {
				t.Error("a damaged run went on")
			}
			end := store.Tx{Op: token(), Status: store.Failed, Entries: []journal.New{entry(journal.RunFailed, `{}`)}}
			if got[0].Hold != nil {
				closed := got[0].Hold.Closed(holds.Cancelled, run.Seq+1)
				end.Hold = &closed
			}
			if _, err := s.Commit(ctx, got[0].Lease, end); err != nil {
				t.Fatal(err)
			}
			v, err := s.Run(ctx, run.ID)
			if err != nil || v.Status != store.Failed || v.Last.Type != journal.RunFailed {
				t.Errorf("run = %+v, %v", v, err)
			}
		})
	}
}

func TestHealthWarns(t *testing.T) {
	t.Parallel()
	logged := func(t *testing.T, r *testenv.Redis) int {
		t.Helper()
		var log bytes.Buffer
		open(t, r.URL(), func(c *redisConfig) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		return strings.Count(log.String(), "the store has a warning")
	}
	for _, c := range []struct {
		config  []string
		durable bool
		want    []string
	}{
		{[]string{"appendonly yes", "appendfsync always"}, true, nil},
		{[]string{"appendonly yes", "appendfsync everysec"}, false, []string{"appendfsync is everysec"}},
		{[]string{"appendonly no", `save ""`, "maxmemory-policy allkeys-lru"}, false, []string{"appendonly is off", "maxmemory-policy is allkeys-lru"}},
		{[]string{"appendonly yes", "appendfsync always", "maxmemory-policy volatile-ttl"}, true, []string{"maxmemory-policy is volatile-ttl"}},
		{[]string{"appendonly yes", "rename-command CONFIG \"\""}, false, []string{"does not tell appendfsync"}},
	} {
		t.Run(strings.Join(c.config, ","), func(t *testing.T) {
			t.Parallel()
			r := server(t, c.config...)
			h, err := open(t, r.URL()).Health(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if h.Driver != "redis" || h.Durable != c.durable || len(h.Warnings) != len(c.want) {
				t.Fatalf("health = %+v, want durable %t and %d warnings", h, c.durable, len(c.want))
			}
			if n := logged(t, r); n != len(c.want) {
				t.Errorf("%d warnings were logged at the start, want %d", n, len(c.want))
			}
			for i, w := range c.want {
				if !strings.Contains(h.Warnings[i], w) {
					t.Errorf("warning %q, want %q", h.Warnings[i], w)
				}
			}
		})
	}
}

func TestLayoutIsFixed(t *testing.T) {
	t.Parallel()
	r := server(t)
	open(t, r.URL(), func(c *redisConfig) { c.Partitions = 2 })
	_, err := redis.Open(t.Context(), redis.Config{URL: r.URL(), Partitions: 3, Log: discard()})
	if err == nil || !strings.Contains(err.Error(), "created with 2 partitions") {
		t.Errorf("other partitions: %v", err)
	}
	r.Command("HSET", "agentos:{p0}:layout", "format", "99")
	_, err = redis.Open(t.Context(), redis.Config{URL: r.URL(), Partitions: 2, Log: discard()})
	if err == nil || !strings.Contains(err.Error(), "format 99") {
		t.Errorf("other format: %v", err)
	}
}

func TestWaitForReplicas(t *testing.T) {
	t.Parallel()
	main := server(t)
	alone := open(t, main.URL(), func(c *redisConfig) { c.WaitReplicas = 1 })
	req := newRun(time.Minute)
	if _, err := alone.Create(t.Context(), req); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Fatalf("create without a replica: %v", err)
	}
	host, port, _ := strings.Cut(main.Addr, ":")
	replica := server(t, "replicaof "+host+" "+port, "repl-diskless-sync-delay 0")
	for !strings.Contains(main.Command("INFO", "replication"), "state=online") {
		replica.Command("PING")
	}
	c, err := alone.Create(t.Context(), req)
	if err != nil || c.Existing || c.Lease.Epoch != 1 {
		t.Fatalf("repeat = %+v, %v", c, err)
	}
	// The replica has it: it could take over now.
	v, err := read(t, replica, req.RunID)
	if err != nil || v != "1" {
		t.Errorf("entries on the replica = %q, %v", v, err)
	}
}

func read(t *testing.T, r *testenv.Redis, run string) (string, error) {
	t.Helper()
	seq := strings.Fields(r.Command("HGET", "agentos:{p0}:r:"+run, "v"))
	if len(seq) < 2 {
		return "", fmt.Errorf("no record: %q", seq)
	}
	return seq[1], nil
}

// A cluster of three masters, four partitions: no script leaves its slot, and
// every node is told of.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := testenv.StartRedisCluster(t, 3)
	url := "redis+cluster://" + nodes[0].Addr + "," + nodes[1].Addr
	s := open(t, url, func(c *redisConfig) { c.Partitions = 4 })
	ctx := t.Context()
	used := map[string]bool{}
	for range 12 {
		req := newRun(0)
		if _, err := s.Create(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	wake, err := s.Wake(ctx)
	if err != nil {
		t.Fatal(err)
	}
	<-wake
	claimed, err := s.Claim(ctx, 20, time.Minute)
	if err != nil || len(claimed) != 12 {
		t.Fatalf("claimed %d runs: %v", len(claimed), err)
	}
	var leases []store.Lease
	for _, c := range claimed {
		watch, err := s.Watch(ctx, c.Record.ID)
		if err != nil {
			t.Fatal(err)
		}
		<-watch
		h := newHold(c.Record, c.Journal[0].At)
		if _, err := s.Commit(ctx, c.Lease, opening(h)); err != nil {
			t.Fatal(err)
		}
		<-watch
		d, err := s.Decide(ctx, approval(h, "ann"))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, d.Lease)
	}
	renewed, err := s.Renew(ctx, leases, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range leases {
		if renewed[i].Lost || renewed[i].Lease.RunID != l.RunID {
			t.Errorf("renewal %d = %+v", i, renewed[i])
		}
		if _, err := s.Commit(ctx, l, ending()); err != nil {
			t.Error(err)
		}
		if err := s.PutState(ctx, "session/default/a/"+strconv.Itoa(i), "k", []byte(`1`)); err != nil {
			t.Error(err)
		}
	}
	rows, _, err := s.Runs(ctx, store.RunFilter{Env: "default", Status: store.Completed}, store.Page{Limit: 50})
	if err != nil || len(rows) != 12 {
		t.Errorf("%d runs, %v", len(rows), err)
	}
	list, _, err := s.Holds(ctx, store.HoldFilter{Status: holds.Decided}, store.Page{Limit: 50})
	if err != nil || len(list) != 12 {
		t.Errorf("%d holds, %v", len(list), err)
	}
	if _, err := s.Health(ctx); err != nil {
		t.Error(err)
	}
	for _, node := range nodes {
		for _, key := range keysLike(node, "*") {
			used[key[:strings.Index(key, "}")]] = true
		}
	}
	if len(used) != 4 {
		t.Errorf("partitions in use: %v", used)
	}
}

// The log of Redis is cut off within the writes of one script, as by the death of
// the machine. Redis keeps what is whole of them, and gives it life at the start
// after next. Whatever the place of the cut, nothing of a run is there twice or by
// halves, and it goes on.
func TestTornLog(t *testing.T) {
	t.Parallel()
	for cut := range 24 {
		t.Run(strconv.Itoa(cut), func(t *testing.T) {
			t.Parallel()
			r := testenv.StartRedis(t, "appendonly yes", "appendfsync always")
			log := filepath.Join(r.Dir, "appendonlydir", "appendonly.aof.1.incr.aof")
			size := func() int64 {
				info, err := os.Stat(log)
				if err != nil {
					t.Fatal(err)
				}
				return info.Size()
			}
			s := open(t, r.URL())
			ctx := t.Context()
			c, err := s.Create(ctx, newRun(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			before := size()
			h := newHold(c.Record, c.Entry.At)
			h.Revision = 3
			tx := opening(h)
			tx.Hold = &h
			tx.Entries = append([]journal.New{entry(journal.ModelAnswered, `{"n":1}`)}, tx.Entries...)
			if _, err := s.Commit(ctx, c.Lease, tx); err != nil {
				t.Fatal(err)
			}
			r.Kill()
			after := size()
			if err := os.Truncate(log, before+(after-before)*int64(cut)/24); err != nil {
				t.Fatal(err)
			}
			r.Restart()
			healthy(t, s)
			if _, err := s.Commit(ctx, c.Lease, tx); err != nil {
				t.Fatalf("repeat: %v", err)
			}
			r.Restart()
			healthy(t, s)
			d, err := s.Decide(ctx, approval(h, "ann"))
			if err != nil {
				t.Fatalf("decide: %v", err)
			}
			if _, err := s.Commit(ctx, d.Lease, ending()); err != nil {
				t.Fatal(err)
			}
			r.Restart()
			healthy(t, s)
			var got []journal.Type
			all, err := s.Journal(ctx, c.Record.ID, 0)
			for _, e := range all {
				got = append(got, e.Type)
			}
			if want := "[run.created model.answered hold.opened hold.decided hold.closed run.completed]"; err != nil || fmt.Sprint(got) != want {
				t.Errorf("journal %v, %v", got, err)
			}
			if v, err := s.Hold(ctx, h.ID); err != nil || v.Hold.Status != holds.Decided {
				t.Errorf("hold %+v, %v", v.Hold, err)
			}
		})
	}
}
