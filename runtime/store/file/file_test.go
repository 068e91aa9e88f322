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
				if err := s.Exec(t.Context(), "DELETE FROM entries WHERE id = (SELECT n << 20 | seq FROM runs WHERE id = ?)", runID); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
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
