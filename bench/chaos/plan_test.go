package main

import (
	"context"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentos/internal/rawjson"
)

// A plan is the same wherever it is made, or the model would not know it.
func TestPlans(t *testing.T) {
	t.Parallel()
	seen, args := map[shape]int{}, map[string]bool{}
	for n := range 2000 {
		p := newPlan(3, n)
		again, err := planOf(p.prompt())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, again, cmp.AllowUnexported(plan{}, toolCall{})); diff != "" {
			t.Fatalf("plan %d is another from its prompt:\n%s", n, diff)
		}
		seen[p.shape]++
		count := 0
		for _, turn := range p.turns {
			for _, c := range turn {
				count++
				if at, ok := p.call(count); !ok || string(at.args) != string(c.args) {
					t.Errorf("call %d of run %d is %s, want %s", count, n, at.args, c.args)
				}
				if err := rawjson.Check(c.args); err != nil {
					t.Errorf("arguments %s: %v", c.args, err)
				}
				if p.shape != refused && args[string(c.args)] {
					t.Errorf("arguments %s are used twice", c.args)
				}
				args[string(c.args)] = true
			}
		}
		if _, ok := p.call(count + 1); ok {
			t.Errorf("run %d has more calls than its turns", n)
		}
	}
	for _, m := range mix {
		if seen[m.shape] == 0 {
			t.Errorf("no run has the shape %s", m.shape)
		}
	}
	if _, err := planOf("hello"); err == nil {
		t.Error("a stranger's prompt was read")
	}
}

// Runs wait for faults and faults for runs, so that both spread over each other.
func TestSchedule(t *testing.T) {
	t.Parallel()
	s := newSchedule(settings{runs: 120, faults: 4, seed: 1})
	again := newSchedule(settings{runs: 120, faults: 4, seed: 1})
	if diff := cmp.Diff(s.lanes[0].faults, again.lanes[0].faults); diff != "" {
		t.Errorf("the same seed has another order:\n%s", diff)
	}
	if len(s.lanes[0].faults) != 12 || len(s.lanes[1].faults) != 12 {
		t.Fatalf("lanes have %d and %d faults", len(s.lanes[0].faults), len(s.lanes[1].faults))
	}
	for n := range slack*120/12 + 1 {
		s.begin(t.Context(), n) // does not wait
	}
	ctx, stop := context.WithCancel(t.Context())
	began := make(chan struct{})
	go func() {
		s.begin(ctx, slack*120/12+1)
		close(began)
	}()
	select {
	case <-began:
		t.Fatal("a run began although the faults are behind")
	default:
	}
	for _, l := range s.lanes {
		l.done.Add(1)
	}
	<-began
	stop()
	if n := s.begun.Load(); n != slack*120/12+2 {
		t.Errorf("%d runs have begun", n)
	}
}

func TestProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tries := 0
	p := &process{name: "cat", argv: []string{"sleep", "300"}, log: filepath.Join(dir, "log"), answers: func(context.Context) bool {
		tries++
		return tries > 2
	}}
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid := int(p.pid.Load())
	if childOf(syscall.Getpid(), "300") != pid || childOf(syscall.Getpid(), "no such argument") != 0 || childOf(pid, "") != 0 {
		t.Errorf("the child %d was not found, or another was", pid)
	}
	p.end(syscall.SIGTERM)
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d is left", pid)
	}
	p.end(syscall.SIGKILL) // once more does no harm

	// A child that ends at once is started again until it answers.
	starts := 0
	p = &process{name: "false", argv: []string{"sh", "-c", "exit " + strconv.Itoa(3)}, log: filepath.Join(dir, "log")}
	p.answers = func(context.Context) bool {
		<-p.done
		starts++
		return starts > 3
	}
	if err := p.start(t.Context()); err != nil || starts != 4 {
		t.Errorf("started %d times, %v", starts, err)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	p.answers = func(context.Context) bool { return false }
	if err := p.start(gone); err == nil {
		t.Error("a child that never answers was taken for started")
	}
	p = &process{name: "nothing", argv: []string{filepath.Join(dir, "nothing")}, log: filepath.Join(dir, "log")}
	if err := p.start(t.Context()); err == nil {
		t.Error("a program that is not there was started")
	}
}
