package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"agentos/internal/rawjson"
)

// mark is one line of the ledger: an execution began or ended.
type mark struct {
	// Event is "start" or "end". The effect of a tool is its start.
	Event string `json:"event"`
	// ID is the execution's own; the result of the call tells it.
	ID string `json:"id"`
	// Key is the idempotency key the runtime sent: run/call.
	Key  string `json:"key"`
	Tool string `json:"tool"`
	// Arguments are the bytes the tool got, as text so that nothing reformats them.
	Arguments string    `json:"arguments"`
	PID       int       `json:"pid"`
	At        time.Time `json:"at"`
}

// ledger is the file in which every tool process writes down what it did.
type ledger struct{ path string }

// write appends a line that survives whatever happens to the process next. One
// write of an O_APPEND file is one line, however many processes write.
func (l ledger) write(m mark) error {
	line, err := rawjson.Marshal(m)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}

// read returns the lines by idempotency key.
func (l ledger) read() (map[string][]mark, error) {
	raw, err := os.ReadFile(l.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out := map[string][]mark{}
	for line := range bytes.Lines(raw) {
		var m mark
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("ledger line %q: %w", line, err)
		}
		out[m.Key] = append(out[m.Key], m)
	}
	return out, nil
}

// starts are the executions among marks.
func starts(marks []mark) []mark {
	var out []mark
	for _, m := range marks {
		if m.Event == "start" {
			out = append(out, m)
		}
	}
	return out
}
