package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"agentos/internal/rawjson"
	"agentos/runtime/journal"
)

// heartbeat is how often an event stream without news sends a comment, so that
// proxies keep it open and a caller that left is noticed.
const heartbeat = 15 * time.Second

// streamEvents sends the journal of a run as server-sent events (HTML standard,
// section 9.2). It returns after the last entry of a finished run, when the caller
// leaves, or when the server stops.
func (s *Server) streamEvents(c echo.Context) error {
	in := s.newInput(c)
	env, run := in.env(), in.run()
	after := in.after()
	if err := in.finish(); err != nil {
		return err
	}
	ctx, cancel := s.while(c.Request().Context())
	defer cancel()
	v, err := s.cfg.Engine.View(ctx, env, run)
	if err != nil {
		return err
	}
	if v.Status.Finished() && after >= v.Seq {
		return c.NoContent(http.StatusNoContent)
	}
	news, err := s.cfg.Store.Watch(ctx, run)
	if err != nil {
		return storeError(err, run)
	}
	entries, err := s.cfg.Store.Journal(ctx, run, after)
	if err != nil {
		return storeError(err, run)
	}
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	out := &stream{s: s, c: c, after: after}
	if err := out.open(); err != nil {
		return err
	}
	for {
		if done, err := out.send(entries); done || err != nil {
			return err
		}
		if stop, err := out.pause(ctx, news); stop || err != nil {
			return err
		}
		if entries, err = s.cfg.Store.Journal(ctx, run, out.after); err != nil {
			return storeError(err, run) // the caller resumes where this stream ended
		}
	}
}

// after returns the seq of the newest entry the caller has. The header of a
// browser that reconnects is newer than its address.
func (in *input) after() int64 {
	after := in.integer("after", 0, 1<<53-1, 0)
	id := in.c.Request().Header.Get("Last-Event-ID")
	if id == "" {
		return after
	}
	seq, ok := digits(id)
	if !ok {
		in.fault("Last-Event-ID", "is %q; send the id of an event, a whole number", clip(id))
	}
	return seq
}

// stream is one event stream being written.
type stream struct {
	s *Server
	c echo.Context
	// after is the seq of the newest entry sent.
	after int64
}

func (o *stream) open() error {
	h := o.c.Response().Header()
	h.Set(echo.HeaderContentType, "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back
	o.c.Response().WriteHeader(http.StatusOK)
	return o.write(":\n\n")
}

// send writes entries and reports whether the last of them ends the run.
func (o *stream) send(entries []journal.Entry) (done bool, err error) {
	for _, e := range entries {
		if e.Seq <= o.after {
			continue // the caller claims to have seen it
		}
		data, err := rawjson.Marshal(toEntry(e))
		if err != nil {
			return false, fmt.Errorf("encode entry %d: %w", e.Seq, err)
		}
		if err := o.write("id: " + strconv.FormatInt(e.Seq, 10) + "\nevent: " + string(e.Type) + "\ndata: " + string(data) + "\n\n"); err != nil {
			return false, err
		}
		o.after = e.Seq
		done = e.Type.Last()
	}
	return done, nil
}

// pause waits for news, and sends heartbeats meanwhile. stop says that the stream
// ends.
func (o *stream) pause(ctx context.Context, news <-chan struct{}) (stop bool, err error) {
	for {
		select {
		case <-news:
			return false, nil
		case <-ctx.Done():
			return true, gone{ctx.Err()}
		case <-o.s.stopping.Done():
			return true, nil
		case <-o.s.cfg.Clock.After(heartbeat):
			if err := o.write(":\n\n"); err != nil {
				return true, err
			}
		}
	}
}

func (o *stream) write(text string) error {
	o.s.limitWrite(o.c)
	if _, err := o.c.Response().Write([]byte(text)); err != nil {
		return gone{err}
	}
	if err := http.NewResponseController(o.c.Response()).Flush(); err != nil {
		return gone{err}
	}
	return nil
}
