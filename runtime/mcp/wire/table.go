package wire

import (
	"encoding/json"
	"strconv"
	"sync"
)

// table holds the open requests of a link. Its ids are whole numbers from 1 and
// are never used again.
type table struct {
	mu   sync.Mutex
	last int64
	open map[int64]chan outcome // each with room for one outcome
	dead error                  // set once: why no answer can come any more
}

type outcome struct {
	reply Reply
	err   error
}

// add opens a request.
func (t *table) add() (int64, <-chan outcome, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead != nil {
		return 0, nil, fault(NotSent, t.dead)
	}
	if t.open == nil {
		t.open = map[int64]chan outcome{}
	}
	t.last++
	ch := make(chan outcome, 1)
	t.open[t.last] = ch
	return t.last, ch, nil
}

// remove forgets a request; a late answer to it is then unknown.
func (t *table) remove(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, id)
}

// find returns the open request that raw means. An error without an id belongs
// to the only open request, if there is only one.
func (t *table) find(raw json.RawMessage, isError bool) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(raw) == 0 || string(raw) == "null" {
		if !isError || len(t.open) != 1 {
			return 0, false
		}
		for id := range t.open {
			return id, true
		}
	}
	id, err := strconv.ParseInt(canonicalID(raw), 10, 64)
	if err != nil {
		return 0, false
	}
	_, ok := t.open[id]
	return id, ok
}

// settle delivers the outcome of a request and closes it. It reports whether
// the request was open.
func (t *table) settle(id int64, o outcome) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	ch, ok := t.open[id]
	if ok {
		delete(t.open, id)
		ch <- o
	}
	return ok
}

// deliver settles the request that m answers.
func (t *table) deliver(m message) bool {
	id, ok := t.find(m.id, m.err != nil)
	return ok && t.settle(id, outcome{reply: Reply{Result: m.result, Err: m.err}})
}

// fail ends all open requests, which may have been executed, and refuses new
// ones.
func (t *table) fail(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead == nil {
		t.dead = cause
	}
	for id, ch := range t.open {
		delete(t.open, id)
		ch <- outcome{err: &RequestError{Reach: MaybeSent, Err: cause}}
	}
}

// only returns the id of the only open request.
func (t *table) only() (int64, bool) {
	return t.find(nil, true)
}
