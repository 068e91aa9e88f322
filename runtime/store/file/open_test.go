package file_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentos/internal/problem"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/storetest"
)

func wantLocked(t *testing.T, err error, path string) {
	t.Helper()
	if !errors.Is(err, store.ErrLocked) || problem.CodeOf(err) != problem.StoreLocked {
		t.Fatalf("error is %v", err)
	}
	message := problem.From(err).Message
	for _, want := range []string{path, "another process", "Redis"} {
		if !strings.Contains(message, want) {
			t.Errorf("message %q does not say %q", message, want)
		}
	}
}

func create(id string) store.Create {
	return store.Create{Op: "op" + id, RunID: "r_" + id, Request: "q", Env: "e", Agent: "a", SessionID: "s", Entry: note(journal.RunCreated)}
}

func TestLockHoldsForEveryNameOfTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "runs.db")
	s := open(t, path, storetest.NewClock())
	for _, name := range []string{"link.db", "runs.db"} {
		if name != "runs.db" {
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := file.Open(t.Context(), file.Config{Path: filepath.Join(dir, name), Clock: storetest.NewClock()})
		wantLocked(t, err, path)
	}
	if _, err := s.Create(t.Context(), create("1")); err != nil {
		t.Fatalf("the refused ones disturbed the first: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path, storetest.NewClock())
	if _, err := again.Run(t.Context(), "r_1"); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheOwnerMayRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "for it")
	path := filepath.Join(dir, `ru ns?#%20.db`)
	s := open(t, path, storetest.NewClock())
	if _, err := s.Create(t.Context(), create("1")); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 3 {
		t.Errorf("%d files, want the store, its log and its lock at least", len(list))
	}
	for _, f := range list {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f.Name(), info.Mode())
		}
		if !strings.HasPrefix(f.Name(), filepath.Base(path)) {
			t.Errorf("unexpected file %q", f.Name())
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory has mode %v, %v", info.Mode(), err)
	}
}

func TestOpenRefusesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"newer": {func(t *testing.T, path string) {
			t.Helper()
			if err := open(t, path, storetest.NewClock()).Close(); err != nil {
				t.Fatal(err)
			}
			execSQL(t, raw(t, path), "PRAGMA user_version = 99")
		}, "schema version 99"},
		"foreign": {func(t *testing.T, path string) {
			t.Helper()
			execSQL(t, raw(t, path), "CREATE TABLE theirs (a)")
		}, "another program"},
		"text": {func(t *testing.T, path string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(strings.Repeat("not a database\n", 100)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a database"},
		"directory": {func(t *testing.T, path string) {
			t.Helper()
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "runs.db")
			c.make(t, path)
			_, err := file.Open(t.Context(), file.Config{Path: path, Clock: storetest.NewClock()})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error is %v, want %q and the path", err, c.want)
			}
			if name == "directory" {
				return
			}
			if lock, err := os.Stat(path + ".lock"); err != nil || lock.Size() != 0 {
				t.Errorf("lock file: %v", err)
			}
			_, again := file.Open(t.Context(), file.Config{Path: path, Clock: storetest.NewClock()})
			if errors.Is(again, store.ErrLocked) {
				t.Error("a refused open keeps the lock")
			}
		})
	}
	if _, err := file.Open(t.Context(), file.Config{}); err == nil {
		t.Error("opened without a clock")
	}
}

func TestHealthTellsTheDriver(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]store.Health{
		"":                                    {Driver: "memory"},
		":memory:":                            {Driver: "memory"},
		filepath.Join(t.TempDir(), "runs.db"): {Driver: "file", Durable: true},
	} {
		h, err := open(t, path, storetest.NewClock()).Health(t.Context())
		if err != nil || h.Driver != want.Driver || h.Durable != want.Durable || (len(h.Warnings) == 0) != want.Durable {
			t.Errorf("%q: %+v, %v", path, h, err)
		}
	}
}

// The lock goes by the name of the file, so a file with two names is refused
// before two processes can write it.
func TestHardLinkIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	if err := open(t, path, storetest.NewClock()).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, path+".hard"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".hard"} {
		s, err := file.Open(t.Context(), file.Config{Path: name, Clock: storetest.NewClock()})
		if err == nil {
			t.Errorf("%s was opened", name)
			_ = s.Close()
		} else if !strings.Contains(err.Error(), "hard links") {
			t.Errorf("open %s: %v", name, err)
		}
	}
}

// A file of an older version is brought up to date, keeps its runs, and then looks
// like a new one.
func TestOlderFilesAreBroughtUpToDate(t *testing.T) {
	t.Parallel()
	fresh := filepath.Join(t.TempDir(), "new.db")
	if err := open(t, fresh, storetest.NewClock()).Close(); err != nil {
		t.Fatal(err)
	}
	// What a version is without what the next one added.
	undo := []string{
		"DROP TABLE orders; DROP INDEX runs_key; ALTER TABLE runs DROP COLUMN key;",
		"DROP TABLE documents;",
		`DROP TABLE logs; DROP INDEX runs_notify; ALTER TABLE runs DROP COLUMN notify_at; ALTER TABLE runs DROP COLUMN claimed;
		ALTER TABLE runs DROP COLUMN claims; ALTER TABLE runs DROP COLUMN told;`,
	}
	for i := range undo {
		t.Run(fmt.Sprint("version ", i+1), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "runs.db")
			s := open(t, path, storetest.NewClock())
			if _, err := s.Create(t.Context(), create("1")); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			old := raw(t, path)
			execSQL(t, old, strings.Join(undo[i:], "")+fmt.Sprintf("PRAGMA user_version = %d", i+1))
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, path, storetest.NewClock())
			if _, err := s.Run(t.Context(), "r_1"); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if got, want := columns(t, path), columns(t, fresh); got != want {
				t.Errorf("the file has\n%s\na new one has\n%s", got, want)
			}
		})
	}
}

// columns lists what the tables of a file have, and its indexes.
func columns(t *testing.T, path string) string {
	t.Helper()
	db := raw(t, path)
	defer db.Close()
	var out string
	err := db.QueryRowContext(t.Context(), `SELECT group_concat(line, char(10)) FROM (
		SELECT t.name || ' ' || c.name || ' ' || c.type || ' ' || c."notnull" AS line FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'
		UNION SELECT 'index ' || name || ' on ' || tbl_name FROM sqlite_schema WHERE type = 'index' ORDER BY line)`).Scan(&out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
