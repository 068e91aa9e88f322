package storetest

import (
	"sync"
	"time"
)

// Clock is a clock.Clock that moves only when it is told to. Use NewClock.
type Clock struct {
	mu      sync.Mutex
	now     time.Time
	waiting map[chan time.Time]time.Time // guarded by mu, like now
}

// NewClock returns a clock that shows a moment of 2026.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), waiting: map[chan time.Time]time.Time{}}
}

// Now returns the time the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After delivers the time once the clock has been moved by d.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if d <= 0 {
		ch <- c.now
		return ch
	}
	c.waiting[ch] = c.now.Add(d)
	return ch
}

// Advance moves the clock on by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ch, at := range c.waiting {
		if !c.now.Before(at) {
			ch <- c.now
			delete(c.waiting, ch)
		}
	}
}
