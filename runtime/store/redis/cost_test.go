package redis_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"agentos/holds"
	"agentos/internal/testenv"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/redis"
)

// words returns n bytes of text that does not compress to nothing.
func words(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(strconv.FormatUint(r.Uint64(), 36))
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

// park creates n runs that wait on a hold after a conversation of 4 KB.
func park(tb testing.TB, s *redis.Store, n int) []holds.Hold {
	tb.Helper()
	text := `{"text":"` + words(2<<10) + `"}`
	out := make([]holds.Hold, n)
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			for i := w; i < n; i += 16 {
				req := newRun(time.Minute)
				req.Entry.Data = []byte(text)
				c, err := s.Create(tb.Context(), req)
				if err != nil {
					tb.Error(err)
					return
				}
				out[i] = newHold(c.Record, c.Entry.At)
				tx := opening(out[i])
				tx.Entries = append([]journal.New{entry(journal.ModelAnswered, text)}, tx.Entries...)
				out[i].Revision++
				tx.Hold = &out[i]
				if _, err := s.Commit(tb.Context(), c.Lease, tx); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return out
}

// calls counts the commands the server runs while f does, by name.
func calls(r *testenv.Redis, f func()) map[string]int {
	r.Command("CONFIG", "RESETSTAT")
	f()
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(r.Command("INFO", "commandstats"), -1) {
		out[m[1]], _ = strconv.Atoi(m[2])
	}
	delete(out, "config|resetstat")
	delete(out, "info")
	return out
}

// Ten thousand parked runs make no operation run one command more, and none
// looks through the keyspace.
func TestParkedRunsCostNothing(t *testing.T) {
	t.Parallel()
	r := server(t)
	ops := func(s *redis.Store, h holds.Hold) map[string]int {
		return calls(r, func() {
			ctx := t.Context()
			if _, err := s.Hold(ctx, h.ID); err != nil {
				t.Error(err)
			}
			d, err := s.Decide(ctx, approval(h, "ann"))
			if err != nil {
				t.Error(err)
			}
			if _, err := s.Commit(ctx, d.Lease, ending()); err != nil {
				t.Error(err)
			}
			if got, err := s.Claim(ctx, 10, time.Minute); err != nil || len(got) != 0 {
				t.Errorf("claimed %d: %v", len(got), err)
			}
			if _, _, err := s.Holds(ctx, store.HoldFilter{Env: "default", Status: holds.Decided}, store.Page{Limit: 1}); err != nil {
				t.Error(err)
			}
			other := open(t, r.URL())
			if _, err := other.Health(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	s := open(t, r.URL())
	park(t, s, 1)
	few := park(t, s, 3)
	ops(s, few[0]) // teaches the server its scripts
	want := ops(s, few[1])
	many := park(t, s, 10_000)
	got := ops(s, many[5_000])
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("commands with 10,000 parked runs: %v\nwith few: %v", got, want)
	}
	for _, name := range []string{"keys", "scan", "sort", "hscan", "zscan"} {
		if got[name] > 0 {
			t.Errorf("%s was called %d times", name, got[name])
		}
	}
	for _, name := range []string{"evalsha", "eval"} {
		t.Logf("%s: %d", name, got[name])
	}
}

func TestHeldRunIsSmall(t *testing.T) {
	t.Parallel()
	r := server(t)
	s := open(t, r.URL())
	size := func() (keys, bytes int) {
		for _, key := range keysLike(r, "*") {
			keys++
			n, err := strconv.Atoi(strings.TrimPrefix(r.Command("MEMORY", "USAGE", key, "SAMPLES", "0"), ":"))
			if err != nil {
				t.Fatal(err)
			}
			bytes += n
		}
		return keys, bytes
	}
	park(t, s, 200) // past the size up to which indexes are kept compact
	keys, bytes := size()
	park(t, s, 100)
	moreKeys, moreBytes := size()
	moreKeys -= keys
	moreBytes -= bytes
	t.Logf("per held run: %.1f keys, %d bytes with its share of the indexes", float64(moreKeys)/100, moreBytes/100)
	if moreKeys > 300 || moreBytes > 100*8<<10 {
		t.Errorf("100 held runs take %d keys and %d bytes, want at most 300 and %d", moreKeys, moreBytes, 100*8<<10)
	}
}

// BenchmarkCommit is one transition; BenchmarkFloor the same writes in a script
// that checks nothing.
func BenchmarkCommit(b *testing.B) {
	s := open(b, testenv.StartRedis(b).URL())
	c, err := s.Create(b.Context(), newRun(time.Minute))
	if err != nil {
		b.Fatal(err)
	}
	text := `{"text":"` + words(1<<10) + `"}`
	b.ReportAllocs()
	for b.Loop() {
		tx := store.Tx{Op: token(), Status: store.Running, Lease: time.Minute, Entries: []journal.New{entry(journal.ModelAnswered, text)}}
		if _, err := s.Commit(b.Context(), c.Lease, tx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFloor(b *testing.B) {
	client := goredis.NewClient(&goredis.Options{Addr: testenv.StartRedis(b).Addr, Protocol: 2})
	defer client.Close()
	script := goredis.NewScript(`redis.call('HSET', KEYS[1], 'st', ARGV[1], 'n', ARGV[2], 'op', ARGV[3])
		redis.call('RPUSH', KEYS[2], ARGV[4])
		return redis.call('ZADD', KEYS[3], ARGV[2], KEYS[1])`)
	text := `{"text":"` + words(1<<10) + `"}`
	b.ReportAllocs()
	for b.Loop() {
		if err := script.Run(b.Context(), client, []string{"{a}r", "{a}j", "{a}due"}, "running", 7, token(), text).Err(); err != nil {
			b.Fatal(err)
		}
	}
}
