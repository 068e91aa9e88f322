package conformance

import (
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// puppetCases touch every check that the puppet can break.
func puppetCases(t *testing.T) []Case {
	t.Helper()
	data, err := os.ReadFile("testdata/puppet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := Parse("puppet.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

func runPuppet(t *testing.T, mode string, cases []Case) Report {
	t.Helper()
	dir := Dir{Path: t.TempDir()}
	p := newPuppet(mode, dir)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	report, err := Run(t.Context(), Config{
		Cases: cases, HTTP: &http.Client{Transport: transport}, Clock: p.clock, Start: p.start, Dir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// An agent that keeps every promise passes every case under every fault.
func TestWellBehavedAgent(t *testing.T) {
	t.Parallel()
	report := runPuppet(t, "", puppetCases(t))
	for _, r := range report.Results {
		for _, c := range r.Checks {
			if !c.OK {
				t.Errorf("%s: %+v", r.Title(), c)
			}
		}
	}
	seen := map[string]bool{}
	for _, r := range report.Results {
		for _, c := range r.Checks {
			seen[c.Name] = true
		}
	}
	for _, name := range []string{
		CheckManifest, CheckReady, CheckNoSuch, CheckInput, CheckAccepted, CheckStatus, CheckHoldShape, CheckHold, CheckItem, CheckAction,
		CheckEdit, CheckDecided, CheckSecond, CheckRepeat, CheckCompletes, CheckSchema, CheckOutput, CheckTimes, CheckApproved, CheckHistories,
		CheckFailure, CheckError, CheckNetwork, CheckFault, CheckRecovered, CheckLost, CheckChanged, CheckIdentical, CheckRace, CheckLate, CheckExpired,
	} {
		if !seen[name] {
			t.Errorf("no case makes the check %q", name)
		}
	}
	if !report.OK() {
		t.Error(report.Summary())
	}
}

// Every broken promise trips the check that is there for it, and no other. Where
// a fault breaks two promises at once, both are named.
func TestMisbehavingAgent(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]struct {
		cases  []string
		checks []string
	}{
		"no store":                 {nil, []string{CheckReady}},
		"has every capability":     {nil, []string{CheckNoSuch}},
		"takes any input":          {nil, []string{CheckInput}},
		"accepts no run":           {[]string{"read"}, []string{CheckAccepted}},
		"hangs up":                 {[]string{"read"}, []string{CheckAnswers}},
		"crashes":                  {[]string{"read", "approved"}, []string{CheckAnswers}},
		"asks nobody":              {[]string{"approved"}, []string{CheckStatus}},
		"no intent":                {[]string{"approved"}, []string{CheckHoldShape}},
		"takes unknown items":      {[]string{"approved"}, []string{CheckItem}},
		"takes unknown actions":    {[]string{"approved"}, []string{CheckAction}},
		"takes edits without data": {[]string{"approved"}, []string{CheckEdit}},
		"refuses decisions":        {[]string{"approved"}, []string{CheckDecided}},
		"takes second decisions":   {[]string{"approved", "edited", "rejected"}, []string{CheckSecond}},
		"refuses repeats":          {[]string{"approved"}, []string{CheckRepeat}},
		"fails after decision":     {[]string{"approved"}, []string{CheckCompletes}},
		"bad output":               {[]string{"edited"}, []string{CheckSchema}},
		"other output":             {[]string{"read"}, []string{CheckOutput}},
		"runs twice":               {[]string{"read", "approved"}, []string{CheckTimes}},
		"runs what was rejected":   {[]string{"rejected"}, []string{CheckTimes}},
		"other arguments":          {[]string{"approved"}, []string{CheckApproved}},
		"invalid history":          {[]string{"approved"}, []string{CheckHistories}},
		"no message":               {[]string{"offline"}, []string{CheckFailure}},
		"other code":               {[]string{"offline"}, []string{CheckError}},
		"reaches the network":      {[]string{"offline"}, []string{CheckNetwork}},
		"hides points":             {[]string{"unknown"}, []string{CheckFault}},
		"reruns after crash":       {[]string{"unknown"}, []string{CheckTimes, CheckRecovered}},
		"forgets the call":         {[]string{"started"}, []string{CheckTimes, CheckRecovered}},
		"new key after crash":      {[]string{"started"}, []string{CheckTimes, CheckRecovered}},
		"calls it a success":       {[]string{"dropped"}, []string{CheckLost}},
		"uses old approvals":       {[]string{"changed"}, []string{CheckChanged}},
		"decides too late":         {[]string{"expired"}, []string{CheckLate, CheckTimes, CheckExpired}},
		"runs what expired":        {[]string{"expired"}, []string{CheckTimes, CheckExpired}},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cases := slices.DeleteFunc(puppetCases(t), func(c Case) bool { return !slices.Contains(want.cases, c.Name) })
			if want.cases == nil {
				cases = puppetCases(t)[1:2]
			}
			checkTripped(t, runPuppet(t, mode, cases), want.checks)
		})
	}
	for mode, want := range map[string]string{"refuses repeats": CheckIdentical, "takes second decisions": CheckRace} {
		t.Run(mode+" at once", func(t *testing.T) {
			t.Parallel()
			cases := slices.DeleteFunc(puppetCases(t), func(c Case) bool { return c.Name != "at-once" })
			report := runPuppet(t, mode, cases)
			// The other of the two races may suffer too: who wins is not decided.
			if !slices.Contains(tripped(report), want) {
				t.Errorf("tripped %q, want %q among them", tripped(report), want)
			}
		})
	}
}

// tripped are the names of the checks that failed, each once.
func tripped(r Report) []string {
	var out []string
	for _, res := range r.Results {
		for _, c := range res.Checks {
			if !c.OK && !slices.Contains(out, c.Name) {
				out = append(out, c.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

func checkTripped(t *testing.T, report Report, want []string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, tripped(report)); diff != "" {
		t.Errorf("checks that failed (-want +got):\n%s", diff)
		for _, r := range report.Results {
			for _, c := range r.Checks {
				if !c.OK {
					t.Logf("%s: %s: expected %s; got %s", r.Title(), c.Name, c.Expected, c.Seen)
				}
			}
		}
	}
	if report.OK() {
		t.Error("the report is good")
	}
}

// A server that the kit did not start is tested as far as that goes.
func TestForeignServer(t *testing.T) {
	t.Parallel()
	p := newPuppet("", Dir{Path: t.TempDir()})
	server, err := p.start(t.Context(), Launch{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	report, err := Run(t.Context(), Config{
		Cases: puppetCases(t), HTTP: &http.Client{Transport: transport}, Clock: p.clock, URL: server.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	skipped := 0
	for _, r := range report.Results {
		if r.Skipped != "" {
			skipped++
		}
	}
	if report.Skipped != 6 || skipped != 6 {
		t.Errorf("skipped %d and %d, want the 6 cases that need a server of the kit's own", report.Skipped, skipped)
	}
	if report.Counted["tools"] != "trajectory" {
		t.Errorf("counted %v, want from the trajectory", report.Counted)
	}
}

func TestRunNeedsATarget(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"nothing":   {},
		"no target": {HTTP: &http.Client{}, Clock: newQuick()},
		"two":       {HTTP: &http.Client{}, Clock: newQuick(), URL: "http://127.0.0.1:1", Start: (&puppet{}).start},
	} {
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
