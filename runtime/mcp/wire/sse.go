package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// event is one event of an event stream.
type event struct {
	data []byte
	id   string
}

// errEventTooLarge ends a stream whose event is over MaxMessage.
var errEventTooLarge = errors.New("an event of the stream is over the size limit")

// eventReader reads an event stream (HTML standard, "Parsing an event stream").
// The type of an event is of no interest here: what its data says counts.
type eventReader struct {
	r       *bufio.Reader
	max     int
	started bool // the byte order mark was looked for
	skipLF  bool // the last line ended with CR; an LF right after belongs to it
	lastID  string
	retry   time.Duration // what the stream last asked for; 0 if nothing
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{r: bufio.NewReaderSize(r, 32<<10), max: MaxMessage}
}

// restart goes on with another body of the same stream.
func (e *eventReader) restart(r io.Reader) {
	fresh := newEventReader(r)
	fresh.lastID, fresh.retry = e.lastID, e.retry
	*e = *fresh
}

// next returns the next event that has data. An event that is not closed by an
// empty line before the stream ends is none.
func (e *eventReader) next() (event, error) {
	var data []byte
	has := false
	for {
		text, err := e.line()
		if err != nil {
			return event{}, err
		}
		if len(text) == 0 {
			if has {
				return event{data: data, id: e.lastID}, nil
			}
			continue
		}
		field, value := splitField(text)
		switch field {
		case "data":
			if len(data)+len(value) >= e.max {
				return event{}, errEventTooLarge
			}
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, value...), true
		case "id":
			if !strings.Contains(value, "\x00") {
				e.lastID = value
			}
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 31); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

func splitField(text []byte) (string, string) {
	field, value, _ := strings.Cut(string(text), ":")
	return field, strings.TrimPrefix(value, " ")
}

// line returns the next line, which ends with CR, LF or both.
func (e *eventReader) line() ([]byte, error) {
	var out []byte
	for {
		if _, err := e.r.Peek(1); err != nil {
			return nil, err
		}
		chunk, err := e.r.Peek(e.r.Buffered())
		if err != nil {
			return nil, err
		}
		if e.skipLF && chunk[0] == '\n' {
			e.skipLF = false
			_, _ = e.r.Discard(1) //nolint:errcheck // it was just seen
			continue
		}
		e.skipLF = false
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			end = len(chunk)
		}
		if len(out)+end > e.max {
			return nil, errEventTooLarge
		}
		out = append(out, chunk[:end]...)
		done := end < len(chunk)
		if done {
			e.skipLF = chunk[end] == '\r'
			end++
		}
		_, _ = e.r.Discard(end) //nolint:errcheck // it was just seen
		if done {
			return e.withoutMark(out), nil
		}
	}
}

// withoutMark takes the byte order mark off the first line.
func (e *eventReader) withoutMark(text []byte) []byte {
	if !e.started {
		e.started = true
		return []byte(strings.TrimPrefix(string(text), "\xef\xbb\xbf"))
	}
	return text
}
