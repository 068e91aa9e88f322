package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"sync"

	"agentos/runtime/journal"
	"agentos/runtime/store"
)

// trips counts what one run asks of the store, without a worker beside it.
func (b *bench) trips(ctx context.Context) error {
	for _, name := range []string{redisStore, fileStore} {
		back, err := newBacking(ctx, name, b.dir, b.fsync)
		if err != nil {
			return err
		}
		rows, err := b.countTrips(ctx, back)
		if err := errors.Join(err, back.close()); err != nil {
			return err
		}
		b.out.Trips = append(b.out.Trips, rows...)
	}
	return nil
}

// elsewhere is approve with the decision made by another process than the one
// that opened the hold.
const elsewhere = "approve, decided by another process"

func (b *bench) countTrips(ctx context.Context, back *backing) (rows []trips, err error) {
	s, err := back.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	mine, err := newProcess(ctx, processConfig{store: s, agent: b.agent, alone: true})
	if err != nil {
		return nil, err
	}
	other, err := newProcess(ctx, processConfig{store: s, agent: b.agent, alone: true})
	if err != nil {
		return nil, errors.Join(err, mine.close(ctx))
	}
	for _, sc := range []struct {
		name string
		do   func(context.Context) error
	}{
		{lookup, func(ctx context.Context) error { return mine.run(ctx, lookup) }},
		{approve, func(ctx context.Context) error { return mine.run(ctx, approve) }},
		{elsewhere, func(ctx context.Context) error {
			v, err := mine.start(ctx, approve, store.Held)
			if err != nil {
				return err
			}
			return other.decide(ctx, v.HoldID)
		}},
	} {
		row, fault := count(ctx, back, s, sc.do)
		row.Scenario = sc.name
		rows, err = append(rows, row), errors.Join(err, fault)
	}
	return rows, errors.Join(err, mine.close(ctx), other.close(ctx))
}

// count runs do a number of times and takes the median of what the store saw. Now
// and then a run needs more: when a lease is renewed meanwhile, or when the run
// ends before its starter comes to wait for it.
func count(ctx context.Context, back *backing, s *counted, do func(context.Context) error) (trips, error) {
	const n = 21
	// The first run teaches the server its scripts.
	if err := do(ctx); err != nil {
		return trips{}, err
	}
	var operations, requests, scripts, commands []int64
	for range n {
		if back.server != nil {
			if err := back.server.client.ConfigResetStat(ctx).Err(); err != nil {
				return trips{}, err
			}
		}
		operationsBefore, requestsBefore := s.trips(), s.driverTrips()
		if err := do(ctx); err != nil {
			return trips{}, err
		}
		operations = append(operations, s.trips()-operationsBefore)
		requests = append(requests, s.driverTrips()-requestsBefore)
		script, all, err := calls(ctx, back)
		if err != nil {
			return trips{}, err
		}
		scripts, commands = append(scripts, script), append(commands, all)
	}
	return trips{
		Store: back.name, Operations: median(operations), Requests: median(requests),
		Scripts: median(scripts), Commands: median(commands),
	}, nil
}

// calls are the scripts and commands a server has run since its counts were reset.
func calls(ctx context.Context, back *backing) (scripts, commands int64, err error) {
	if back.server == nil {
		return 0, 0, nil
	}
	all, err := back.server.calls(ctx)
	if err != nil {
		return 0, 0, err
	}
	for name, n := range all {
		if name != "config|resetstat" && name != "info" {
			commands += n
		}
	}
	return all["evalsha"] + all["eval"], commands, nil
}

// maxSamples is the most held runs that are decided, after a warm-up.
const maxSamples = 200

// samples are how many decisions come before the timed ones, and how many are
// timed.
func (s settings) samples() (before, timed int) {
	return min(warmUp, s.runs), min(maxSamples, s.runs)
}

// held measures what held runs cost.
func (b *bench) held(ctx context.Context) error {
	for _, name := range []string{redisStore, fileStore} {
		row := heldCost{Store: name}
		back, err := newBacking(ctx, name, b.dir, b.fsync)
		if err != nil {
			return err
		}
		err = errors.Join(b.decideNone(ctx, &row), b.decideParked(ctx, back, &row), back.close())
		if err != nil {
			return err
		}
		b.out.Held = append(b.out.Held, row)
	}
	return nil
}

// decideNone times decisions while no other run is held. A second engine decides,
// which has to read the run, as after a restart.
func (b *bench) decideNone(ctx context.Context, row *heldCost) error {
	return b.on(ctx, row.Store, func(_ *backing, p *process) error {
		other, err := newProcess(ctx, processConfig{store: p.store, agent: b.agent, alone: true})
		if err != nil {
			return err
		}
		var took []int64
		before, timed := b.samples()
		for i := 0; i < before+timed && err == nil; i++ {
			var v store.View
			var us int64
			if v, err = p.start(ctx, approve, store.Held); err != nil {
				break
			}
			if us, err = timeDecide(ctx, other, v.HoldID); i >= before {
				took = append(took, us)
			}
		}
		if err = errors.Join(err, other.close(ctx)); err != nil {
			return err
		}
		row.DecideNone = spread(took)
		return nil
	})
}

// decideParked leaves runs held, looks at what they cost, and decides some of them
// in a new process.
func (b *bench) decideParked(ctx context.Context, back *backing, row *heldCost) error {
	// The scripts and the indexes are there before anything is counted.
	err := b.with(ctx, back, func(p *process) error {
		_, err := park(ctx, p, remembered, 0)
		return err
	})
	if err != nil {
		return err
	}
	keys, bytes, err := back.size(ctx)
	if err != nil {
		return err
	}
	var sample []string
	err = b.with(ctx, back, func(p *process) (err error) {
		sample, err = b.parkAll(ctx, p, row)
		return err
	})
	if err != nil {
		return err
	}
	moreKeys, moreBytes, err := back.size(ctx)
	if err != nil {
		return err
	}
	n := int64(b.parked + remembered)
	row.Bytes, row.Keys = (moreBytes-bytes)/n, float64(moreKeys-keys)/float64(n)
	return b.with(ctx, back, func(p *process) error {
		var took []int64
		before, _ := b.samples()
		for i, id := range sample {
			us, err := timeDecide(ctx, p, id)
			if err != nil {
				return err
			}
			if i >= min(before, len(sample)/2) {
				took = append(took, us)
			}
		}
		row.DecideParked = spread(took)
		return nil
	})
}

// remembered is how many held runs an engine keeps in memory, whatever their
// number. As many are parked first, so that what is counted then grows with them.
const remembered = 256

func (b *bench) parkAll(ctx context.Context, p *process, row *heldCost) (sample []string, err error) {
	if _, err = park(ctx, p, remembered, 0); err != nil {
		return nil, err
	}
	if row.GoroutinesBefore, row.HeapBefore, row.RSSBefore, err = footprint(); err != nil {
		return nil, err
	}
	before, timed := b.samples()
	if sample, err = park(ctx, p, b.parked, before+timed); err != nil {
		return nil, err
	}
	row.GoroutinesAfter, row.HeapAfter, row.RSSAfter, err = footprint()
	return sample, err
}

func timeDecide(ctx context.Context, p *process, holdID string) (us int64, err error) {
	began := now()
	err = p.decide(ctx, holdID)
	return now().Sub(began).Microseconds(), err
}

// park leaves n runs held and returns about keep of their holds, taken evenly.
func park(ctx context.Context, p *process, n, keep int) (sample []string, err error) {
	every := n / max(1, min(keep, n))
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	next := make(chan int)
	for range inFlight {
		wg.Go(func() {
			for i := range next {
				v, err := p.start(ctx, approve, store.Held)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else if keep > 0 && i%every == 0 {
					sample = append(sample, v.HoldID)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return sample, errors.Join(errs...)
}

// footprint is what this process has after a collection.
func footprint() (goroutines int, heap, rss int64, err error) {
	debug.FreeOSMemory()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	pages, err := residentPages()
	return goruntime.NumGoroutine(), int64(m.HeapAlloc), pages * int64(os.Getpagesize()), err
}

func residentPages() (int64, error) {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, resident int64
	_, err = fmt.Sscan(string(raw), &size, &resident)
	return resident, err
}

// around is how many turns on either side of a turn are looked at; the median is
// taken, so that a checkpoint of the file in one of them does not count.
const around = 5

// The turns that are compared.
const (
	earlyTurn = 10
	lateTurn  = 500
)

// turns measures what a turn writes early and late in one long run.
func (b *bench) turns(ctx context.Context) error {
	for _, name := range []string{redisStore, fileStore} {
		if err := b.on(ctx, name, func(back *backing, p *process) error { return b.longRun(ctx, back, p, lateTurn) }); err != nil {
			return err
		}
	}
	return nil
}

// longRun makes a run a little longer than late turns.
func (b *bench) longRun(ctx context.Context, back *backing, p *process, late int) error {
	b.talk.last = late + around + 1
	marks := make([]int64, b.talk.last+1)
	b.talk.turns.Store(0)
	b.talk.at = func(turn int) (err error) {
		marks[turn], err = back.written(ctx)
		return err
	}
	v, err := p.start(ctx, long, store.Completed)
	if err != nil {
		return err
	}
	entries, err := p.store.Journal(ctx, v.ID, 0)
	if err != nil {
		return err
	}
	for _, turn := range []int{earlyTurn, late} {
		b.out.Turns = append(b.out.Turns, turnBytes{
			Store: back.name, Turn: turn, Journal: journalBytes(entries, turn), Written: writtenAround(marks, turn),
		})
	}
	return nil
}

// writtenAround is the median of what the turns around turn wrote: marks[t] was
// taken when the model was asked for the t-th time.
func writtenAround(marks []int64, turn int) int64 {
	var each []int64
	for t := turn - around; t <= turn+around; t++ {
		each = append(each, marks[t+1]-marks[t])
	}
	return median(each)
}

// journalBytes is the data of the entries of one turn: from its answer to the next.
func journalBytes(entries []journal.Entry, turn int) (n int64) {
	answers := 0
	for _, e := range entries {
		if e.Type == journal.ModelAnswered {
			answers++
		}
		if answers == turn {
			n += int64(len(e.Data))
		}
	}
	return n
}
