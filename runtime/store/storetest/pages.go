package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// Fill creates n runs, from several sides at once. Their ids are RunID of 0 to n-1.
func Fill(tb testing.TB, s store.Store, n int) {
	tb.Helper()
	const sides = 32
	var wg sync.WaitGroup
	for side := range sides {
		wg.Go(func() {
			for i := side; i < n; i += sides {
				if err := add(tb.Context(), s, i); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// RunID returns a run id that tells its number.
func RunID(n int) string { return runID(n) }

func add(ctx context.Context, s store.Store, n int) error {
	created, err := journal.Encode(journal.RunCreated, journal.Created{
		Agent: "clerk", Capability: "answer", Input: json.RawMessage(`{}`), Prompt: "go",
	})
	if err != nil {
		return err
	}
	_, err = s.Create(ctx, store.Create{
		Op: fmt.Sprint("fill", n), RunID: runID(n), Request: "r", Env: "prod", Agent: "clerk", Capability: "answer", Entry: created,
	})
	return err
}

// Pages reads all of a list of n runs made by Fill, page by page, while more runs
// are added: every run is there once, the newest first, and none of the added.
// each is called after every page.
func Pages(tb testing.TB, s store.Store, f store.RunFilter, n int, each func(page int)) {
	tb.Helper()
	seen := make(map[string]bool, n)
	page := store.Page{Limit: maxLimit}
	var last time.Time
	for pages := 1; ; pages++ {
		rows, next, err := s.Runs(tb.Context(), f, page)
		if err != nil {
			tb.Fatal(err)
		}
		for _, r := range rows {
			if seen[r.ID] {
				tb.Fatalf("page %d has %s again", pages, r.ID)
			}
			if !last.IsZero() && r.CreatedAt.After(last) {
				tb.Fatalf("page %d has %s of %s after one of %s", pages, r.ID, r.CreatedAt, last)
			}
			seen[r.ID], last = true, r.CreatedAt
		}
		if each != nil {
			each(pages)
		}
		if next == "" {
			break
		}
		if pages%10 == 1 {
			if err := add(tb.Context(), s, n+pages); err != nil {
				tb.Fatal(err)
			}
		}
		page.Cursor = next
	}
	for i := range n {
		if !seen[runID(i)] {
			tb.Fatalf("%s is in no page", runID(i))
		}
	}
	if len(seen) != n {
		tb.Errorf("the pages have %d runs, there were %d when the first was read", len(seen), n)
	}
}

// maxLimit is the most rows a page may have.
const maxLimit = 200
