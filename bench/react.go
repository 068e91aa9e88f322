package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentos/api/client"
	"agentos/bench/scenario"
	"agentos/runtime/store"
)

// maxReactions is the most decisions whose call is looked up.
const maxReactions = 2000

// react measures, over HTTP and with as many runs in flight as for the throughput,
// how long after a decision was sent the tool began.
func (b *bench) react(ctx context.Context) error {
	back, err := newBacking(ctx, redisStore, b.dir, b.fsync)
	if err != nil {
		return err
	}
	err = func() error {
		cmd, err := self(serveCommand, "-store", back.url())
		if err != nil {
			return err
		}
		c, err := startChild(ctx, cmd)
		if err != nil {
			return err
		}
		took, err := reactions(ctx, c.url, b.length)
		if err := errors.Join(err, c.stop()); err != nil {
			return err
		}
		b.out.React = reaction{Decisions: len(took), latency: spread(took)}
		return nil
	}()
	return errors.Join(err, back.close())
}

// reactions are the times from decision to call, in microseconds. The tool tells
// when it began on the same clock.
func reactions(ctx context.Context, url string, d time.Duration) ([]int64, error) {
	t := newTarget(url, approve, productWire(approve))
	defer t.client.CloseIdleConnections()
	if _, _, err := loops(ctx, d/warmUpPart, t.run); err != nil {
		return nil, err
	}
	sent := make(chan decision, maxReactions)
	_, _, err := loops(ctx, d, func(ctx context.Context) error {
		id, err := t.begin(ctx)
		if err != nil {
			return err
		}
		at := now()
		if err = t.approve(ctx, id); err != nil {
			return err
		}
		select {
		case sent <- decision{id, at}:
		default: // enough
		}
		return nil
	})
	close(sent)
	if err != nil {
		return nil, err
	}
	c, err := newClient(url)
	if err != nil {
		return nil, err
	}
	var took []int64
	for one := range sent {
		us, err := one.reaction(ctx, c)
		if err != nil {
			return nil, err
		}
		took = append(took, us)
	}
	if len(took) == 0 {
		return nil, fmt.Errorf("no decision in %s", d)
	}
	return took, nil
}

// decision is one that was sent.
type decision struct {
	hold string
	at   time.Time
}

// reaction reads from the finished run when its call began.
func (d decision) reaction(ctx context.Context, c *client.Client) (us int64, err error) {
	tr, err := c.Trajectory(ctx, environment, store.RunOfHold(d.hold))
	if err != nil {
		return 0, err
	}
	for _, turn := range tr.Turns {
		for _, call := range turn.Calls {
			if at, ok := scenario.StartedAt(call.Text); ok {
				return at - d.at.UnixMicro(), nil
			}
		}
	}
	return 0, fmt.Errorf("run %s has no call that tells when it began", tr.Run.RunID)
}
