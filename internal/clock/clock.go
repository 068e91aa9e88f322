// Package clock is the one place that reads the time. Whoever depends on time
// takes a Clock, so that tests decide what time it is.
package clock

import "time"

// Clock tells the time and makes timers.
type Clock interface {
	// Now is the current time; it carries a monotonic reading where it can.
	Now() time.Time
	// After delivers the time once d has passed. Unlike time.After the caller
	// may drop the channel without a leak.
	After(d time.Duration) <-chan time.Time
}

// System is the computer's own clock.
type System struct{}

// Now returns time.Now.
func (System) Now() time.Time { return time.Now() }

// After returns time.After, which since Go 1.23 is collected when dropped.
func (System) After(d time.Duration) <-chan time.Time { return time.After(d) }
