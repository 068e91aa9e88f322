package main

import (
	"fmt"
	"strconv"
	"strings"

	"agentos/bench/floor"
)

// judgement is how the product stands to its targets.
type judgement struct {
	// Refused says why nothing is judged; "" when it is.
	Refused string `json:"refused,omitempty"`
	Targets []aim  `json:"rows"`
}

// verdict is met or missed, or says why it is neither.
type verdict string

// The verdicts.
const (
	met         verdict = "met"
	missed      verdict = "missed"
	notMeasured verdict = "not measured"
	notJudged   verdict = "not judged"
)

// aim is one target: a figure that must be at most, or at least, a bound.
type aim struct {
	Name    string  `json:"name"`
	Want    string  `json:"want"`
	Got     string  `json:"got"`
	Verdict verdict `json:"verdict"`
}

// maxLoad is the load average for each CPU above which nothing is judged: what was
// measured then is the neighbours.
const maxLoad = 1.5

// judge compares what was measured with the targets. Figures that were not
// measured are told as such; a busy machine is a reason to refuse.
func judge(r *report) judgement {
	j := judgement{Refused: refusal(r)}
	for _, t := range append(speedAims(r), costAims(r)...) {
		switch {
		case t.Got == "":
			t.Verdict = notMeasured
		case j.Refused != "":
			t.Verdict = notJudged
		}
		j.Targets = append(j.Targets, t)
	}
	return j
}

// refusal says why a report must not be judged, "" if it may.
func refusal(r *report) string {
	first, _, _ := strings.Cut(r.LoadBefore, " ")
	load, err := strconv.ParseFloat(first, 64)
	switch {
	case err != nil:
		return fmt.Sprintf("the load average %q cannot be read", r.LoadBefore)
	case load > maxLoad*float64(r.CPUs):
		return fmt.Sprintf("the load average was %s on %d CPUs at the start, more than %.1f for each", first, r.CPUs, maxLoad)
	case r.AppendFsync != "everysec":
		return "the targets are for appendfsync everysec"
	}
	return ""
}

// atMost and atLeast make a target of a figure. ok is false where it was not
// measured.
func atMost(name string, got, bound float64, ok bool) aim {
	return newAim(name, "≤ ", got, bound, ok, got <= bound)
}

func atLeast(name string, got, bound float64, ok bool) aim {
	return newAim(name, "≥ ", got, bound, ok, got >= bound)
}

func newAim(name, sign string, got, bound float64, measured, good bool) aim {
	a := aim{Name: name, Want: sign + strconv.FormatFloat(bound, 'f', -1, 64), Verdict: missed}
	if measured {
		a.Got = strconv.FormatFloat(got, 'f', 2, 64)
	}
	if good {
		a.Verdict = met
	}
	return a
}

// speedAims are about Redis, side by side with floor-full in process.
func speedAims(r *report) []aim {
	var out []aim
	product := func(level, capability string) speed { return r.find(redisStore, level, capability) }
	base := map[string]speed{lookup: r.find(floor.Full, inProcess, lookup), approve: r.find(floor.Full, inProcess, approve)}
	share := func(name string, got, of int64, bound float64) {
		out = append(out, atLeast(name, ratio(got, of), bound, got > 0 && of > 0))
	}
	times := func(name string, got, of int64, bound float64) {
		out = append(out, atMost(name, ratio(got, of), bound, got > 0 && of > 0))
	}
	a, l := product(inProcess, approve), product(inProcess, lookup)
	served := product(overHTTP, approve)
	times("approve p50 in process ÷ floor-full", a.P50, base[approve].P50, 2.5)
	share("approve runs/s in process ÷ floor-full", a.Rate, base[approve].Rate, 0.5)
	share("approve runs/s in process ÷ the fastest peer", a.Rate, fastestPeer(r), 2)
	share("approve runs/s over HTTP ÷ floor-full in process", served.Rate, base[approve].Rate, 0.35)
	share("approve runs/s over HTTP ÷ LangGraph over HTTP", served.Rate, r.find("langgraph-sqlite", overHTTP, approve).Rate, 10)
	times("lookup p50 in process ÷ floor-full", l.P50, base[lookup].P50, 3)
	share("lookup runs/s in process ÷ floor-full", l.Rate, base[lookup].Rate, 0.35)
	return append(out, atMost("decision to tool over HTTP, 64 in flight, p99 ms", float64(r.React.P99)/1000, 20, r.React.Decisions > 0))
}

// fastestPeer is its approve runs/s in process, 0 when none was measured.
func fastestPeer(r *report) (rate int64) {
	ours := []string{floor.Min, floor.Full, redisStore, fileStore}
	for _, x := range r.Speed {
		peer := true
		for _, name := range ours {
			peer = peer && x.System != name
		}
		if peer && x.Level == inProcess && x.Scenario == approve {
			rate = max(rate, x.Rate)
		}
	}
	return rate
}

// costAims hold on both stores: the worse figure counts.
func costAims(r *report) []aim {
	trips := map[string]int64{}
	for _, x := range r.Trips {
		trips[x.Scenario] = max(trips[x.Scenario], x.Operations)
	}
	var bytes, memory int64
	var keys, decide, grown, started float64
	for _, x := range r.Held {
		bytes, keys = max(bytes, x.Bytes), max(keys, x.Keys)
		decide = max(decide, ratio(x.DecideParked.P50, x.DecideNone.P50))
		memory = max(memory, x.RSSAfter-x.RSSBefore)
	}
	for i := 0; i+1 < len(r.Turns); i += 2 { // early and late of one store are neighbours
		grown = max(grown, ratio(r.Turns[i+1].Written, r.Turns[i].Written))
	}
	var cold int64
	for _, x := range r.Starts {
		started = max(started, ratio(x.Full, x.Empty))
		if x.Store == fileStore {
			cold = x.Empty
		}
	}
	memoryBound := 10.0
	if r.Parked >= 100_000 {
		memoryBound = 20
	}
	held := len(r.Held) > 0
	return []aim{
		atMost("store round trips of lookup", float64(trips[lookup]), 4, len(r.Trips) > 0),
		atMost("store round trips of approve", float64(trips[approve]), 6, len(r.Trips) > 0),
		atMost("KiB per held run", float64(bytes)/1024, 8, held),
		atMost("keys per held run", keys, 3, held),
		atMost(fmt.Sprintf("decide with %d held ÷ with none", r.Parked), decide, 1.3, held),
		atMost(fmt.Sprintf("MiB of memory added by %d held runs", r.Parked), float64(memory)/(1<<20), memoryBound, held),
		atMost("start to first completed run, file, ms", float64(cold)/1000, 100, cold > 0),
		atMost(fmt.Sprintf("start with %d held ÷ with none", r.Parked), started, 1.5, len(r.Starts) > 0),
		atMost(fmt.Sprintf("bytes written for turn %d ÷ turn %d", lateTurn, earlyTurn), grown, 1.2, len(r.Turns) > 1),
		atMost("takeover after kill -9, s beyond the lease", float64(r.Takeover.Longest-r.Takeover.Lease)/1e6, 1, r.Takeover.Kills > 0),
	}
}
