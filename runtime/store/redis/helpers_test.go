package redis_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/holds"
	"agentos/internal/testenv"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/redis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a store that is closed with the test. Changes are made to the
// config after the defaults.
func open(tb testing.TB, url string, change ...func(*redis.Config)) *redis.Store {
	tb.Helper()
	cfg := redis.Config{URL: url, Log: discard()}
	for _, f := range change {
		f(&cfg)
	}
	s, err := redis.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// redisConfig keeps the name of the package out of tests that only change a field.
type redisConfig = redis.Config

func prefix(p string) func(*redisConfig) { return func(c *redisConfig) { c.Prefix = p } }

// server starts a Redis that keeps nothing on disk.
func server(tb testing.TB, config ...string) *testenv.Redis {
	tb.Helper()
	return testenv.StartRedis(tb, config...)
}

var counter atomic.Int64

// token returns a new operation token.
func token() string { return fmt.Sprintf("op%024d", counter.Add(1)) }

// newRun returns the creation of a new run in env "default".
func newRun(lease time.Duration) store.Create {
	return store.Create{
		Op: token(), RunID: fmt.Sprintf("r_%026d", counter.Add(1)), Request: "sha256:aa", Env: "default",
		Agent: "support", Capability: "refund", SessionID: "s1", Lease: lease,
		Entry: entry(journal.RunCreated, `{"input":{"n":9007199254740993}}`), Summary: json.RawMessage(`{"turns":0}`),
	}
}

func entry(t journal.Type, data string) journal.New {
	return journal.New{Type: t, Data: json.RawMessage(data)}
}

// newHold returns the first hold of the run, pending for an hour.
func newHold(run store.Record, now time.Time) holds.Hold {
	return holds.Hold{
		ID: store.HoldID(run.ID, 1), RunID: run.ID, Env: run.Env, Agent: run.Agent, Capability: run.Capability,
		Kind: holds.ToolCall, Status: holds.Pending, Intent: "Refund order 7", Actions: holds.Actions(holds.ToolCall),
		Items: []holds.Item{{
			ID: "call_1", Title: "refund", Server: "orders", Tool: "refund_order",
			Data: json.RawMessage(`{"id":9007199254740993,"lines":[]}`),
		}},
		Revision: run.Seq + 1, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
	}
}

// hang creates a run and holds it.
func hang(tb testing.TB, s *redis.Store) (store.Record, holds.Hold) {
	tb.Helper()
	c, err := s.Create(tb.Context(), newRun(time.Minute))
	if err != nil {
		tb.Fatal(err)
	}
	h := newHold(c.Record, c.Entry.At)
	if _, err := s.Commit(tb.Context(), c.Lease, opening(h)); err != nil {
		tb.Fatal(err)
	}
	v, err := s.Run(tb.Context(), c.Record.ID)
	if err != nil {
		tb.Fatal(err)
	}
	return v.Record, h
}

func opening(h holds.Hold) store.Tx {
	return store.Tx{
		Op: token(), Status: store.Held, Hold: &h,
		Entries: []journal.New{entry(journal.HoldOpened, `{"hold":{}}`)},
	}
}

// approval decides the hold and asks for a lease.
func approval(h holds.Hold, by string) store.Decide {
	seen := h.Revision
	h.Items = append([]holds.Item(nil), h.Items...)
	h.Items[0].Decision = &holds.Decision{Action: holds.Approve, By: by}
	h.Status, h.Revision = holds.Decided, seen+2
	return store.Decide{
		Op: token(), Hold: h, Seen: seen, Lease: time.Minute,
		Entries: []journal.New{entry(journal.HoldDecided, `{"by":"`+by+`"}`), entry(journal.HoldClosed, `{"why":"decided"}`)},
	}
}

func ending() store.Tx {
	return store.Tx{
		Op: token(), Status: store.Completed,
		Entries: []journal.New{entry(journal.RunCompleted, `{"output":{"ok":true}}`)},
	}
}

// vandal does things to the key of a run behind the driver's back.
type vandal struct {
	r   *testenv.Redis
	key string
	// wrongType says that it is ruined by another type, not by another text.
	wrongType bool
}

func (b vandal) ruin() {
	b.r.Command("COPY", b.key, strings.Replace(b.key, "}:r:", "}:was:", 1))
	if b.wrongType {
		b.r.Command("SET", b.key, "x")
	} else {
		b.r.Command("HSET", b.key, "v", "garbage")
	}
}

func (b vandal) mend() { b.r.Command("RENAME", strings.Replace(b.key, "}:r:", "}:was:", 1), b.key) }

func (b vandal) hasten() {
	base, run, _ := strings.Cut(b.key, "r:r_")
	b.r.Command("ZADD", base+"due", "1", "r_"+run)
}

// keysLike lists the keys that match, from behind the driver's back.
func keysLike(r *testenv.Redis, pattern string) []string {
	return strings.Fields(r.Command("KEYS", pattern))
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
