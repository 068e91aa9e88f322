package conformance

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hasty is a clock on which every wait is over at once and takes its time.
type hasty struct{ now chan time.Time }

func newHasty() hasty {
	h := hasty{now: make(chan time.Time, 1)}
	h.now <- time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return h
}

func (h hasty) Now() time.Time {
	t := <-h.now
	h.now <- t
	return t
}

func (h hasty) After(d time.Duration) <-chan time.Time {
	t := (<-h.now).Add(d)
	h.now <- t
	c := make(chan time.Time, 1)
	c <- t
	return c
}
