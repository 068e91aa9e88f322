package redis_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/testenv"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/redis"
	"agentos/runtime/store/storetest"
)

// story is the journal of a run that throughHold has taken to its end.
const story = "[run.created hold.opened hold.decided hold.closed run.completed]"

// told fails unless each run's journal is the whole story, each entry once.
func told(t *testing.T, s *redis.Store, ids []string) {
	t.Helper()
	for _, id := range ids {
		var got []journal.Type
		all, err := s.Journal(t.Context(), id, 0)
		if err != nil {
			t.Errorf("journal of %s: %v", id, err)
			continue
		}
		for _, e := range all {
			got = append(got, e.Type)
		}
		if fmt.Sprint(got) != story {
			t.Errorf("journal of %s: %v", id, got)
		}
	}
}

// load takes runs through holds, a few at a time, until stop is called, which
// returns the ids of all of them.
func load(t *testing.T, s *redis.Store) (stop func() []string) {
	t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	var over atomic.Bool
	for range 8 {
		all.Go(func() {
			for !over.Load() {
				id, err := throughHold(t.Context(), s)
				if err != nil {
					t.Errorf("run %s: %v", id, err)
					return
				}
				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
		})
	}
	stop = sync.OnceValue(func() []string {
		over.Store(true)
		all.Wait()
		return ids
	})
	t.Cleanup(func() { stop() })
	return stop
}

// unavailable fails unless err is ErrUnavailable and its text and its reason say
// what is the matter.
func unavailable(t *testing.T, err error, reason string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %q", reason)
		return
	}
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), reason) {
		t.Errorf("error: %v; want ErrUnavailable with %q", err, reason)
		return
	}
	told := interface{ Reason() string }(nil)
	if !errors.As(err, &told) || !strings.Contains(told.Reason(), reason) {
		t.Errorf("error without a reason: %v", err)
		return
	}
	if strings.Contains(told.Reason(), "127.0.0.1") {
		t.Errorf("the reason names an address: %s", told.Reason())
	}
}

// sick fails unless Health gives the reason within a few seconds.
func sick(t *testing.T, s *redis.Store, reason string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := s.Health(ctx)
	unavailable(t, err, reason)
}

// falls waits until Health gives the reason.
func falls(t *testing.T, s *redis.Store, reason string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, err := s.Health(t.Context())
		if err != nil && strings.Contains(err.Error(), reason) || time.Now().After(deadline) {
			unavailable(t, err, reason)
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}

// healthy waits until the store is.
func healthy(t *testing.T, s *redis.Store) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, err := s.Health(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not healthy again: %v", err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// A master is killed under load; Sentinels make its replica the master. What was
// acknowledged with a replica is there, and every run goes on by itself.
func TestTroubleSentinelFailover(t *testing.T) { // alone: Sentinels that get no time do nothing for half a minute (TILT)
	master := testenv.StartRedis(t)
	replica := testenv.StartReplica(t, master)
	sentinels := testenv.StartSentinels(t, master, 3)
	s := open(t, sentinels.URL(), func(c *redisConfig) { c.WaitReplicas = 1 })
	run, h := hang(t, s)
	watch, err := s.Watch(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	<-watch
	stop := load(t, s)
	master.Kill()
	sick(t, s, "nothing listens at its address")
	sentinels.AwaitMaster(replica.Addr)
	// Until it has a replica again the new master alone is not enough.
	falls(t, s, "not on enough replicas")
	host, port, _ := net.SplitHostPort(replica.Addr)
	master.Restart("replicaof " + host + " " + port)
	healthy(t, s)
	if _, err := s.Decide(t.Context(), approval(h, "ann")); err != nil {
		t.Errorf("a hold from before the failover: %v", err)
	}
	for seen := 0; seen < 4; {
		<-watch
		all, err := s.Journal(t.Context(), run.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		seen = len(all)
	}
	told(t, s, stop())
}

// A failover that the operator asks for: the old master stays, as a replica.
func TestTroubleSentinelSwitch(t *testing.T) { // alone: Sentinels that get no time do nothing for half a minute (TILT)
	master := testenv.StartRedis(t)
	replica := testenv.StartReplica(t, master)
	sentinels := testenv.StartSentinels(t, master, 3)
	s := open(t, sentinels.URL(), func(c *redisConfig) { c.WaitReplicas = 1 })
	stop := load(t, s)
	sentinels.FailOver()
	sentinels.AwaitMaster(replica.Addr)
	healthy(t, s)
	told(t, s, stop())
}

func TestTroubleSentinelNames(t *testing.T) {
	t.Parallel()
	master := testenv.StartRedis(t)
	sentinels := testenv.StartSentinels(t, master, 1)
	for url, reason := range map[string]string{
		strings.Replace(sentinels.URL(), "master="+testenv.MasterName, "master=other", 1): "no Sentinel knows this master",
		"redis+sentinel://127.0.0.1:1?master=main":                                        "no Sentinel answers",
	} {
		_, err := redis.Open(t.Context(), redis.Config{URL: url, Log: discard()})
		unavailable(t, err, reason)
	}
}

// The server is back and reads its data yet.
func TestTroubleLoading(t *testing.T) {
	t.Parallel()
	r := server(t, "appendonly yes", "appendfsync always", "loading-process-events-interval-bytes 1024")
	s := open(t, r.URL())
	run, h := hang(t, s)
	r.Command("DEBUG", "POPULATE", "20000", "ballast", "1000")
	r.Command("BGREWRITEAOF")
	r.Await("aof_rewrite_in_progress:0", "INFO", "persistence")
	r.RestartLoading("key-load-delay 1000")
	_, err := s.Decide(t.Context(), approval(h, "ann"))
	unavailable(t, err, "still loading its data")
	sick(t, s, "still loading its data")
	_, err = redis.Open(t.Context(), redis.Config{URL: r.URL(), Log: discard()})
	unavailable(t, err, "still loading its data")
	r.Command("CONFIG", "SET", "key-load-delay", "0")
	healthy(t, s)
	if got, err := s.Hold(t.Context(), h.ID); err != nil || got.Hold.Status != holds.Pending || len(got.Journal) != int(run.Seq) {
		t.Errorf("hold = %+v, %v", got, err)
	}
	if _, err := s.Decide(t.Context(), approval(h, "ann")); err != nil {
		t.Error(err)
	}
}

// The server refuses for a while, with the reason, and nothing half done is left.
func TestTroubleRefusals(t *testing.T) {
	t.Parallel()
	r := server(t)
	s := open(t, r.URL())
	for _, c := range []struct {
		name, reason string
		begin, end   func(t *testing.T)
	}{
		{
			"OOM", "maxmemory is reached",
			func(*testing.T) { r.Command("CONFIG", "SET", "maxmemory", "1") },
			func(*testing.T) { r.Command("CONFIG", "SET", "maxmemory", "0") },
		},
		{
			"MISCONF", "it cannot save to its disk",
			func(t *testing.T) {
				t.Helper()
				// A snapshot cannot take the place of a folder.
				if err := os.Mkdir(filepath.Join(r.Dir, "dump.rdb"), 0o700); err != nil {
					t.Fatal(err)
				}
				r.Command("CONFIG", "SET", "save", "3600 1000000")
				r.Command("BGSAVE")
				r.Await("rdb_last_bgsave_status:err", "INFO", "persistence")
			},
			func(*testing.T) { r.Command("CONFIG", "SET", "save", "") },
		},
		{
			"READONLY", "read-only replica",
			func(*testing.T) { r.Command("REPLICAOF", "127.0.0.1", "1") },
			func(*testing.T) { r.Command("REPLICAOF", "NO", "ONE") },
		},
		{
			"MASTERDOWN", "let the URL name the master",
			func(*testing.T) {
				r.Command("CONFIG", "SET", "replica-serve-stale-data", "no")
				r.Command("REPLICAOF", "127.0.0.1", "1")
			},
			func(*testing.T) { r.Command("REPLICAOF", "NO", "ONE") },
		},
		{
			"NOREPLICAS", "too few replicas",
			func(*testing.T) { r.Command("CONFIG", "SET", "min-replicas-to-write", "1") },
			func(*testing.T) { r.Command("CONFIG", "SET", "min-replicas-to-write", "0") },
		},
		{
			"NOPERM", "the user may not run this command",
			func(*testing.T) { r.Command("ACL", "SETUSER", "default", "-evalsha", "-hset") },
			func(*testing.T) { r.Command("ACL", "SETUSER", "default", "+evalsha", "+hset") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, h := hang(t, s)
			stop := load(t, s)
			c.begin(t)
			_, err := s.Decide(t.Context(), approval(h, "ann"))
			unavailable(t, err, c.reason)
			sick(t, s, c.reason)
			c.end(t)
			healthy(t, s)
			if got, err := s.Hold(t.Context(), h.ID); err != nil || got.Hold.Status != holds.Pending || len(got.Journal) != int(run.Seq) {
				t.Errorf("hold = %+v, %v", got, err)
			}
			told(t, s, stop())
		})
	}
}

// A cluster of which a node is gone: what it keeps is unavailable, and says so.
func TestTroubleCluster(t *testing.T) {
	t.Parallel()
	nodes := testenv.StartRedisCluster(t, 3, "appendonly yes", "appendfsync always")
	s := open(t, "redis+cluster://"+nodes[0].Addr+","+nodes[1].Addr, func(c *redisConfig) { c.Partitions = 8 })
	stop := load(t, s)
	for _, node := range nodes {
		node.Command("CONFIG", "SET", "cluster-node-timeout", "500")
	}
	nodes[2].Kill()
	nodes[0].Await("cluster_state:fail", "CLUSTER", "INFO")
	sick(t, s, "")
	nodes[2].Restart()
	for _, node := range nodes {
		node.Await("cluster_state:ok", "CLUSTER", "INFO")
	}
	healthy(t, s)
	stop()
}

// The whole contract on a cluster of three nodes: a script that left its slot, or
// touched a key of another, would be refused there.
func TestSuiteOnCluster(t *testing.T) {
	t.Parallel()
	nodes := testenv.StartRedisCluster(t, 3)
	url := "redis+cluster://" + nodes[0].Addr + "," + nodes[1].Addr + "," + nodes[2].Addr
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		var offset atomic.Int64
		name := fmt.Sprintf("case%d", n.Add(1))
		another := func() store.Store {
			return open(t, url, prefix(name), func(c *redisConfig) {
				c.Partitions = 4
				c.Offset = func() time.Duration { return time.Duration(offset.Load()) }
			})
		}
		s := another()
		at := func(runID string) vandal {
			for _, node := range nodes {
				keys := keysLike(node, name+":{p*:r:"+runID)
				if len(keys) > 0 && strings.HasPrefix(keys[len(keys)-1], name) {
					return vandal{node, keys[len(keys)-1], false}
				}
			}
			t.Fatalf("run %s is not there", runID)
			return vandal{}
		}
		return storetest.Harness{
			Store:   s,
			Advance: func(d time.Duration) { offset.Add(int64(d)) },
			Restart: func() store.Store {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				s = another()
				return s
			},
			Second: another,
			Damage: func(runID string) {
				for _, node := range nodes {
					keys := keysLike(node, name+":*:r:"+runID)
					if len(keys) == 1 && strings.HasPrefix(keys[0], name) { // "*0" when there is none
						node.Command("HDEL", keys[0], "1")
						return
					}
				}
				t.Fatalf("run %s has no journal to damage", runID)
			},
			Ruin:   func(runID string) { at(runID).ruin() },
			Mend:   func(runID string) { at(runID).mend() },
			Hasten: func(runID string) { at(runID).hasten() },
		}
	})
}

// Scripts are forgotten and answers lost, again and again, under load.
func TestTroubleNoScript(t *testing.T) {
	t.Parallel()
	r := server(t, "appendonly yes", "appendfsync always")
	s, proxy := behind(t, r)
	stop := load(t, s)
	proxy.CutEvery(23)
	for range 50 {
		r.Command("SCRIPT", "FLUSH")
	}
	r.Restart() // which forgets them, too
	healthy(t, s)
	proxy.CutEvery(0)
	ids := stop()
	told(t, s, ids)
	if len(ids) == 0 {
		t.Error("nothing ran")
	}
}

// Half an answer, or one that Redis would not give, is a lost answer: the repeat
// is the same transition, on another connection.
func TestTroubleBadAnswers(t *testing.T) {
	t.Parallel()
	r := server(t)
	s, proxy := behind(t, r)
	half := func(answer []byte) []byte { return answer[:len(answer)/2] }
	garbage := func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }
	for name, spoil := range map[string]func([]byte) []byte{"half": half, "garbage": garbage} {
		t.Run(name, func(t *testing.T) {
			run, h := hang(t, s)
			proxy.Spoil(2, spoil)
			if _, err := s.Decide(t.Context(), approval(h, "ann")); err != nil {
				t.Error(err)
			}
			proxy.Spoil(2, spoil)
			if all, err := s.Journal(t.Context(), run.ID, 0); err != nil || len(all) != 4 {
				t.Errorf("journal: %d entries, %v", len(all), err)
			}
		})
	}
	proxy.Spoil(1000, garbage)
	sick(t, s, "does not speak as Redis does")
	proxy.Spoil(1000, half)
	sick(t, s, "it closed the connection")
	proxy.Spoil(0, nil)
	healthy(t, s)
}

// Latency is only latency, and a server that stands still for less than the
// timeout of an answer as well. One that never answers is an error with its
// reason, when the caller's time is over.
func TestTroubleSlow(t *testing.T) {
	t.Parallel()
	r := server(t)
	s, proxy := behind(t, r)
	proxy.Delay(300 * time.Millisecond)
	id, err := throughHold(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	proxy.Delay(0)
	told(t, s, []string{id})
	var asleep sync.WaitGroup
	asleep.Go(func() { r.Command("DEBUG", "SLEEP", "2") })
	c, err := s.Create(t.Context(), newRun(time.Minute))
	if err != nil {
		t.Errorf("while the server sleeps: %v", err)
	}
	asleep.Wait()
	r.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = s.Commit(ctx, c.Lease, ending())
	unavailable(t, err, "it did not answer in time")
	sick(t, s, "it did not answer in time")
	r.Thaw()
	healthy(t, s)
	if _, err := s.Commit(t.Context(), c.Lease, ending()); err != nil && !errors.Is(err, store.ErrLeaseLost) {
		t.Error(err)
	}
}

// Operations that find all connections busy wait for one, and then say so; none
// hangs.
func TestTroublePoolExhausted(t *testing.T) {
	t.Parallel()
	r := server(t)
	s, proxy := behind(t, r)
	run, _ := hang(t, s)
	all := func(n int) (failed []error, took time.Duration) {
		var ops sync.WaitGroup
		var mu sync.Mutex
		began := time.Now()
		for range n {
			ops.Go(func() {
				if _, err := s.Run(t.Context(), run.ID); err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			})
		}
		ops.Wait()
		return failed, time.Since(began)
	}
	proxy.Delay(100 * time.Millisecond)
	if failed, _ := all(400); len(failed) > 0 {
		t.Errorf("%d of 400 operations failed although they had only to wait: %v", len(failed), failed[0])
	}
	proxy.Delay(2500 * time.Millisecond)
	failed, took := all(400)
	if len(failed) == 0 {
		t.Error("400 operations of 2.5 s each found connections")
	}
	for _, err := range failed {
		unavailable(t, err, "connections of this process were busy")
	}
	if took > 15*time.Second {
		t.Errorf("it took %s until all operations had an answer", took)
	}
	proxy.Delay(0)
	if failed, _ := all(400); len(failed) > 0 {
		t.Errorf("afterwards: %v", failed[0])
	}
}

// All connections that the server allows are taken by others.
func TestTroubleMaxClients(t *testing.T) {
	t.Parallel()
	r := server(t, "maxclients 20")
	s, proxy := behind(t, r)
	_, h := hang(t, s)
	proxy.Down()
	others := fill(t, r)
	proxy.Up()
	_, err := s.Decide(t.Context(), approval(h, "ann"))
	unavailable(t, err, "maxclients")
	sick(t, s, "maxclients")
	for _, c := range others {
		_ = c.Close()
	}
	healthy(t, s)
	if _, err := s.Decide(t.Context(), approval(h, "ann")); err != nil {
		t.Error(err)
	}
}

// fill takes every connection that the server has to give.
func fill(t *testing.T, r *testenv.Redis) []net.Conn {
	t.Helper()
	var all []net.Conn
	for {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = c.Write([]byte("PING\r\n"))
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || strings.HasPrefix(line, "-ERR max number of clients") {
			return all
		}
		all = append(all, c)
	}
}
