package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"agentos/bench/floor"
	"agentos/bench/plot"
)

// draw writes the picture of a report to a file.
func draw(r *report, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("%s, %s, %d CPUs, load %s; Redis appendfsync %s; medians of %d rounds",
		r.At.Format("2006-01-02"), r.Go, r.CPUs, r.LoadBefore, r.AppendFsync, r.Rounds)
	return errors.Join(plot.Write(f, r.charts(), note), f.Close())
}

// charts are the two figures by which systems are compared.
func (r *report) charts() []plot.Chart {
	rate := plot.Chart{Title: fmt.Sprintf("approve, over HTTP, %d clients: runs per second (longer is better)", inFlight)}
	p50 := plot.Chart{Title: "approve, in process, one at a time: p50 in ms (shorter is better)"}
	for _, x := range r.Speed {
		if x.Scenario != approve {
			continue
		}
		b := plot.Bar{
			Label: x.Title, Floor: x.System == floor.Min || x.System == floor.Full, Ours: x.System == redisStore || x.System == fileStore,
		}
		if x.Level == overHTTP {
			b.Value, b.Text = float64(x.Rate), strconv.FormatInt(x.Rate, 10)
			rate.Bars = append(rate.Bars, b)
			continue
		}
		b.Value, b.Text = float64(x.P50)/1000, ms(x.P50)
		p50.Bars = append(p50.Bars, b)
	}
	return []plot.Chart{rate, p50}
}
