package redis_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"agentos/internal/testenv"
	"agentos/runtime/store"
	"agentos/runtime/store/storetest"
)

// commands returns how many commands the server has run, those of scripts
// included.
func commands(tb testing.TB, r *testenv.Redis) int {
	tb.Helper()
	total := 0
	for _, m := range regexp.MustCompile(`(?m)^cmdstat_\S+:calls=(\d+)`).FindAllStringSubmatch(r.Command("INFO", "commandstats"), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			tb.Fatal(err)
		}
		total += n
	}
	return total
}

// Every page costs the same: two commands or so for a row, and a few to find its
// place, which grow with the logarithm of the list.
func TestPagesOfManyRuns(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint("partitions=", partitions), func(t *testing.T) {
			t.Parallel()
			const n, perPage = 20_000, 200
			r := server(t)
			s := open(t, r.URL(), func(c *redisConfig) { c.Partitions = partitions })
			storetest.Fill(t, s, n)
			was, first := 0, 0
			storetest.Pages(t, s, store.RunFilter{}, n, func(page int) {
				now := commands(t, r)
				cost := now - was
				was = now
				switch {
				case page == 2:
					first = cost
				case page > 2 && page < n/perPage && cost > first*5/4+60*partitions:
					t.Errorf("page %d took %d commands, page 2 took %d", page, cost, first)
				}
			})
			t.Logf("page 2 took %d commands", first)
			if first == 0 {
				t.Error("no page was measured")
			}
		})
	}
}

// BenchmarkPages reads the pages of 100,000 runs in turn.
func BenchmarkPages(b *testing.B) {
	s := open(b, server(b).URL())
	storetest.Fill(b, s, 100_000)
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
