package auth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentos/api"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/problem"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shifted is the system clock, moved by a test.
type shifted struct{ by atomic.Int64 }

func (c *shifted) Now() time.Time                         { return time.Now().Add(time.Duration(c.by.Load())) }
func (c *shifted) After(d time.Duration) <-chan time.Time { return time.After(d) }
func (c *shifted) move(d time.Duration)                   { c.by.Add(int64(d)) }

// documents is a store that can fail, and counts what is read.
type documents struct {
	Documents
	mu    sync.Mutex
	fault error
	reads int
}

func (d *documents) Document(ctx context.Context, env, name string) (store.Document, error) {
	d.mu.Lock()
	d.reads++
	fault := d.fault
	d.mu.Unlock()
	if fault != nil {
		return store.Document{}, fault
	}
	return d.Documents.Document(ctx, env, name)
}

func (d *documents) set(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = err
}

func (d *documents) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads
}

func newDocuments(t *testing.T) *documents {
	t.Helper()
	s, err := file.Open(t.Context(), file.Config{Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &documents{Documents: s}
}

// open makes a keyring of one server.
func open(t *testing.T, docs Documents, c clock.Clock) *Keyring {
	t.Helper()
	k, err := New(Config{Store: docs, Env: "default", Clock: c, IDs: ids.Random{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func create(t *testing.T, k *Keyring, c api.CreateKey) api.CreatedKey {
	t.Helper()
	made, err := k.Create(t.Context(), Actor{Name: "local"}, c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func admin(name string) api.CreateKey { return api.CreateKey{Name: name, Roles: []string{"admin"}} }

// comesIn wants a code of Authenticate, "" for success.
func comesIn(t *testing.T, k *Keyring, secret string, want problem.Code) Principal {
	t.Helper()
	p, err := k.Authenticate(t.Context(), secret, "192.0.2.1")
	if got := problem.CodeOf(err); got != want {
		t.Errorf("%.12s…: %v, want %q", secret, err, want)
	}
	if err != nil && p.Name != "" && want != problem.StoreUnavailable {
		t.Errorf("%+v came with %v", p, err)
	}
	return p
}

// eventually waits until ok, which must be within d.
func eventually(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(d)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", d, what)
		case <-tick.C:
		}
	}
}

// follow follows until the test ends.
func follow(t *testing.T, k *Keyring) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Follow(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
}

var errAway = fmt.Errorf("dial redis.internal: %w", store.ErrUnavailable)
