package fsck_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/clock"
	"agentos/internal/testenv"
	"agentos/runtime/fsck"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/redis"
	"agentos/runtime/store/storetest"
)

// checkable is what the drivers are.
type checkable interface {
	store.Store
	store.Inspector
}

// storm works on a store from several sides while it is checked in a loop: no
// work is ever taken for damage, and nothing is damaged at the end.
func storm(t *testing.T, s checkable) {
	t.Helper()
	const workers, rounds = 6, 12
	stop, checked := make(chan struct{}), make(chan int)
	go func() { checked <- checkUntil(t, s, stop) }()
	var n atomic.Int64
	t.Run("work", func(t *testing.T) {
		for w := range workers {
			t.Run(strconv.Itoa(w), func(t *testing.T) {
				t.Parallel()
				a := newAuthor(t, s)
				for range rounds {
					a.round(func() string { return runID(int(n.Add(1))) })
				}
			})
		}
	})
	close(stop)
	if loops := <-checked; loops < 2 {
		t.Errorf("the store was checked %d times while there was work", loops)
	}
	same(t, "after the storm", check(t, s, true), nil)
}

// round makes runs of every kind, and takes what is due.
func (a *author) round(next func() string) {
	a.t.Helper()
	a.approved(next())
	id := next()
	a.create(id, ttl)
	a.entries(id, answer(a.t))
	a.open(id, holds.ToolCall)
	a.cancel(id)
	id = next()
	a.create(id, ttl)
	a.entries(id, answer(a.t))
	a.open(id, holds.ToolCall)
	a.create(next(), 0)
	list, err := a.s.Claim(a.t.Context(), 2, ttl)
	a.ok(err)
	for _, c := range list {
		_, err := a.s.Renew(a.t.Context(), []store.Lease{c.Lease}, ttl)
		a.ok(err)
		a.lease[c.Record.ID], a.seq[c.Record.ID] = c.Lease, c.Record.Seq
		a.entries(c.Record.ID, encode(a.t, journal.RunRecovered, journal.Recovered{Worker: "w"}))
		a.complete(c.Record.ID)
	}
}

// checkUntil checks the store in a loop, with and without repair, and reports
// every finding. It returns how often.
func checkUntil(t *testing.T, s checkable, stop <-chan struct{}) int {
	t.Helper()
	for n := 0; ; n++ {
		_, err := fsck.Run(context.WithoutCancel(t.Context()), fsck.Options{
			Store: s, Clock: clock.System{}, Repair: n%2 == 1, Report: func(f store.Finding) error {
				t.Errorf("found while there was work: %+v", f)
				return nil
			},
		})
		if err != nil {
			t.Error(err)
			return n
		}
		select {
		case <-stop:
			return n
		default:
		}
	}
}

func TestFileInAStorm(t *testing.T) {
	t.Parallel()
	storm(t, openFile(t, filepath.Join(t.TempDir(), "runs.db"), clock.System{}))
}

func TestMemoryInAStorm(t *testing.T) {
	t.Parallel()
	storm(t, openFile(t, "", clock.System{}))
}

func TestRedisInAStorm(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	for _, partitions := range []int{1, 3} {
		t.Run(strconv.Itoa(partitions), func(t *testing.T) {
			storm(t, openRedis(t, r.URL(), fmt.Sprint("storm", partitions), partitions))
		})
	}
}

func TestClusterInAStorm(t *testing.T) {
	t.Parallel()
	nodes := testenv.StartRedisCluster(t, 3)
	s := openRedis(t, "redis+cluster://"+nodes[0].Addr, "", 5)
	storm(t, s)
	var total int
	for _, n := range nodes {
		total += len(strings.Fields(n.Command("KEYS", "agentos:{p*}:r:*")))
	}
	sum, err := fsck.Run(t.Context(), fsck.Options{Store: s, Clock: clock.System{}, Report: func(store.Finding) error { return nil }})
	if err != nil || sum.Runs != total {
		t.Errorf("%d runs checked (%v), there are %d", sum.Runs, err, total)
	}
}

// Runs whose retention is over vanish key by key, and their places in lists later:
// neither is damage.
func TestExpiryIsNoDamage(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	s, err := redis.Open(t.Context(), redis.Config{URL: r.URL(), Retention: 30 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := newAuthor(t, s)
	for n := range 60 {
		a.approved(runID(n))
		if n%10 == 0 {
			same(t, "found", check(t, s, n%20 == 0), nil)
		}
	}
	for n := range 60 { // until the last is gone
		for {
			if _, err := s.Run(t.Context(), runID(n)); errors.Is(err, store.ErrNotFound) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	same(t, "when all are gone", check(t, s, false), nil)
	if got := r.Command("ZCARD", "agentos:{p0}:runs:prod"); got == ":0" {
		t.Error("no place in a list was left; the test shows nothing")
	}
}

// BenchmarkFsck checks 100,000 runs; its memory is that of a page.
func BenchmarkFsck(b *testing.B) {
	for name, s := range map[string]checkable{
		"file":  openFile(b, filepath.Join(b.TempDir(), "runs.db"), clock.System{}),
		"redis": openRedis(b, testenv.StartRedis(b).URL(), "", 1),
	} {
		b.Run(name, func(b *testing.B) {
			const n = 100_000
			if _, err := s.Run(b.Context(), storetest.RunID(0)); errors.Is(err, store.ErrNotFound) {
				storetest.Fill(b, s, n)
			}
			b.ResetTimer()
			for range b.N {
				var peak, start goruntime.MemStats
				goruntime.GC()
				goruntime.ReadMemStats(&start)
				var most uint64
				sum, err := fsck.Run(b.Context(), fsck.Options{
					Store: s, Clock: clock.System{}, Report: func(store.Finding) error { return nil },
					Progress: func(sum fsck.Summary) {
						if sum.Runs%10_000 < 200 {
							goruntime.GC()
							goruntime.ReadMemStats(&peak)
							most = max(most, peak.HeapAlloc)
						}
					},
				})
				if err != nil || sum.Runs < n || sum.Findings > 0 {
					b.Fatal(sum, err)
				}
				b.Logf("%d KiB more while it ran", (int64(most)-int64(start.HeapAlloc))/1024)
			}
		})
	}
}
