package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"time"
)

// readJSON reads an answer that is one JSON text.
func (l *HTTP) readJSON(ctx context.Context, resp *http.Response, id int64) (Reply, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxMessage+1))
	switch {
	case ctx.Err() != nil:
		return Reply{}, fault(MaybeSent, context.Cause(ctx))
	case err != nil:
		return Reply{}, faultf(MaybeSent, "the answer broke off: %w", err)
	case len(body) > MaxMessage:
		return Reply{}, faultf(Answered, "the answer is over the limit of %d bytes and was thrown away", MaxMessage)
	case len(bytes.TrimSpace(body)) == 0:
		return Reply{}, faultf(MaybeSent, "HTTP %d with an empty body", resp.StatusCode)
	}
	messages, err := parse(bytes.TrimSpace(body))
	if err != nil {
		return Reply{}, faultf(MaybeSent, "HTTP %d whose body is no answer (%w): %s", resp.StatusCode, err, Short(string(body[:min(len(body), 4*shownBody)]), shownBody))
	}
	for _, m := range messages {
		if reply, done, err := l.take(m, id); done {
			return reply, err
		}
	}
	return Reply{}, faultf(MaybeSent, "HTTP %d without an answer", resp.StatusCode)
}

// take handles one message on the way to the answer to id. It reports done with
// the answer, or with a fault when what came instead rules an answer out.
func (l *HTTP) take(m message, id int64) (Reply, bool, error) {
	switch m.kind {
	case request:
		l.reply(l.cfg.answer(m))
	case notification:
		l.cfg.Handler.Notification(m.method)
	case response:
		noID := len(m.id) == 0 || string(m.id) == "null"
		if canonicalID(m.id) == strconv.FormatInt(id, 10) || noID && m.err != nil {
			return Reply{Result: m.result, Err: m.err}, true, nil //nolint:nilerr // a JSON-RPC error is an answer
		}
		return Reply{}, true, faultf(MaybeSent, "the server answered another request: id %s instead of %d", Short(string(m.id), 40), id)
	}
	return Reply{}, false, nil
}

// readStream reads an event stream up to the answer, and asks for the rest of a
// stream that broke if its events had ids ("Resumability and Redelivery").
func (l *HTTP) readStream(ctx context.Context, resp *http.Response, id int64) (Reply, error) {
	defer func() {
		if resp != nil {
			closeBody(resp)
		}
	}()
	stream := newEventReader(resp.Body)
	for tries := 0; ; tries++ {
		before := stream.lastID
		reply, done, err := l.readEvents(stream, id)
		if done {
			return reply, err
		}
		if ctx.Err() != nil {
			return Reply{}, fault(MaybeSent, context.Cause(ctx))
		}
		if stream.lastID != before {
			tries = 0
		}
		if stream.lastID == "" || tries >= resumeTries || errors.Is(err, errEventTooLarge) {
			return Reply{}, streamFault(err)
		}
		closeBody(resp) // the caller's close of the first one then does nothing
		if resp = l.resume(ctx, stream); resp == nil {
			return Reply{}, streamFault(err)
		}
		stream.restart(resp.Body)
	}
}

func streamFault(err error) error {
	if errors.Is(err, errEventTooLarge) {
		return fault(Answered, err)
	}
	if errors.Is(err, io.EOF) {
		return faultf(MaybeSent, "the event stream ended before the answer")
	}
	return faultf(MaybeSent, "the event stream broke before the answer: %w", err)
}

func (l *HTTP) readEvents(stream *eventReader, id int64) (Reply, bool, error) {
	for {
		ev, err := stream.next()
		if err != nil {
			return Reply{}, false, err
		}
		messages, err := parse(ev.data)
		if err != nil {
			l.cfg.Log.Warn("mcp_event_skipped", slog.String("reason", err.Error()), slog.String("event", Short(string(ev.data[:min(len(ev.data), 800)]), 200)))
			continue
		}
		for _, m := range messages {
			if reply, done, err := l.take(m, id); done {
				return reply, true, err
			}
		}
	}
}

// resume asks for the events after the last one, once the time the stream asked
// for has passed. It returns nil when there is no more to come.
func (l *HTTP) resume(ctx context.Context, stream *eventReader) *http.Response {
	if l.pause(ctx, stream.retry) != nil {
		return nil
	}
	resp, err := l.get(ctx, stream.lastID)
	if err != nil {
		return nil
	}
	if !isEventStream(resp) {
		closeBody(resp)
		return nil
	}
	return resp
}

func (l *HTTP) pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		d = defaultRetry
	}
	select {
	case <-l.cfg.Clock.After(min(d, maxRetry)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.life.Done():
		return errClosed
	}
}

func isEventStream(resp *http.Response) bool {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return resp.StatusCode == http.StatusOK && err == nil && media == "text/event-stream"
}

func (l *HTTP) get(ctx context.Context, lastID string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	l.setHeaders(req, "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-Id", lastID)
	}
	return l.cfg.Client.Do(req)
}

// Listen opens the stream on which a server sends what belongs to no request,
// such as a changed tool list. A server without one answers 405, which is fine.
func (l *HTTP) Listen() {
	l.listen.Do(func() { l.wg.Go(l.listening) })
}

func (l *HTTP) listening() {
	wait, stream := time.Duration(0), &eventReader{}
	for l.life.Err() == nil {
		resp, err := l.get(l.life, stream.lastID)
		if err == nil {
			if !isEventStream(resp) {
				closeBody(resp)
				return
			}
			stream.restart(resp.Body)
			if l.readListening(stream) {
				wait = 0
			}
			closeBody(resp)
		}
		wait = min(max(2*wait, defaultRetry, stream.retry), maxRetry)
		if l.pause(l.life, wait) != nil {
			return
		}
	}
}

// readListening reads a listening stream to its end and reports whether it
// brought anything.
func (l *HTTP) readListening(stream *eventReader) bool {
	for brought := false; ; brought = true {
		ev, err := stream.next()
		if err != nil {
			return brought
		}
		messages, err := parse(ev.data)
		if err != nil {
			continue
		}
		for _, m := range messages {
			switch m.kind {
			case request:
				l.reply(l.cfg.answer(m))
			case notification:
				l.cfg.Handler.Notification(m.method)
			case response:
				l.open.deliver(m)
			}
		}
	}
}
