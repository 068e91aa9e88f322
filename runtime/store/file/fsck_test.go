package file_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/storetest"
)

// Every way in which fsck comes upon a run goes through more than one page.
func TestTracesOfMany(t *testing.T) {
	t.Parallel()
	const n, lost = 2_000, 1_100
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := file.Open(t.Context(), file.Config{Path: path, Clock: storetest.NewClock()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.Fill(t, s, n)
	for _, q := range []string{
		"INSERT INTO state (scope, key, value) SELECT 'run/' || id, 'k', x'31' FROM runs",
		"INSERT INTO state (scope, key, value) VALUES ('session/x', 'k', x'31'), ('run', 'k', x'31'), ('run0', 'k', x'31')",
		"INSERT INTO holds (id, run, env, agent, status, revision, created_at, expires_at, body) SELECT 'h_' || substr(id, 3) || '_1', n, env, agent, 'pending', 1, 0, 0, x'' FROM runs",
		"DELETE FROM runs WHERE n <= 1100",
	} {
		if err := s.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[store.Trace]int{}
	err = s.Traces(t.Context(), func(page []store.Trace) error {
		if len(page) > 500 {
			t.Errorf("a page has %d traces", len(page))
		}
		for _, tr := range page {
			seen[tr]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	runs, twice, parts := 0, 0, 0
	for tr, times := range seen {
		switch {
		case tr.RunID == "":
			parts++
		case times == 1:
			runs++
		case times == 2: // by its hold and by its state
			twice++
		default:
			t.Errorf("%v is seen %d times", tr, times)
		}
	}
	if runs != n-lost || twice != lost || parts != 1+lost {
		t.Errorf("%d runs, %d lost ones by hold and state, %d other parts; want %d, %d, %d", runs, twice, parts, n-lost, lost, 1+lost)
	}
}

func TestTracesEnd(t *testing.T) {
	t.Parallel()
	s := open(t, "", storetest.NewClock())
	enough := errors.New("enough")
	if err := s.Traces(t.Context(), func([]store.Trace) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the visitor's error: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Traces(ctx, func([]store.Trace) error { return nil }); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("after the caller has gone: %v", err)
	}
	if in, err := s.Inspect(t.Context(), store.Trace{RunID: "r_none"}, true); err != nil || in.Record != nil || len(in.Findings) > 0 {
		t.Errorf("a run that is gone: %+v, %v", in, err)
	}
	if _, err := s.Inspect(t.Context(), store.Trace{Part: "entries of run number x"}, false); err == nil {
		t.Error("a part that is none was inspected")
	}
}
