package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"strings"
	"text/tabwriter"
	"time"

	"agentos/bench/floor"
)

// report is everything measured. Durations are in microseconds.
type report struct {
	At          time.Time `json:"at"`
	Go          string    `json:"go"`
	CPUs        int       `json:"cpus"`
	LoadBefore  string    `json:"load_before"`
	LoadAfter   string    `json:"load_after"`
	AppendFsync string    `json:"appendfsync"`
	Rounds      int       `json:"rounds"`
	Runs        int       `json:"runs"`
	Parked      int       `json:"parked"`

	Speed    []speed     `json:"speed"`
	Tool     latency     `json:"tool_call"`
	Trips    []trips     `json:"round_trips"`
	React    reaction    `json:"decision_to_tool"`
	Held     []heldCost  `json:"held_runs"`
	Turns    []turnBytes `json:"bytes_per_turn"`
	Starts   []start     `json:"starts"`
	Takeover takeover    `json:"takeover"`
	Targets  judgement   `json:"targets"`
}

// latency is what one closed loop saw.
type latency struct {
	P50 int64 `json:"p50_us"`
	P99 int64 `json:"p99_us"`
}

// speed is one capability on one system at one level: the medians of the rounds,
// and their extremes.
type speed struct {
	System     string `json:"system"`
	Title      string `json:"title"`
	Level      string `json:"level"`
	Durability string `json:"durability"`
	Scenario   string `json:"scenario"`
	latency
	P50Low  int64 `json:"p50_us_low"`
	P50High int64 `json:"p50_us_high"`
	// Rate is runs per second with 64 in flight; Low and High the extremes.
	Rate int64 `json:"runs_per_s"`
	Low  int64 `json:"runs_per_s_low"`
	High int64 `json:"runs_per_s_high"`
	// CPU is the processor time one run took in the process that is measured, and
	// ServerCPU in redis-server, with 64 in flight. Outside load changes them least.
	// Peers in process know only their own.
	CPU       int64 `json:"cpu_us"`
	ServerCPU int64 `json:"server_cpu_us,omitempty"`
}

// trips are the operations of the store that one run needs.
type trips struct {
	Store    string `json:"store"`
	Scenario string `json:"scenario"`
	// Operations is counted around the store, Requests by the Redis driver, and
	// Scripts by the server; Commands includes what its scripts call.
	Operations int64 `json:"operations"`
	Requests   int64 `json:"requests,omitempty"`
	Scripts    int64 `json:"scripts,omitempty"`
	Commands   int64 `json:"commands,omitempty"`
}

// heldCost is what held runs cost while nobody decides.
type heldCost struct {
	Store string `json:"store"`
	// Bytes and Keys are per held run. The file has no keys.
	Bytes int64   `json:"bytes"`
	Keys  float64 `json:"keys,omitempty"`
	// What the process has with none and with all of them, after a collection.
	GoroutinesBefore int   `json:"goroutines_before"`
	GoroutinesAfter  int   `json:"goroutines_after"`
	HeapBefore       int64 `json:"heap_before"`
	HeapAfter        int64 `json:"heap_after"`
	RSSBefore        int64 `json:"rss_before"`
	RSSAfter         int64 `json:"rss_after"`
	// Decide is the time from decision to completed in a process that has never
	// seen the run, with no run held and with all of them.
	DecideNone   latency `json:"decide_none"`
	DecideParked latency `json:"decide_parked"`
}

// turnBytes is what one turn of a long run writes.
type turnBytes struct {
	Store string `json:"store"`
	Turn  int    `json:"turn"`
	// Journal is the data of the entries; Written what the store wrote for them.
	Journal int64 `json:"journal"`
	Written int64 `json:"written"`
}

// start is from the start of agentos serve to the answer to its first run over HTTP:
// the median of some processes, on an empty store and on one with Held held runs.
type start struct {
	Store     string `json:"store"`
	Processes int    `json:"processes"`
	Held      int    `json:"held"`
	Empty     int64  `json:"empty_us"`
	Full      int64  `json:"full_us"`
}

// reaction is from a decision to the beginning of the tool's call, with 64 runs in
// flight over HTTP on Redis.
type reaction struct {
	Decisions int `json:"decisions"`
	latency
}

// takeover is from the kill of a process to the moment at which another one has its
// run, which is leased for Lease.
type takeover struct {
	Kills   int   `json:"kills"`
	Lease   int64 `json:"lease_us"`
	Median  int64 `json:"median_us"`
	Longest int64 `json:"longest_us"`
}

func newReport(s settings, now time.Time) *report {
	return &report{
		At: now.UTC().Truncate(time.Second), Go: goruntime.Version(), CPUs: goruntime.NumCPU(), LoadBefore: load(),
		AppendFsync: s.fsync, Rounds: s.rounds, Runs: s.runs, Parked: s.parked,
	}
}

// load is the load average, "" where the system does not tell it.
func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *report) writeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s, %d CPUs, load %s before and %s after; Redis appendfsync %s\n", r.Go, r.CPUs, r.LoadBefore, r.LoadAfter, r.AppendFsync)
	fmt.Fprintf(t, "latency: %d runs, one at a time; throughput: %d in flight; medians of %d rounds (low-high)\n", r.Runs, inFlight, r.Rounds)
	for _, level := range []string{inProcess, overHTTP} {
		for _, capability := range []string{lookup, approve} {
			r.speedTable(t, level, capability)
		}
	}
	fmt.Fprintf(t, "\nthe MCP call alone: p50 %s, p99 %s (inside every run of agentos once)\n", ms(r.Tool.P50), ms(r.Tool.P99))
	fmt.Fprintf(t, "decision -> call of the tool, over HTTP with %d in flight: p50 %s, p99 %s (%d decisions)\n",
		inFlight, ms(r.React.P50), ms(r.React.P99), r.React.Decisions)
	fmt.Fprintf(t, "kill -9 -> another process has the run: lease of %s and %s, at the longest of %d %s\n",
		ms(r.Takeover.Lease), ms(r.Takeover.Median-r.Takeover.Lease), r.Takeover.Kills, ms(r.Takeover.Longest-r.Takeover.Lease))
	r.costTables(t)
	r.targetTable(t)
	return t.Flush()
}

func (r *report) costTables(t io.Writer) {
	fmt.Fprint(t, "\nround trips per run\toperations\trequests\tscripts\tcommands inside and outside scripts\n")
	for _, x := range r.Trips {
		fmt.Fprintf(t, "%s, %s\t%d\t%d\t%d\t%d\n", x.Store, x.Scenario, x.Operations, x.Requests, x.Scripts, x.Commands)
	}
	fmt.Fprintf(t, "\n%d held runs\tbytes each\tkeys each\tgoroutines\theap KiB\tRSS KiB\tdecide p50/p99, none held\twith all held\tratio\n", r.Parked)
	for _, x := range r.Held {
		fmt.Fprintf(t, "%s\t%d\t%.1f\t%d -> %d\t%d -> %d\t%d -> %d\t%s / %s\t%s / %s\t%.2f\n", x.Store, x.Bytes, x.Keys,
			x.GoroutinesBefore, x.GoroutinesAfter, x.HeapBefore>>10, x.HeapAfter>>10, x.RSSBefore>>10, x.RSSAfter>>10,
			ms(x.DecideNone.P50), ms(x.DecideNone.P99), ms(x.DecideParked.P50), ms(x.DecideParked.P99), ratio(x.DecideParked.P50, x.DecideNone.P50))
	}
	fmt.Fprint(t, "\nbytes of one turn\tjournal\twritten by the store\n")
	for _, x := range r.Turns {
		fmt.Fprintf(t, "%s, turn %d\t%d\t%d\n", x.Store, x.Turn, x.Journal, x.Written)
	}
	fmt.Fprint(t, "\nagentos serve to its first completed run\tempty store\twith held runs\tratio\n")
	for _, x := range r.Starts {
		fmt.Fprintf(t, "%s (median of %d)\t%s\t%s (%d)\t%.2f\n", x.Store, x.Processes, ms(x.Empty), ms(x.Full), x.Held, ratio(x.Full, x.Empty))
	}
}

// speedTable has the rows of one level and capability. Ratios are to floor-full in
// process at both levels: the floor has no HTTP.
func (r *report) speedTable(w io.Writer, level, capability string) {
	fmt.Fprintf(w, "\n%s, %s\tp50 ms\tp99 ms\t÷ floor-full\truns/s\t÷ floor-full\tCPU ms per run\tin Redis\tdurability\n", capability, level)
	base := r.find(floor.Full, inProcess, capability)
	for _, x := range r.Speed {
		if x.Level != level || x.Scenario != capability {
			continue
		}
		fmt.Fprintf(w, "%s\t%s (%s-%s)\t%s\t%.1f\t%d (%d-%d)\t%.2f\t%s\t%s\t%s\n", x.Title, ms(x.P50), ms(x.P50Low), ms(x.P50High), ms(x.P99),
			ratio(x.P50, base.P50), x.Rate, x.Low, x.High, ratio(x.Rate, base.Rate), ms(x.CPU), ms(x.ServerCPU), x.Durability)
	}
}

// find returns the row of a system, or one of zeros when it was not measured.
func (r *report) find(system, level, capability string) speed {
	for _, x := range r.Speed {
		if x.System == system && x.Level == level && x.Scenario == capability {
			return x
		}
	}
	return speed{}
}

func (r *report) targetTable(w io.Writer) {
	fmt.Fprint(w, "\ntarget\tat\tmeasured\t\n")
	if r.Targets.Refused != "" {
		fmt.Fprintf(w, "not judged: %s\n", r.Targets.Refused)
	}
	for _, x := range r.Targets.Targets {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", x.Name, x.Want, x.Got, x.Verdict)
	}
}

// ms writes microseconds as milliseconds.
func ms(us int64) string { return fmt.Sprintf("%.2f", float64(us)/1000) }

func ratio(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }
