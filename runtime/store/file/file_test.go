package file_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/storetest"
)

func TestMain(m *testing.M) {
	child() // does not return in a child process of the crash test
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, path string, c *storetest.Clock) *file.Store {
	t.Helper()
	s, err := file.Open(t.Context(), file.Config{Path: path, Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestFileKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		path := filepath.Join(t.TempDir(), "runs.db")
		c := storetest.NewClock()
		s := open(t, path, c)
		return storetest.Harness{
			Store: s, Advance: c.Advance, Frozen: true,
			Restart: func() store.Store {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				s = open(t, path, c)
				return s
			},
			Damage: func(runID string) {
				db := raw(t, path)
				execSQL(t, db, "DELETE FROM entries WHERE id = (SELECT n << 20 | seq FROM runs WHERE id = ?)", runID)
			},
			Ruin:   func(runID string) { execSQL(t, raw(t, path), ruin, runID) },
			Mend:   func(runID string) { execSQL(t, raw(t, path), mend, runID) },
			Hasten: func(runID string) { execSQL(t, raw(t, path), hasten, runID) },
		}
	})
}

func TestMemoryKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		t.Helper()
		c := storetest.NewClock()
		s := open(t, "", c)
		return storetest.Harness{
			Store: s, Advance: c.Advance, Frozen: true,
			Damage: func(runID string) {
				execIn(t, s, "DELETE FROM entries WHERE id = (SELECT n << 20 | seq FROM runs WHERE id = ?)", runID)
			},
			Ruin:   func(runID string) { execIn(t, s, ruin, runID) },
			Mend:   func(runID string) { execIn(t, s, mend, runID) },
			Hasten: func(runID string) { execIn(t, s, hasten, runID) },
		}
	})
}

// What is done to a run behind the driver's back.
const (
	ruin   = "UPDATE runs SET leased = 5 WHERE id = ?"
	mend   = "UPDATE runs SET leased = 0 WHERE id = ?"
	hasten = "UPDATE runs SET due = 1 WHERE id = ?"
)

// execIn runs a statement in the store itself, which need not have a file.
func execIn(t *testing.T, s *file.Store, query string, args ...any) {
	t.Helper()
	if err := s.Exec(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// raw opens the file beside the store.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execSQL(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
