package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"agentos/internal/rawjson"
)

// maxLine is how long a line may be; the store takes shorter ones only.
const maxLine = 5 << 20

// Report is what Verify has found.
type Report struct {
	// Entries is how many lines were read, Head the digest of the last one. Noted
	// elsewhere, the two prove later that the chain up to there is the same.
	Entries int64  `json:"entries"`
	Head    string `json:"head"`
	// Ran is how many calls ran that a person had to let run.
	Ran int64 `json:"ran"`
	// Faults are what is wrong, in the order of the lines; the chain is sound when
	// there are none. No more than maxFaults are kept.
	Faults []Fault `json:"faults,omitempty"`
	// Seen says that the head which was asked for is in the chain.
	Seen bool `json:"head_seen,omitempty"`
}

// Fault is one thing that is wrong.
type Fault struct {
	// Line counts from 1; 0 for what is no one line's fault.
	Line    int64  `json:"line,omitempty"`
	Message string `json:"message"`
}

const maxFaults = 100

// Verify reads a chain from its first line, one JSON object to a line, and checks
// that the lines are numbered and follow each other, and that every call which a
// person had to let run ran with the arguments of the newest decision about it.
// head, when it is not "", is the digest of a line noted earlier, which must be in
// the chain. The error is that of r.
func Verify(r io.Reader, head string) (Report, error) {
	v := verifier{approved: map[string]string{}, want: head}
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return v.report, err
		}
		v.line(line)
	}
	if head != "" && !v.report.Seen {
		v.fault(0, "no line has the digest "+head+": the chain was cut off before it, or written anew")
	}
	return v.report, nil
}

// readLine reads a line without its end; io.EOF after the last one.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxLine {
			return nil, fmt.Errorf("a line is longer than %d bytes: this is no audit export", maxLine)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0, err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		default:
			return nil, err
		}
	}
}

type verifier struct {
	report Report
	env    string
	want   string
	// approved is, by run and call, the digest of the arguments that may run.
	approved map[string]string
}

func (v *verifier) fault(line int64, message string) {
	if len(v.report.Faults) < maxFaults {
		v.report.Faults = append(v.report.Faults, Fault{Line: line, Message: message})
	}
}

func (v *verifier) line(line []byte) {
	v.report.Entries++
	n, prev := v.report.Entries, v.report.Head
	v.report.Head = digest(line)
	if v.report.Head == v.want {
		v.report.Seen = true
	}
	var e Entry
	if err := rawjson.Unmarshal(line, &e); err != nil {
		v.fault(n, "it is no JSON object of an audit entry")
		return
	}
	if e.N != n {
		v.fault(n, fmt.Sprintf("it says that it is entry %d", e.N))
	}
	if e.Prev != prev {
		v.fault(n, "it does not follow the line before it: one of the two was changed, or lines were taken out or put in between")
	}
	if n == 1 {
		v.env = e.Env
	} else if e.Env != v.env {
		v.fault(n, fmt.Sprintf("it is of environment %q, the chain of %q", e.Env, v.env))
	}
	v.follow(n, e)
}

// follow keeps what was decided and compares it with what ran.
func (v *verifier) follow(n int64, e Entry) {
	for _, it := range e.Items {
		key := e.Run + "/" + it.Call
		switch it.Action {
		case "approve", "edit", "retry":
			if !it.Open {
				v.approved[key] = it.Decided
			}
		case "reject":
			delete(v.approved, key)
		}
	}
	if e.Event != CallRan {
		return
	}
	v.report.Ran++
	if e.Call == nil {
		v.fault(n, "it does not say which call ran")
		return
	}
	switch want, ok := v.approved[e.Run+"/"+e.Call.ID]; {
	case !ok:
		v.fault(n, fmt.Sprintf("call %s of run %s ran, and no entry before it approves that", e.Call.ID, e.Run))
	case want != e.Call.Arguments:
		v.fault(n, fmt.Sprintf("call %s of run %s ran with other arguments than were approved", e.Call.ID, e.Run))
	}
}
