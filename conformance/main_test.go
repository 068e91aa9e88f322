package conformance

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick is a clock that runs a hundred times as fast as the system's, so that
// the kit loses its patience in a test.
type quick struct{ began time.Time }

const haste = 100

func newQuick() quick { return quick{began: time.Now()} }

func (q quick) Now() time.Time { return q.began.Add(time.Since(q.began) * haste) }

func (q quick) After(d time.Duration) <-chan time.Time { return time.After(d / haste) }
