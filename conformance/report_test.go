package conformance

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sample() *Report {
	r := &Report{Agent: "shop", Digest: "sha256:00", Counted: map[string]string{"docs": "trajectory", "orders": "proxy"}, Results: []Result{}}
	first := Result{Name: "agent"}
	first.check(CheckManifest, true, "", "")
	r.add(first, 1500*time.Millisecond)
	bad := Result{Capability: "support", Name: "cancel", Fault: "kill after:call.started"}
	bad.check(CheckAccepted, true, "ignored", "ignored")
	bad.check(CheckTimes, false, "call_1 1 times", "call_1 <2> times\x1b")
	r.add(bad, 0)
	r.add(Result{Capability: "support", Name: "late", Skipped: "expire needs a server"}, 0)
	return r
}

func TestWriteText(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `agent shop sha256:00
note: executions at docs are counted from the trajectory; no proxy stands before it

agent: 1 of 1 checks passed
  ok    manifest valid

support/cancel [kill after:call.started]: 1 of 2 checks passed
  ok    run accepted
  FAIL  each call ran exactly the expected number of times: expected call_1 1 times; got call_1 <2> times` + "\uFFFD" + `

support/late: skipped: expire needs a server

2 checks passed, 1 FAILED, 1 cases skipped
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWriteJSON(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), &back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if back.OK() || !strings.Contains(b.String(), `"checks":[]`) {
		t.Errorf("report: %s", &b)
	}
}

func TestWriteJUnit(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := sample().WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	var back junitSuites
	if err := xml.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatalf("%v in %s", err, &b)
	}
	if back.Tests != 4 || back.Failures != 1 || back.Skipped != 1 || len(back.Suites) != 3 || back.Suites[0].Time != "1.500" {
		t.Errorf("totals of %s", &b)
	}
	failed := back.Suites[1].Cases[1]
	if failed.Failure == nil || failed.Failure.Message != "expected call_1 1 times; got call_1 <2> times\uFFFD" || failed.Class != "support/cancel [kill after:call.started]" {
		t.Errorf("failure %+v", failed)
	}
	if back.Suites[2].Cases[0].Skipped == nil {
		t.Errorf("skipped %+v", back.Suites[2])
	}
}

// A report without a check proves nothing.
func TestEmptyReportIsNotOK(t *testing.T) {
	t.Parallel()
	if (&Report{}).OK() {
		t.Error("an empty report is good")
	}
}
