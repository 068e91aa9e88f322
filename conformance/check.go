package conformance

import (
	"strings"
	"time"
	"unicode"
)

// The names of all checks, as reports show them.
const (
	CheckManifest  = "manifest valid"
	CheckReady     = "health and ready"
	CheckNoSuch    = "unknown capability refused"
	CheckInput     = "invalid input refused"
	CheckAccepted  = "run accepted"
	CheckStatus    = "status as expected"
	CheckHoldShape = "hold shape"
	CheckHold      = "hold as expected"
	CheckItem      = "unknown item refused"
	CheckAction    = "unknown action refused"
	CheckEdit      = "edit without data refused"
	CheckDecided   = "decision accepted"
	CheckSecond    = "second decision refused"
	CheckRepeat    = "repeated decision changes nothing"
	CheckCompletes = "decided run completes"
	CheckFails     = "decided run fails"
	CheckSchema    = "output matches the schema"
	CheckOutput    = "output as expected"
	CheckTimes     = "each call ran exactly the expected number of times"
	CheckApproved  = "what was approved is what ran"
	CheckHistories = "history valid at every model call"
	CheckFailure   = "failure has code and message"
	CheckError     = "error as expected"
	CheckNetwork   = "network denied"
	CheckFault     = "fault came to pass"
	CheckRecovered = "recovered as the crash table says"
	CheckLost      = "lost call ended as its effect class says"
	CheckChanged   = "changed tool is asked about again"
	CheckIdentical = "identical decisions at once are one"
	CheckRace      = "racing decisions have one winner"
	CheckLate      = "decision after expiry refused"
	CheckExpired   = "expired call did not run"
	CheckAnswers   = "server answers"
)

// Check is one thing that was looked at.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Expected and Seen tell why a check failed; empty when it passed.
	Expected string `json:"expected,omitempty"`
	Seen     string `json:"seen,omitempty"`
}

// Result is a case, or one run of a case that is run several times, with its
// checks.
type Result struct {
	Capability string `json:"capability,omitempty"`
	Name       string `json:"name"`
	// Fault is what was done to the run, such as "kill after:call.started"; "" for
	// a run in peace.
	Fault string `json:"fault,omitempty"`
	// Skipped says why the case did not run; it then has no checks.
	Skipped string  `json:"skipped,omitempty"`
	Checks  []Check `json:"checks"`
	// DurationMS is how long it took.
	DurationMS int64 `json:"duration_ms"`
}

// Failed returns the number of checks that failed.
func (r *Result) Failed() int {
	n := 0
	for _, c := range r.Checks {
		if !c.OK {
			n++
		}
	}
	return n
}

// Title names the result in reports: case and fault.
func (r *Result) Title() string {
	title := r.Name
	if r.Capability != "" {
		title = r.Capability + "/" + r.Name
	}
	if r.Fault != "" {
		title += " [" + r.Fault + "]"
	}
	return title
}

// check records a check.
func (r *Result) check(name string, ok bool, expected, seen string) bool {
	c := Check{Name: name, OK: ok}
	if !ok {
		c.Expected, c.Seen = printable(expected), printable(short(seen))
	}
	r.Checks = append(r.Checks, c)
	return ok
}

// Report is the outcome of all cases.
type Report struct {
	// Agent and Digest say what was tested.
	Agent  string `json:"agent"`
	Digest string `json:"digest"`
	// Counted says where the numbers of executions come from, by server alias:
	// "proxy" for the kit's own count, "trajectory" for what the server says.
	Counted map[string]string `json:"counted"`
	Results []Result          `json:"results"`
	Passed  int               `json:"passed"`
	Failed  int               `json:"failed"`
	Skipped int               `json:"skipped"`
	// DurationMS is how long all of it took.
	DurationMS int64 `json:"duration_ms"`
}

// OK reports whether every check passed and there was one.
func (r *Report) OK() bool { return r.Failed == 0 && r.Passed > 0 }

func (r *Report) add(res Result, took time.Duration) {
	res.DurationMS = took.Milliseconds()
	if res.Checks == nil {
		res.Checks = []Check{}
	}
	failed := res.Failed()
	r.Passed += len(res.Checks) - failed
	r.Failed += failed
	if res.Skipped != "" {
		r.Skipped++
	}
	r.Results = append(r.Results, res)
}

// printable replaces what a terminal or an XML reader could take for more than
// text: reports repeat what agents and tools say.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
