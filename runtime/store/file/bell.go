package file

import (
	"context"
	"sync"
)

// bell tells goroutines of this process that something has changed. A channel
// holds one value, which stands for any number of changes.
type bell struct {
	mu sync.Mutex
	// watchers are those who watch a run, by its id; wakers those who wait for
	// work. Guarded by mu, like stops.
	watchers map[string]map[chan struct{}]bool
	wakers   map[chan struct{}]bool
	// stops undo the registration of each channel with its context.
	stops map[chan struct{}]func() bool
}

// Watch returns a channel that is told of new entries of the run, and once at
// the beginning.
func (s *Store) Watch(ctx context.Context, runID string) (<-chan struct{}, error) {
	b := &s.bell
	ch := make(chan struct{}, 1)
	ch <- struct{}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers == nil {
		b.watchers = map[string]map[chan struct{}]bool{}
	}
	if b.watchers[runID] == nil {
		b.watchers[runID] = map[chan struct{}]bool{}
	}
	b.watchers[runID][ch] = true
	b.until(ctx, ch, func() {
		delete(b.watchers[runID], ch)
		if len(b.watchers[runID]) == 0 {
			delete(b.watchers, runID)
		}
	})
	return ch, nil
}

// Wake returns a channel that is told when a run becomes due by a write.
func (s *Store) Wake(ctx context.Context) (<-chan struct{}, error) {
	b := &s.bell
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wakers == nil {
		b.wakers = map[chan struct{}]bool{}
	}
	b.wakers[ch] = true
	b.until(ctx, ch, func() { delete(b.wakers, ch) })
	return ch, nil
}

// until has forget called, under the lock, when ctx ends. b.mu is held.
func (b *bell) until(ctx context.Context, ch chan struct{}, forget func()) {
	if b.stops == nil {
		b.stops = map[chan struct{}]func() bool{}
	}
	b.stops[ch] = context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		forget()
		delete(b.stops, ch)
	})
}

func (b *bell) ring(runID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.watchers[runID] {
		tell(ch)
	}
}

func (b *bell) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.wakers {
		tell(ch)
	}
}

// close forgets everybody; their channels just stay silent.
func (b *bell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, stop := range b.stops {
		stop()
	}
	b.watchers, b.wakers, b.stops = nil, nil, nil
}

func tell(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
