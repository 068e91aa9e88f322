package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"agentos/internal/rawjson"
)

// Dir is the folder through which the kit, its server and its proxies speak: the
// notes of what happened, and the one fault that is armed. Notes are appended
// with one write and, for calls, flushed to the disk, so that a process that dies
// in the next moment has said what it did. It must be on a local file system.
type Dir struct{ Path string }

// The files of a Dir.
const (
	callsFile  = "calls.jsonl"
	lostFile   = "lost.jsonl"
	modelsFile = "models.jsonl"
	pointsFile = "points.log"
	faultFile  = "fault.json"
	firedFile  = "fault.fired.json"
	lockFile   = "proxies.lock"
)

// Execution is one tool call that reached a tool, as the proxy saw it.
type Execution struct {
	// Server is the alias in the manifest, Tool the raw tool name.
	Server string `json:"server"`
	Tool   string `json:"tool"`
	// Arguments are the bytes that went to the tool.
	Arguments json.RawMessage `json:"arguments"`
	// Key is the idempotency key, "<run>/<call>"; "" when the caller sent none.
	Key string `json:"key"`
}

// ModelCall is one request that reached the model.
type ModelCall struct {
	// Fault is what is wrong with its history, "" when it is valid.
	Fault string `json:"fault,omitempty"`
}

// NoteCall records a call before the tool sees it.
func (d Dir) NoteCall(e Execution) error { return d.append(callsFile, e, true) }

// NoteLost records a call whose answer was kept back by a fault.
func (d Dir) NoteLost(e Execution) error { return d.append(lostFile, e, true) }

// NoteModel records a request to the model with the verdict of CheckHistory.
func (d Dir) NoteModel(request json.RawMessage) error {
	var m ModelCall
	if err := CheckHistory(request); err != nil {
		m.Fault = err.Error()
	}
	return d.append(modelsFile, m, false)
}

// Calls returns the executions noted so far.
func (d Dir) Calls() ([]Execution, error) { return readLines[Execution](d, callsFile) }

// Models returns the model requests noted so far.
func (d Dir) Models() ([]ModelCall, error) { return readLines[ModelCall](d, modelsFile) }

// armed is the fault that waits for its moment.
type armed struct {
	Kind FaultKind `json:"kind"`
	// Point, Times and From belong to FaultKill: the Times-th passage of Point
	// counted from byte From of the points.
	Point string `json:"point,omitempty"`
	Times int    `json:"times,omitempty"`
	From  int64  `json:"from,omitempty"`
	// Server and Tool belong to FaultChangeTool.
	Server string `json:"server,omitempty"`
	Tool   string `json:"tool,omitempty"`
}

// arm sets the fault; it replaces one that never came to pass.
func (d Dir) arm(a armed) error {
	if a.Kind == FaultKill {
		size, err := d.pointsSize()
		if err != nil {
			return err
		}
		a.From = size
	}
	raw, err := rawjson.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.Remove(d.file(firedFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	next := d.file(faultFile + ".new")
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(next, d.file(faultFile))
}

// armed returns the fault that waits, if there is one.
func (d Dir) armed() (armed, bool, error) {
	raw, err := os.ReadFile(d.file(faultFile))
	if errors.Is(err, os.ErrNotExist) {
		return armed{}, false, nil
	}
	if err != nil {
		return armed{}, false, err
	}
	var a armed
	if err := rawjson.Decode(raw, &a); err != nil {
		return armed{}, false, fmt.Errorf("%s: %w", faultFile, err)
	}
	return a, true, nil
}

// take marks the armed fault as come to pass; of several takers one gets true.
func (d Dir) take() (bool, error) {
	err := os.Rename(d.file(faultFile), d.file(firedFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// disarm removes a fault and reports whether it had come to pass.
func (d Dir) disarm() (fired bool, err error) {
	if err := os.Remove(d.file(faultFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	err = os.Remove(d.file(firedFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Reached records that a process came to point and reports whether an armed kill
// is meant for this passage; the caller must then end the server at once. point
// is "before:" or "after:" and the entries of the commit joined by "+", or
// "during:model" or "during:call".
func (d Dir) Reached(point string) (die bool, err error) {
	if err := d.appendBytes(pointsFile, []byte(point+"\n"), false); err != nil {
		return false, err
	}
	a, ok, err := d.armed()
	if err != nil || !ok || a.Kind != FaultKill || !passes(point, a.Point) {
		return false, err
	}
	points, err := d.pointsFrom(a.From)
	if err != nil {
		return false, err
	}
	n := 0
	for _, p := range points {
		if passes(p, a.Point) {
			n++
		}
	}
	if n != a.Times {
		return false, nil
	}
	return d.take()
}

// passes reports whether reaching point passes the point called name: the same,
// or one entry of a commit that wrote several.
func passes(point, name string) bool {
	if point == name {
		return true
	}
	when, entries, _ := strings.Cut(point, ":")
	want, entry, _ := strings.Cut(name, ":")
	if when != want {
		return false
	}
	return slices.Contains(strings.Split(entries, "+"), entry)
}

// pointsSize returns where the next point will be noted.
func (d Dir) pointsSize() (int64, error) {
	info, err := os.Stat(d.file(pointsFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// pointsFrom returns the points noted from byte from on.
func (d Dir) pointsFrom(from int64) ([]string, error) {
	raw, err := os.ReadFile(d.file(pointsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(raw[min(from, int64(len(raw))):])), nil
}

// Join marks the calling process as one that may still write notes about calls.
// Closing the file, or the end of the process, takes the mark away.
func (d Dir) Join() (*os.File, error) {
	f, err := os.OpenFile(d.file(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, syscall.LOCK_SH); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// settle waits until no process that joined is left: the notes are then final.
func (d Dir) settle() error {
	f, err := os.OpenFile(d.file(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(flock(f, syscall.LOCK_EX), f.Close())
}

// flock waits for a lock on f that ends with it.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (d Dir) file(name string) string { return filepath.Join(d.Path, name) }

func (d Dir) append(name string, v any, sync bool) error {
	raw, err := rawjson.Marshal(v)
	if err != nil {
		return err
	}
	return d.appendBytes(name, append(raw, '\n'), sync)
}

// appendBytes writes a line in one piece: writers of other processes stand
// before or after it (open(2), O_APPEND).
func (d Dir) appendBytes(name string, line []byte, sync bool) error {
	f, err := os.OpenFile(d.file(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(line)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func readLines[T any](d Dir, name string) ([]T, error) {
	raw, err := os.ReadFile(d.file(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []T
	for i, line := range bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var v T
		if err := rawjson.Decode(line, &v); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, i+1, err)
		}
		out = append(out, v)
	}
	return out, nil
}
