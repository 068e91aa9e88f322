package redis_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentos/runtime/store"
	"agentos/runtime/store/storetest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 3} {
		t.Run(fmt.Sprintf("partitions=%d", partitions), func(t *testing.T) {
			t.Parallel()
			r := server(t)
			var n atomic.Int64
			storetest.Run(t, func(t *testing.T) storetest.Harness {
				t.Helper()
				var offset atomic.Int64
				name := fmt.Sprintf("case%d", n.Add(1))
				another := func() store.Store {
					return open(t, r.URL(), prefix(name), func(c *redisConfig) {
						c.Partitions = partitions
						c.Offset = func() time.Duration { return time.Duration(offset.Load()) }
					})
				}
				s := another()
				at := func(runID string) vandal {
					keys := keysLike(r, name+":{p*:r:"+runID)
					if len(keys) < 1 || !strings.HasPrefix(keys[len(keys)-1], name) {
						t.Fatalf("run %s is not there: %q", runID, keys)
					}
					return vandal{r, keys[len(keys)-1], partitions > 1}
				}
				return storetest.Harness{
					Store:   s,
					Advance: func(d time.Duration) { offset.Add(int64(d)) },
					Restart: func() store.Store {
						if err := s.Close(); err != nil {
							t.Error(err)
						}
						s = another()
						return s
					},
					Second: another,
					Damage: func(runID string) {
						keys := keysLike(r, name+":*:r:"+runID)
						if len(keys) != 1 || r.Command("HDEL", keys[0], "1") != ":1" {
							t.Fatalf("run %s has no journal to damage: %q", runID, keys)
						}
					},
					Ruin:   func(runID string) { at(runID).ruin() },
					Mend:   func(runID string) { at(runID).mend() },
					Hasten: func(runID string) { at(runID).hasten() },
				}
			})
		})
	}
}
