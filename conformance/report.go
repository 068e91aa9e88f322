package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentos/internal/rawjson"
)

// WriteText writes the report for people: every check on a line of its own.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "agent %s %s\n", r.Agent, r.Digest)
	for _, server := range slices.Sorted(maps.Keys(r.Counted)) {
		if r.Counted[server] == "trajectory" {
			fmt.Fprintf(&b, "note: executions at %s are counted from the trajectory; no proxy stands before it\n", server)
		}
	}
	for _, res := range r.Results {
		b.WriteString("\n")
		writeResult(&b, res)
	}
	b.WriteString("\n" + r.Summary() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func writeResult(b *strings.Builder, res Result) {
	if res.Skipped != "" {
		fmt.Fprintf(b, "%s: skipped: %s\n", res.Title(), res.Skipped)
		return
	}
	failed := res.Failed()
	fmt.Fprintf(b, "%s: %d of %d checks passed\n", res.Title(), len(res.Checks)-failed, len(res.Checks))
	for _, c := range res.Checks {
		if c.OK {
			fmt.Fprintf(b, "  ok    %s\n", c.Name)
			continue
		}
		fmt.Fprintf(b, "  FAIL  %s: expected %s; got %s\n", c.Name, c.Expected, c.Seen)
	}
}

// Summary is the last line of the text: "24 checks passed".
func (r *Report) Summary() string {
	out := fmt.Sprintf("%d checks passed", r.Passed)
	if r.Failed > 0 {
		out += fmt.Sprintf(", %d FAILED", r.Failed)
	}
	if r.Skipped > 0 {
		out += fmt.Sprintf(", %d cases skipped", r.Skipped)
	}
	return out
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	raw, err := rawjson.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}

// The elements of JUnit XML as CI systems read it: a suite for each run of a
// case, a test case for each check.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure"`
		Skipped *junitMessage `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
	}
)

// WriteJUnit writes the report as JUnit XML.
func (r *Report) WriteJUnit(w io.Writer) error {
	all := junitSuites{
		Name: "agentos conformance " + r.Agent, Tests: r.Passed + r.Failed + r.Skipped, Failures: r.Failed, Skipped: r.Skipped, Time: seconds(r.DurationMS),
	}
	for _, res := range r.Results {
		all.Suites = append(all.Suites, junit(res))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junit(res Result) junitSuite {
	s := junitSuite{Name: res.Title(), Tests: len(res.Checks), Failures: res.Failed(), Time: seconds(res.DurationMS)}
	if res.Skipped != "" {
		s.Tests, s.Skipped = 1, 1
		s.Cases = append(s.Cases, junitCase{Class: res.Title(), Name: "case", Skipped: &junitMessage{Message: res.Skipped}})
	}
	for _, c := range res.Checks {
		jc := junitCase{Class: res.Title(), Name: c.Name}
		if !c.OK {
			jc.Failure = &junitMessage{Message: "expected " + c.Expected + "; got " + c.Seen}
		}
		s.Cases = append(s.Cases, jc)
	}
	return s
}

func seconds(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }
