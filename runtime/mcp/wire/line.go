package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
)

// Kept of a line that is too long, to find out whose answer it was.
const (
	keptHead = 64 << 10
	keptTail = 4 << 10
)

// lineReader reads lines of at most max bytes and skips the rest of longer ones
// without keeping it.
type lineReader struct {
	r   *bufio.Reader
	max int
}

// line is one line without its end.
type line struct {
	text []byte
	// tooLong: text holds only the first keptHead bytes, tail the last ones.
	tooLong bool
	tail    []byte
	size    int64
}

// next returns the next line. A last line without an end is returned before the
// error.
func (l *lineReader) next() (line, error) {
	var out line
	for {
		chunk, err := l.r.ReadSlice('\n')
		out.add(chunk, l.max)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if errors.Is(err, io.EOF) && out.size > 0 {
			err = nil
		}
		out.text = bytes.TrimRight(out.text, "\r\n")
		out.tail = bytes.TrimRight(out.tail, "\r\n")
		return out, err
	}
}

func (l *line) add(chunk []byte, limit int) {
	l.size += int64(len(chunk))
	if !l.tooLong && len(l.text)+len(chunk) <= limit {
		l.text = append(l.text, chunk...)
		return
	}
	if !l.tooLong {
		l.tooLong = true
		l.tail = append(l.tail, l.text[max(0, len(l.text)-keptTail):]...)
		l.text = bytes.Clone(l.text[:min(keptHead, len(l.text))])
	}
	l.tail = append(l.tail, chunk...)
	if over := len(l.tail) - keptTail; over > 0 {
		l.tail = append(l.tail[:0], l.tail[over:]...)
	}
}

// tailID finds an id that is the last member of the outermost object: between
// it and the end of the text no other object can be closed.
var tailID = regexp.MustCompile(`"id"\s*:\s*([0-9.]+|"[0-9.]+")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?}\s*$`)

// owner returns the raw id of a line that was too long to read, or nil when it
// cannot be told from what was kept.
func (l *line) owner() []byte {
	dec := tolerant(l.text)
	if tok, err := dec.ReadToken(); err == nil && tok.Kind() == '{' {
		for {
			name, err := dec.ReadToken()
			if err != nil || name.Kind() != '"' {
				break
			}
			isID := name.String() == "id"
			v, err := dec.ReadValue()
			if err != nil {
				break
			}
			if isID {
				return bytes.Clone(v)
			}
		}
	}
	if m := tailID.FindSubmatch(l.tail); m != nil {
		return m[1]
	}
	return nil
}
