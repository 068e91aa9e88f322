package file_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentos/holds"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/runtime/journal"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
)

// childEnv names the file a child process works on until it is killed.
const childEnv = "AGENTOS_TEST_CRASH_FILE"

// child is the process that the crash test kills: it runs as fast as it can
// and says what was acknowledged.
func child() {
	path := os.Getenv(childEnv)
	if path == "" {
		return
	}
	ctx := context.Background()
	s, err := file.Open(ctx, file.Config{Path: path, Clock: clock.System{}})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(3)
	}
	fmt.Println("open")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				if err := oneRun(ctx, s); err != nil {
					fmt.Println("error", err)
					os.Exit(3)
				}
			}
		})
	}
	wg.Wait()
}

// oneRun takes a run through everything, telling each acknowledged step.
func oneRun(ctx context.Context, s *file.Store) error {
	id := ids.Random{}.Run()
	pair := []journal.New{note(journal.CallStarted), note(journal.CallFinished)}
	c, err := s.Create(ctx, store.Create{Op: "a", RunID: id, Env: "e", Agent: "a", Entry: note(journal.RunCreated), Lease: time.Minute})
	if err != nil {
		return err
	}
	fmt.Println("ack", id, 1, store.Running)
	if _, err := s.Commit(ctx, c.Lease, store.Tx{Op: "b", Status: store.Running, Lease: time.Minute, Entries: pair}); err != nil {
		return err
	}
	fmt.Println("ack", id, 3, store.Running)
	h := holds.Hold{
		ID: store.HoldID(id, 1), RunID: id, Env: "e", Agent: "a", Status: holds.Pending, Revision: 5,
		CreatedAt: c.Entry.At, ExpiresAt: c.Entry.At.Add(time.Hour),
	}
	if _, err := s.Commit(ctx, c.Lease, store.Tx{Op: "c", Status: store.Held, Hold: &h, Entries: pair}); err != nil {
		return err
	}
	fmt.Println("ack", id, 5, store.Held)
	h.Status, h.Revision = holds.Decided, 7
	d, err := s.Decide(ctx, store.Decide{Op: "d", Hold: h, Seen: 5, Lease: time.Minute, Entries: pair})
	if err != nil {
		return err
	}
	fmt.Println("ack", id, 7, store.Running)
	end := []journal.New{note(journal.ModelAnswered), note(journal.RunCompleted)}
	if _, err := s.Commit(ctx, d.Lease, store.Tx{Op: "e", Status: store.Completed, Entries: end}); err != nil {
		return err
	}
	fmt.Println("ack", id, 9, store.Completed)
	return nil
}

func note(t journal.Type) journal.New {
	return journal.New{Type: t, Data: []byte(`{"text":"` + strings.Repeat("x", 300) + `"}`)}
}

// statuses are what a run of the child can be at each number of entries; nothing
// between them was ever committed.
var statuses = map[int64]store.Status{1: store.Running, 3: store.Running, 5: store.Held, 7: store.Running, 9: store.Completed}

func TestKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	acked := map[string]int64{}
	for round := range 8 {
		killAfter(t, path, acked, 40+150*round)
		s, err := file.Open(t.Context(), file.Config{Path: path, Clock: clock.System{}})
		if err != nil {
			t.Fatal(err)
		}
		checkAcked(t, s, acked)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		checkFile(t, path)
	}
	t.Logf("%d runs in 8 rounds", len(acked))
}

// killAfter starts a child and kills it once it has told so many steps. What it
// managed to tell until it was dead counts too.
func killAfter(t *testing.T, path string, acked map[string]int64, steps int) {
	t.Helper()
	cmd, out := startChild(t, path)
	lines := 0
	for out.Scan() {
		var id string
		var seq int64
		if n, _ := fmt.Sscanf(out.Text(), "ack %s %d", &id, &seq); n == 2 {
			acked[id] = max(acked[id], seq)
		} else if strings.HasPrefix(out.Text(), "error") {
			t.Fatal(out.Text())
		}
		if lines++; lines == steps {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // killed
	if lines < steps {
		t.Fatalf("the child ended after %d lines", lines)
	}
}

func startChild(t *testing.T, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func checkAcked(t *testing.T, s *file.Store, acked map[string]int64) {
	t.Helper()
	for id, seq := range acked {
		v, err := s.Run(t.Context(), id)
		if err != nil {
			t.Fatalf("acknowledged run is lost: %v", err)
		}
		if v.Seq < seq {
			t.Errorf("run %s has %d entries, %d were acknowledged", id, v.Seq, seq)
		}
		if statuses[v.Seq] != v.Status || (v.Status == store.Held) != (v.Hold != nil) {
			t.Errorf("run %s is %s with %d entries and hold %v", id, v.Status, v.Seq, v.Hold)
		}
		if list, err := s.Journal(t.Context(), id, 0); err != nil || int64(len(list)) != v.Seq {
			t.Errorf("run %s: %d entries, %v", id, len(list), err)
		}
	}
}

func checkFile(t *testing.T, path string) {
	t.Helper()
	db := raw(t, path)
	for query, want := range map[string]string{
		"PRAGMA integrity_check": "ok",
		"SELECT count(*) FROM runs WHERE (due IS NULL) <> (status = 'completed')":                                         "0",
		"SELECT count(*) FROM runs WHERE (hold <> '') <> (status = 'held')":                                               "0",
		"SELECT count(*) FROM entries e LEFT JOIN runs r ON r.n = e.id >> 20 WHERE r.n IS NULL OR (e.id & 1048575) > seq": "0",
		"SELECT count(*) FROM holds h LEFT JOIN runs r ON r.n = h.run WHERE r.n IS NULL":                                  "0",
	} {
		var got string
		if err := db.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %s, %v", query, got, err)
		}
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	cmd, out := startChild(t, path)
	for out.Scan() && out.Text() != "open" {
		t.Fatal(out.Text())
	}
	_, err := file.Open(t.Context(), file.Config{Path: path, Clock: clock.System{}})
	wantLocked(t, err, path)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for out.Scan() { // until it is gone
	}
	_ = cmd.Wait() // killed
	s, err := file.Open(t.Context(), file.Config{Path: path, Clock: clock.System{}})
	if err != nil {
		t.Fatalf("the lock outlived its process: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
