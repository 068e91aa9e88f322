package runtime

import (
	"sync"
	"time"

	"agentos/holds"
	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// maxRecent bounds how many held runs are remembered, whatever their number, and
// maxRecentSize the bytes of the journal of each: a large one is read again.
const (
	maxRecent     = 256
	maxRecentSize = 64 << 10
)

// suspended is a held run with what is needed to go on with it: its state when
// this process opened the hold, else its journal.
type suspended struct {
	hold    holds.Hold
	record  store.Record
	state   *journal.State
	first   journal.Entry
	entries []journal.Entry
	// ahead is the store's clock minus the local one.
	ahead time.Duration
	// size is the length of the journal in bytes.
	size int
}

// recent remembers the runs this process suspended last. A hold at one revision
// never changes, so a decision can be worked out on the memory of it; the store
// compares the revision and has the last word. It saves reading the run, nothing
// depends on it: a decision that finds nothing here reads the store.
type recent struct {
	mu    sync.Mutex
	runs  map[string]suspended // by hold id
	order []string             // oldest first; may name holds already taken
}

func (r *recent) put(s suspended) {
	if s.size > maxRecentSize {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = make(map[string]suspended, maxRecent)
	}
	r.runs[s.hold.ID] = s
	r.order = append(r.order, s.hold.ID)
	for len(r.order) > maxRecent {
		delete(r.runs, r.order[0])
		r.order = r.order[1:]
	}
}

// take removes and returns what is remembered of a hold.
func (r *recent) take(holdID string) (suspended, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.runs[holdID]
	delete(r.runs, holdID)
	return s, ok
}
