package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
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

	Speed []speed     `json:"speed"`
	Tool  latency     `json:"tool_call"`
	Trips []trips     `json:"round_trips"`
	Held  []heldCost  `json:"held_runs"`
	Turns []turnBytes `json:"bytes_per_turn"`
	Cold  coldStart   `json:"cold_start"`
}

// latency is what one closed loop saw.
type latency struct {
	P50 int64 `json:"p50_us"`
	P99 int64 `json:"p99_us"`
}

// speed is one scenario on one system: the medians of the rounds.
type speed struct {
	System   string `json:"system"`
	Scenario string `json:"scenario"`
	latency
	// Rate is runs per second with 64 in flight; Low and High the extremes.
	Rate int64 `json:"runs_per_s"`
	Low  int64 `json:"runs_per_s_low"`
	High int64 `json:"runs_per_s_high"`
	// CPU is the processor time one run took in this process, and ServerCPU in
	// redis-server, with 64 in flight. Outside load changes them least.
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

// coldStart is from the start of agentos serve, with an embedded store that does
// not exist yet, to the answer to the first run over HTTP: the median.
type coldStart struct {
	Processes int   `json:"processes"`
	First     int64 `json:"first_completed_us"`
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
	fmt.Fprintf(t, "%s, %d CPUs, load %s before and %s after; Redis appendfsync %s, file synchronous=FULL\n",
		r.Go, r.CPUs, r.LoadBefore, r.LoadAfter, r.AppendFsync)
	fmt.Fprintf(t, "latency: medians of %d rounds of %d runs; throughput: %d in flight, median (low-high)\n\n", r.Rounds, r.Runs, inFlight)
	r.speedTable(t)
	fmt.Fprintf(t, "\nthe MCP call alone: p50 %s, p99 %s (inside every run once)\n", ms(r.Tool.P50), ms(r.Tool.P99))
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
	fmt.Fprintf(t, "\ncold start to the first completed run over HTTP: %s (median of %d)\n", ms(r.Cold.First), r.Cold.Processes)
	return t.Flush()
}

func (r *report) speedTable(w io.Writer) {
	fmt.Fprint(w, "scenario\tp50 ms\tp99 ms\t÷ floor\truns/s\t÷ floor\tCPU ms per run: here\tin Redis\n")
	for _, x := range r.Speed {
		i := slices.IndexFunc(r.Speed, func(y speed) bool { return y.System == floorFull && y.Scenario == x.Scenario })
		fmt.Fprintf(w, "%s, %s\t%s\t%s\t%.2f\t%d (%d-%d)\t%.2f\t%s\t%s\n", x.Scenario, x.System, ms(x.P50), ms(x.P99),
			ratio(x.P50, r.Speed[i].P50), x.Rate, x.Low, x.High, ratio(x.Rate, r.Speed[i].Rate), ms(x.CPU), ms(x.ServerCPU))
	}
}

// ms writes microseconds as milliseconds.
func ms(us int64) string { return fmt.Sprintf("%.2f", float64(us)/1000) }

func ratio(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }
