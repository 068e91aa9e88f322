package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/bench/floor"
)

// quiet is a report that meets every target, exactly at the bound where that is
// possible.
func quiet() *report {
	row := func(system, level, capability string, p50, rate int64) speed {
		return speed{System: system, Level: level, Scenario: capability, latency: latency{P50: p50, P99: 2 * p50}, Rate: rate}
	}
	return &report{
		CPUs: 2, LoadBefore: "3.00 1.00 0.50", AppendFsync: "everysec", Parked: 10_000,
		Speed: []speed{
			row(floor.Min, inProcess, approve, 50, 9000),
			row(floor.Full, inProcess, approve, 100, 1000),
			row(floor.Full, inProcess, lookup, 100, 1000),
			row(floor.Full, overHTTP, approve, 900, 10), // not what anything is compared to
			row(redisStore, inProcess, approve, 250, 500),
			row(redisStore, inProcess, lookup, 300, 350),
			row(redisStore, overHTTP, approve, 300, 350),
			row(fileStore, inProcess, approve, 1, 100_000),
			row("ai-sdk", inProcess, approve, 900, 250),
			row("langgraph-sqlite", inProcess, approve, 900, 200),
			row("langgraph-sqlite", overHTTP, approve, 900, 35),
		},
		Trips:    []trips{{Scenario: lookup, Operations: 4}, {Scenario: approve, Operations: 6}, {Scenario: elsewhere, Operations: 7}},
		React:    reaction{Decisions: 1, latency: latency{P50: 1, P99: 20_000}},
		Held:     []heldCost{{Bytes: 8 << 10, Keys: 3, RSSBefore: 1 << 20, RSSAfter: 11 << 20, DecideNone: latency{P50: 100}, DecideParked: latency{P50: 130}}},
		Turns:    []turnBytes{{Turn: earlyTurn, Written: 100}, {Turn: lateTurn, Written: 120}},
		Starts:   []start{{Store: fileStore, Empty: 100_000, Full: 150_000}, {Store: redisStore, Empty: 300_000, Full: 300_000}},
		Takeover: takeover{Kills: 1, Lease: 5_000_000, Longest: 6_000_000},
	}
}

func verdicts(j judgement) map[verdict]int {
	out := map[verdict]int{}
	for _, a := range j.Targets {
		out[a.Verdict]++
	}
	return out
}

func TestJudge(t *testing.T) {
	t.Parallel()
	all := len(judge(quiet()).Targets)
	for name, c := range map[string]struct {
		change func(*report)
		want   map[verdict]int
	}{
		"every target at its bound": {func(*report) {}, map[verdict]int{met: all}},
		"one missed":                {func(r *report) { r.Takeover.Longest++ }, map[verdict]int{met: all - 1, missed: 1}},
		"the worse store counts":    {func(r *report) { r.Held = append(r.Held, heldCost{Keys: 4}) }, map[verdict]int{met: all - 1, missed: 1}},
		"a slower start when full":  {func(r *report) { r.Starts[1].Full = 500_000 }, map[verdict]int{met: all - 1, missed: 1}},
		"memory of many held runs":  {func(r *report) { r.Parked, r.Held[0].RSSAfter = 100_000, 21<<20 }, map[verdict]int{met: all}},
		"no peers":                  {func(r *report) { r.Speed = r.Speed[:8] }, map[verdict]int{met: all - 2, notMeasured: 2}},
		"nothing measured":          {func(r *report) { *r = report{CPUs: 2, LoadBefore: "0 0 0", AppendFsync: "everysec"} }, map[verdict]int{notMeasured: all}},
		"a busy machine":            {func(r *report) { r.LoadBefore = "3.01 0 0" }, map[verdict]int{notJudged: all}},
		"an unknown load":           {func(r *report) { r.LoadBefore = "" }, map[verdict]int{notJudged: all}},
		"another durability":        {func(r *report) { r.AppendFsync = "always" }, map[verdict]int{notJudged: all}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := quiet()
			c.change(r)
			j := judge(r)
			if diff := cmp.Diff(c.want, verdicts(j)); diff != "" {
				t.Errorf("%s\n%+v", diff, j)
			}
			if (j.Refused != "") != (c.want[notJudged] > 0) {
				t.Errorf("refused: %q", j.Refused)
			}
		})
	}
}

// What was measured is told even when it is not judged.
func TestJudgeTellsFigures(t *testing.T) {
	t.Parallel()
	r := quiet()
	r.LoadBefore = "9.00 0 0"
	for _, a := range judge(r).Targets {
		if a.Got == "" || a.Want == "" || a.Name == "" {
			t.Errorf("%+v", a)
		}
	}
	var text strings.Builder
	r.Targets = judge(r)
	if err := r.writeTable(&text); err != nil || !strings.Contains(text.String(), "not judged: the load average was 9.00 on 2 CPUs") {
		t.Errorf("%v\n%s", err, text.String())
	}
}
