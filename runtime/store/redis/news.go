package redis

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"agentos/internal/clock"
)

const (
	// silence is how long the subscription may be quiet before it is probed; one
	// that stays quiet for as long again is dead and replaced.
	silence = 5 * time.Second
	// pause is between attempts to reach a server that is away.
	pause = 250 * time.Millisecond
	// backstop is how often everybody who waits is told to look anyway. Redis gives
	// no guarantee that a message arrives: in a cluster it is passed from node to
	// node over links that may just be down.
	backstop = 2 * time.Second
)

// Watch returns a channel that is told of new entries of the run, and once as
// soon as the subscription stands.
func (s *Store) Watch(ctx context.Context, runID string) (<-chan struct{}, error) {
	return s.subscribe(ctx, "watch", s.keysOf(runID).watch(runID))
}

// Wake returns a channel that is told when a run becomes due by a write of any
// process, and once as soon as the subscription stands.
func (s *Store) Wake(ctx context.Context) (<-chan struct{}, error) {
	return s.subscribe(ctx, "wake", s.wakeChannel())
}

func (s *Store) subscribe(ctx context.Context, what, channel string) (<-chan struct{}, error) {
	leave, err := s.enter(what)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.news.join(ctx, channel), nil
}

// hub shares one subscription connection among all who wait in this process. The
// server confirms each subscription, after a reconnect too, and each confirmation
// is passed on like a message: whatever happened before it can be read by then,
// so nothing is missed. The connection is made when somebody first waits.
type hub struct {
	client goredis.UniversalClient
	clock  clock.Clock
	log    *slog.Logger
	ctx    context.Context //nolint:containedctx // the life of the goroutines, which end with close
	cancel context.CancelFunc
	start  sync.Once
	ends   sync.WaitGroup
	// changed tells the sender that there are changes.
	changed chan struct{}

	mu sync.Mutex
	// waiting are those who wait, by channel; changes the channels that were
	// joined or left by the last one since the sender looked. Guarded by mu.
	waiting map[string]map[chan struct{}]bool
	changes map[string]bool
	// sub is the subscription. Guarded by mu; nil until somebody waits.
	sub *goredis.PubSub
}

func newHub(ctx context.Context, client goredis.UniversalClient, c clock.Clock, log *slog.Logger) *hub {
	h := &hub{
		client: client, clock: c, log: log, changed: make(chan struct{}, 1),
		waiting: map[string]map[chan struct{}]bool{}, changes: map[string]bool{},
	}
	h.ctx, h.cancel = context.WithCancel(ctx)
	return h
}

func (h *hub) join(ctx context.Context, channel string) <-chan struct{} {
	h.start.Do(func() {
		h.sub = h.client.Subscribe(h.ctx)
		h.ends.Go(h.receive)
		h.ends.Go(h.send)
		h.ends.Go(h.remind)
	})
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	if h.waiting[channel] == nil {
		h.waiting[channel] = map[chan struct{}]bool{}
	}
	h.waiting[channel][ch] = true
	h.change(channel)
	h.mu.Unlock()
	context.AfterFunc(ctx, func() { h.leave(channel, ch) })
	return ch
}

func (h *hub) leave(channel string, ch chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting[channel], ch)
	if len(h.waiting[channel]) == 0 {
		delete(h.waiting, channel)
		h.change(channel)
	}
}

// change notes that the subscription to channel must be looked at. h.mu is held.
func (h *hub) change(channels ...string) {
	for _, c := range channels {
		h.changes[c] = true
	}
	tell(h.changed)
}

// close ends the goroutines and waits for them.
func (h *hub) close() {
	h.cancel()
	h.start.Do(func() {}) // nobody can start them any more
	h.mu.Lock()
	if h.sub != nil {
		_ = h.sub.Close() //nolint:errcheck // it is given up; this ends a blocked read
	}
	h.mu.Unlock()
	h.ends.Wait()
}

// send makes the server's subscriptions those of waiting. Joining an old channel
// subscribes again, for the confirmation.
func (h *hub) send() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.changed:
		}
		h.mu.Lock()
		var join, leave []string
		for c := range h.changes {
			if len(h.waiting[c]) > 0 {
				join = append(join, c)
			} else {
				leave = append(leave, c)
			}
		}
		clear(h.changes)
		sub := h.sub
		h.mu.Unlock()
		if err := update(h.ctx, sub, join, leave); err != nil {
			h.rest()
			h.mu.Lock()
			h.change(append(join, leave...)...)
			h.mu.Unlock()
		}
	}
}

func update(ctx context.Context, sub *goredis.PubSub, join, leave []string) error {
	var err error
	if len(leave) > 0 {
		err = sub.Unsubscribe(ctx, leave...)
	}
	if len(join) > 0 {
		err = errors.Join(err, sub.Subscribe(ctx, join...))
	}
	return err
}

// receive passes on what the server says until close.
func (h *hub) receive() {
	sub, probed := h.sub, false
	for h.ctx.Err() == nil {
		msg, err := sub.ReceiveTimeout(h.ctx, silence)
		timeout := net.Error(nil)
		switch {
		case err == nil:
			probed = false
			h.pass(msg)
		case errors.As(err, &timeout) && timeout.Timeout() && !probed:
			probed = true
			_ = sub.Ping(h.ctx) //nolint:errcheck // the next read tells
		default:
			h.log.LogAttrs(h.ctx, slog.LevelDebug, "redis subscription lost", slog.Any("error", err))
			h.rest()
			sub, probed = h.reconnect(), false
		}
	}
}

// remind is the backstop for messages that were lost on the way.
func (h *hub) remind() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-h.clock.After(backstop):
		}
		h.mu.Lock()
		for _, waiting := range h.waiting {
			for ch := range waiting {
				tell(ch)
			}
		}
		h.mu.Unlock()
	}
}

// pass tells those who wait on the channel of a message or confirmation.
func (h *hub) pass(msg any) {
	channel := ""
	switch m := msg.(type) {
	case *goredis.Message:
		channel = m.Channel
	case *goredis.Subscription:
		channel = m.Channel
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for ch := range h.waiting[channel] {
		tell(ch)
	}
}

// reconnect replaces the subscription and subscribes to everything again.
func (h *hub) reconnect() *goredis.PubSub {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return h.sub
	}
	_ = h.sub.Close() //nolint:errcheck // it is dead
	h.sub = h.client.Subscribe(h.ctx)
	for c := range h.waiting {
		h.change(c)
	}
	return h.sub
}

func (h *hub) rest() {
	select {
	case <-h.ctx.Done():
	case <-h.clock.After(pause):
	}
}

func tell(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
