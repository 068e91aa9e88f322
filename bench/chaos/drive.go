package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// Times of a client.
const (
	// answerTime bounds a request without its wait. A stopped worker takes longer.
	answerTime = 3 * time.Second
	waitTime   = 3 * time.Second
	// followTime is how far behind the run an event stream may end: its worker can be
	// stopped, or can have lost its Redis.
	followTime = 15 * time.Second
	// settleTime bounds how long runs may take to come to rest after the last fault.
	settleTime = 90 * time.Second
)

// driver plays all callers and reviewers. It remembers what it was told; the audit
// compares that with what is there afterwards.
type driver struct {
	clients []*client.Client
	seed    uint64
}

// story is what one run looked like from outside.
type story struct {
	plan plan
	// ids are the run ids that creating it was answered with; they must be one.
	ids []string
	// attempts are the decisions posted for its holds.
	attempts []attempt
	// cancelled says that a request to cancel was accepted.
	cancelled bool
	// seen are the entries that a follower of the event stream was sent.
	seen []api.Entry
	// vanished is set when the run was there once and then was not.
	vanished bool

	mu sync.Mutex // guards all but plan while the run is driven
}

func (s *story) id() string { return s.ids[0] }

// verdict is how a request to decide was answered.
type verdict string

// The verdicts.
const (
	accepted verdict = "accepted"
	denied   verdict = "refused"
	// unanswered: given up; it may have been applied or not.
	unanswered verdict = "unanswered"
)

// attempt is one request to decide, repeated until it was answered.
type attempt struct {
	hold      string
	kind      string
	decisions []api.ItemDecision
	verdict   verdict
	code      problem.Code // of denied
}

// drive takes one run from its creation to rest.
func (d *driver) drive(ctx context.Context, p plan) *story {
	s := &story{plan: p}
	r := dice{rand.New(rand.NewPCG(d.seed, uint64(1)<<40+uint64(p.n)))}
	run, ok := d.create(ctx, s, r)
	if !ok {
		return s
	}
	followed := make(chan struct{})
	following, stop := context.WithCancel(ctx)
	defer stop()
	if r.chance(10) {
		go func() {
			defer close(followed)
			d.follow(following, s)
		}()
	} else {
		close(followed)
	}
	if p.shape == cancel {
		pause(ctx, time.Duration(r.IntN(400))*time.Millisecond)
		d.cancel(ctx, s)
	}
	d.rest(ctx, s, r, run)
	if p.shape == park || ctx.Err() != nil {
		stop()
	}
	select {
	case <-followed:
	case <-clock.System{}.After(followTime):
		stop() // the audit sees what it has not read
		<-followed
	}
	return s
}

// create posts the run until it is answered, always under the same key; some
// callers post it to two workers at once.
func (d *driver) create(ctx context.Context, s *story, r dice) (api.Run, bool) {
	req := client.CreateRun{
		Env: environment, Agent: agent, Capability: s.plan.capability,
		Body: api.CreateRun{Input: rawjson.Object([]rawjson.Field{{Name: "message", Value: rawjson.Quote(s.plan.prompt())}})},
		Key:  fmt.Sprintf("chaos-%d-%d", s.plan.seed, s.plan.n),
	}
	if r.chance(40) {
		req.Wait = waitTime
	}
	var wg sync.WaitGroup
	if r.chance(10) {
		wg.Go(func() { d.post(ctx, s, req) })
	}
	run, ok := d.post(ctx, s, req)
	wg.Wait()
	return run, ok
}

func (d *driver) post(ctx context.Context, s *story, req client.CreateRun) (api.Run, bool) {
	var run api.Run
	err := d.insist(ctx, req.Wait, func(ctx context.Context, c *client.Client) (err error) {
		run, err = c.CreateRun(ctx, req)
		return err
	})
	if err != nil {
		return run, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, run.RunID)
	return run, true
}

// insist makes a request to one worker after another until it is answered with
// success or with an error that is the caller's.
func (d *driver) insist(ctx context.Context, wait time.Duration, do func(context.Context, *client.Client) error) error {
	for {
		call, stop := context.WithTimeout(ctx, wait+answerTime)
		err := do(call, d.clients[rand.IntN(len(d.clients))])
		stop()
		var answer *client.Error
		if err == nil || errors.As(err, &answer) && answer.Status < http.StatusInternalServerError {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		pause(ctx, time.Duration(20+rand.IntN(100))*time.Millisecond)
	}
}

// rest waits for the run and answers its holds until it is finished, or held for
// good.
func (d *driver) rest(ctx context.Context, s *story, r dice, run api.Run) {
	for ctx.Err() == nil && !run.Status.Finished() {
		if run.Status == api.RunHeld && run.Hold != nil {
			if s.plan.shape == park && run.Hold.Kind == toolCallHold {
				return
			}
			d.review(ctx, s, r, *run.Hold)
		}
		err := d.insist(ctx, waitTime, func(ctx context.Context, c *client.Client) (err error) {
			run, err = c.Run(ctx, environment, s.id(), waitTime)
			return err
		})
		if problem.CodeOf(err) == problem.RunNotFound {
			s.vanished = true
			return
		}
	}
}

// cancel asks for the end of the run.
func (d *driver) cancel(ctx context.Context, s *story) {
	err := d.insist(ctx, 0, func(ctx context.Context, c *client.Client) error {
		_, err := c.Cancel(ctx, environment, s.id())
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled = err == nil
}

// follow reads the event stream on one worker after another until the run ends,
// each time from where it was.
func (d *driver) follow(ctx context.Context, s *story) {
	after := int64(0)
	for ctx.Err() == nil {
		for e, err := range d.clients[rand.IntN(len(d.clients))].Events(ctx, environment, s.id(), after) {
			if err != nil {
				break
			}
			after = e.Seq
			s.mu.Lock()
			s.seen = append(s.seen, e)
			s.mu.Unlock()
			if lastEntry(e.Type) {
				return
			}
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// lastEntry reports whether an entry of the type ends a run.
func lastEntry(t string) bool {
	return t == "run.completed" || t == "run.failed" || t == "run.cancelled"
}
