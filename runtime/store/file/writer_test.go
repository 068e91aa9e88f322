package file_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/storetest"
)

var errOwn = errors.New("refused by the test")

// TestGroupSharesOneTransaction holds the writer up until others wait behind it,
// and looks from the last of them at what readers see.
func TestGroupSharesOneTransaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path, storetest.NewClock())
		defer s.Close()
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = s.Operate(t.Context(), func(func(string, ...any) error, func(string) int) error { <-release; return nil })
		})
		synctest.Wait()
		for n := range 10 {
			wg.Go(func() {
				if _, err := s.Create(t.Context(), create(strconv.Itoa(n))); err != nil {
					t.Errorf("create: %v", err)
				}
			})
		}
		wg.Go(func() { // writes, then fails: undone, and nothing else with it
			err := s.Operate(t.Context(), func(exec func(string, ...any) error, _ func(string) int) error {
				if err := exec("UPDATE probe SET at = 42"); err != nil {
					return err
				}
				return errOwn
			})
			if !errors.Is(err, errOwn) {
				t.Errorf("error is %v", err)
			}
		})
		gone, leave := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := s.Create(gone, create("gone")); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("error is %v", err)
			}
		})
		synctest.Wait()
		leave() // before its turn has come
		synctest.Wait()
		wg.Go(func() {
			err := s.Operate(t.Context(), func(_ func(string, ...any) error, count func(string) int) error {
				if n := count("SELECT count(*) FROM runs"); n != 10 {
					t.Errorf("the transaction has %d runs", n)
				}
				if n := count("SELECT at FROM probe"); n != 0 {
					t.Errorf("the failed operation left %d", n)
				}
				rows, _, err := s.Runs(t.Context(), store.RunFilter{}, store.Page{Limit: 100})
				if len(rows) != 0 || err != nil {
					t.Errorf("readers see %d runs before the commit, %v", len(rows), err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		close(release)
		wg.Wait()
		rows, _, err := s.Runs(t.Context(), store.RunFilter{}, store.Page{Limit: 100})
		if len(rows) != 10 || err != nil {
			t.Errorf("%d runs after the commit, %v", len(rows), err)
		}
	})
}

// TestDiskFull uses the limit SQLite has for the size of a database, which fails
// like a full disk.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, path, storetest.NewClock())
	if _, err := s.Create(t.Context(), create("before")); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec(t.Context(), "PRAGMA max_page_count = 60"); err != nil {
		t.Fatal(err)
	}
	var made sync.Map
	var refused atomic.Int64
	var wg sync.WaitGroup
	for n := range 64 {
		wg.Go(func() {
			c := create(strconv.Itoa(n))
			c.Entry.Data = []byte(`"` + strings.Repeat("x", 1<<(n%16)) + `"`)
			_, err := s.Create(t.Context(), c)
			switch {
			case err == nil:
				made.Store(c.RunID, len(c.Entry.Data))
			case errors.Is(err, store.ErrUnavailable):
				refused.Add(1)
			default:
				t.Errorf("error is %v", err)
			}
		})
	}
	wg.Wait()
	if refused.Load() == 0 {
		t.Fatal("the disk was never full")
	}
	if _, err := s.Create(t.Context(), huge("last")); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("error is %v", err)
	}
	if err := s.Exec(t.Context(), "PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Health(t.Context()); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	if _, err := s.Create(t.Context(), huge("last")); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	for n := range 64 {
		id := fmt.Sprint("r_", n)
		list, err := s.Journal(t.Context(), id, 0)
		size, ok := made.Load(id)
		if ok && (err != nil || len(list) != 1 || len(list[0].Data) != size) || !ok && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("run %d was made: %t, and has %d entries, %v", n, ok, len(list), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, path)
}

func huge(id string) store.Create {
	c := create(id)
	c.Entry.Data = []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	return c
}

// TestHealthFailsWhileWritesFail makes the file impossible to write, and so to
// begin a transaction.
func TestHealthFailsWhileWritesFail(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "runs.db"), storetest.NewClock())
	if _, err := s.Create(t.Context(), create("1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec(t.Context(), "PRAGMA query_only = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Health(t.Context()); err != nil {
		t.Errorf("nobody has tried to write: %v", err)
	}
	for range 3 {
		if _, err := s.Create(t.Context(), create("2")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("create: %v", err)
		}
		if _, err := s.Health(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("health: %v", err)
		}
	}
	if _, err := s.Run(t.Context(), "r_1"); err != nil {
		t.Errorf("reads work still: %v", err)
	}
}

func TestCloseLetsOperationsEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, path, storetest.NewClock())
	var made sync.Map
	var wg sync.WaitGroup
	started := make(chan struct{}, 1)
	for n := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				c := create(fmt.Sprintf("%d x%d", n, i))
				if _, err := s.Create(t.Context(), c); err != nil {
					if !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("error is %v", err)
					}
					return
				}
				made.Store(c.RunID, true)
				if _, err := s.Run(t.Context(), c.RunID); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("error is %v", err)
				}
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	<-started
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	again := open(t, path, storetest.NewClock())
	made.Range(func(id, _ any) bool {
		if _, err := again.Run(t.Context(), id.(string)); err != nil {
			t.Errorf("acknowledged before Close: %v", err)
		}
		return true
	})
}

func TestRetentionDeletesOnlyWhatIsFinished(t *testing.T) {
	t.Parallel()
	const finished = 120 // more than two batches
	clock := storetest.NewClock()
	s, err := file.Open(t.Context(), file.Config{Clock: clock, Retention: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := range finished + 10 {
		c := create(strconv.Itoa(n))
		c.Lease = time.Minute
		made, err := s.Create(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.PutState(t.Context(), "run/"+c.RunID, "k", []byte("1")); err != nil {
			t.Fatal(err)
		}
		if n < finished {
			tx := store.Tx{Op: "end", Status: store.Completed, Entries: []journal.New{note(journal.RunCompleted)}}
			if _, err := s.Commit(t.Context(), made.Lease, tx); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func() (runs, entries, states int) {
		err := s.Operate(t.Context(), func(_ func(string, ...any) error, count func(string) int) error {
			runs, entries, states = count("SELECT count(*) FROM runs"), count("SELECT count(*) FROM entries"), count("SELECT count(*) FROM state")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return runs, entries, states
	}
	clock.Advance(24*time.Hour - time.Millisecond)
	count()
	if runs, _, _ := count(); runs != finished+10 {
		t.Errorf("%d runs before the retention is over", runs)
	}
	clock.Advance(2 * time.Minute)
	last := 0
	for range 4 { // a batch after each group of writes
		last, _, _ = count()
	}
	if runs, entries, states := count(); runs != 10 || entries != 10 || states != 10 {
		t.Errorf("%d runs, %d entries and %d values are left (%d runs before), want 10 of each", runs, entries, states, last)
	}
}

func TestQueriesUseIndexes(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "runs.db"), storetest.NewClock())
	page := store.Page{Limit: 10, Cursor: "5"}
	check := func(name, want, query string, args []any) {
		t.Helper()
		plan, err := s.Plan(t.Context(), query, args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all := strings.Join(plan, "\n")
		if strings.Contains(all, "SCAN") || strings.Contains(all, "TEMP B-TREE") || !strings.Contains(plan[0], want) {
			t.Errorf("%s: want %s\n%s", name, want, all)
		}
	}
	for want, f := range map[string]store.RunFilter{
		"INTEGER PRIMARY KEY": {Capability: "x"},
		"runs_session":        {SessionID: "x", Env: "x", Agent: "x", Status: store.Held, Capability: "x"},
		"runs_status":         {Env: "x", Agent: "x", Status: store.Held},
		"runs_agent":          {Env: "x", Agent: "x", Status: store.Completed},
		"runs_env":            {Env: "x", Status: store.Completed},
	} {
		query, args, err := file.RunsQuery(f, page)
		if err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("runs %+v", f), want, query, append(args, 10))
	}
	for want, f := range map[string]store.HoldFilter{
		"holds_status": {Env: "x", Agent: "x", Status: "pending", OpenedBefore: time.Unix(1, 0)},
		"holds_agent":  {Env: "x", Agent: "x", Status: "decided"},
		"holds_env":    {Env: "x"},
	} {
		query, args, err := file.HoldsQuery(f, page)
		if err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("holds %+v", f), want, query, append(args, 10))
	}
	check("claim", "runs_due", "SELECT n FROM runs r INDEXED BY runs_due WHERE r.due <= ? ORDER BY r.due, r.n LIMIT ?", []any{1, 1})
	check("sweep", "runs_finished", "SELECT n FROM runs INDEXED BY runs_finished WHERE due IS NULL AND updated_at < ? ORDER BY updated_at LIMIT ?", []any{1, 1})
}

// BenchmarkRun is the store's part of a run with one tool call: four writes.
func BenchmarkRun(b *testing.B) {
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			s, err := file.Open(b.Context(), file.Config{Path: filepath.Join(b.TempDir(), "runs.db"), Clock: storetest.NewClock()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var n atomic.Int64
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						if err := lookup(b.Context(), s, fmt.Sprintf("r_%d", i)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func lookup(ctx context.Context, s *file.Store, id string) error {
	c, err := s.Create(ctx, store.Create{Op: "a", RunID: id, Env: "e", Agent: "a", Entry: note(journal.RunCreated), Lease: time.Minute})
	if err != nil {
		return err
	}
	for i, e := range [][]journal.New{
		{note(journal.ModelAnswered), note(journal.CallStarted)},
		{note(journal.CallFinished)},
	} {
		tx := store.Tx{Op: strconv.Itoa(i), Status: store.Running, Lease: time.Minute, Entries: e}
		if _, err := s.Commit(ctx, c.Lease, tx); err != nil {
			return err
		}
	}
	_, err = s.Commit(ctx, c.Lease, store.Tx{
		Op: "end", Status: store.Completed,
		Entries: []journal.New{note(journal.ModelAnswered), note(journal.RunCompleted)},
	})
	return err
}
