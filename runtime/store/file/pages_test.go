package file_test

import (
	"path/filepath"
	"testing"

	"agentos/internal/clock"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/storetest"
)

func fill(tb testing.TB, n int) *file.Store {
	tb.Helper()
	s, err := file.Open(tb.Context(), file.Config{Path: filepath.Join(tb.TempDir(), "runs.db"), Clock: clock.System{}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	storetest.Fill(tb, s, n)
	return s
}

// That no page reads more than its rows is in TestQueriesUseIndexes.
func TestPagesOfManyRuns(t *testing.T) {
	t.Parallel()
	const n = 20_000
	s := fill(t, n)
	storetest.Pages(t, s, store.RunFilter{}, n, nil)
}

// BenchmarkPages reads the pages of 100,000 runs in turn: the time of one does not
// depend on where it is.
func BenchmarkPages(b *testing.B) {
	s := fill(b, 100_000)
	page := store.Page{Limit: 200}
	b.ResetTimer()
	for range b.N {
		_, next, err := s.Runs(b.Context(), store.RunFilter{}, page)
		if err != nil {
			b.Fatal(err)
		}
		page.Cursor = next
	}
}
