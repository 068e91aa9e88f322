package wire

import (
	"strings"
	"sync"
)

// Kept of what a child writes to stderr.
const (
	tailLines = 8
	tailLine  = 400
)

// tail keeps the last lines of a stream.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) add(text string) {
	text = Short(text, tailLine)
	if text == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines = append(t.lines, text); len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
}

// String returns the kept lines in one, oldest first.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, " | ")
}
