package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"agentos/api"
)

// maxEvent bounds one line of an event stream.
const maxEvent = 32 << 20

// Events reads the journal of a run as it grows: the entries after seq after, 0
// for all, up to the last one of a finished run. A failure is the last thing
// yielded, with a zero entry.
//
// A connection that breaks is resumed where it was, as long as each one brings at
// least an entry.
func (c *Client) Events(ctx context.Context, env, run string, after int64) iter.Seq2[api.Entry, error] {
	return func(yield func(api.Entry, error) bool) {
		s := stream{client: c, path: path(env, "runs", run, "events"), after: after, yield: yield}
		for !s.done {
			before := s.after
			err := s.connection(ctx)
			if s.done {
				return
			}
			if s.after == before || ctx.Err() != nil {
				yield(api.Entry{}, err)
				return
			}
		}
	}
}

// stream is one reading of a journal over any number of connections.
type stream struct {
	client *Client
	path   []string
	yield  func(api.Entry, error) bool
	// after is the seq of the newest entry; done is set after the last entry, or
	// when the reader wants no more.
	after int64
	done  bool
}

// connection reads one connection to its end. Without done it always returns an
// error: the server ends a stream only after the last entry or when it stops.
func (s *stream) connection(ctx context.Context) error {
	r := request{method: http.MethodGet, path: s.path, header: http.Header{"Accept": {"text/event-stream"}}}
	if s.after > 0 {
		r.header.Set("Last-Event-ID", strconv.FormatInt(s.after, 10))
	}
	res, err := s.client.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read only
	if res.StatusCode == http.StatusNoContent {
		s.done = true
		return nil
	}
	if kind := res.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return fmt.Errorf("the answer is no event stream but %.100q", kind)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEvent)
	for !s.done {
		entry, err := next(lines)
		if err != nil {
			return err
		}
		if entry.Seq <= s.after {
			return fmt.Errorf("entry %d was sent after entry %d", entry.Seq, s.after)
		}
		s.after = entry.Seq
		s.done = !s.yield(entry, nil) || last(entry.Type)
	}
	return nil
}

// next reads one event as this API writes them: the entry is one data line, and
// an empty line ends the event. An event cut off by the end of the stream is not
// one (HTML standard, section 9.2.6); comments and other fields are skipped.
func next(lines *bufio.Scanner) (api.Entry, error) {
	var data string
	for lines.Scan() {
		line := lines.Text()
		if value, ok := strings.CutPrefix(line, "data:"); ok {
			data = strings.TrimPrefix(value, " ")
		}
		if line != "" || data == "" {
			continue
		}
		var entry api.Entry
		if err := json.Unmarshal([]byte(data), &entry); err != nil {
			return api.Entry{}, fmt.Errorf("an event is no entry: %w", err)
		}
		return entry, nil
	}
	err := lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return api.Entry{}, fmt.Errorf("read events: %w", err)
}

// last reports whether an entry of the type ends a run.
func last(entryType string) bool {
	return entryType == "run.completed" || entryType == "run.failed" || entryType == "run.cancelled"
}
