package fsck_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"agentos/internal/clock"
	"agentos/runtime/fsck"
	"agentos/runtime/store"
)

// script is an Inspector whose findings about each run change from look to look;
// the last ones stay.
type script struct {
	pages [][]store.Trace
	looks map[string][][]store.Finding
	// repairs counts looks with repair.
	repairs int
	err     error
}

func (s *script) Traces(_ context.Context, visit func([]store.Trace) error) error {
	for _, p := range s.pages {
		if err := visit(p); err != nil {
			return err
		}
	}
	return s.err
}

func (s *script) Inspect(_ context.Context, t store.Trace, repair bool) (store.Inspection, error) {
	var in store.Inspection
	if repair {
		s.repairs++
	}
	if looks := s.looks[t.RunID]; len(looks) > 0 {
		in.Findings = slices.Clone(looks[0])
		if len(looks) > 1 {
			s.looks[t.RunID] = looks[1:]
		}
	}
	for i := range in.Findings {
		in.Findings[i].Repaired = repair && in.Findings[i].Code.Repairable()
	}
	return in, nil
}

func trace(run string) store.Trace { return store.Trace{RunID: run} }

func TestSecondLook(t *testing.T) {
	t.Parallel()
	due := []store.Finding{store.Found(store.DueMissing, "r_1", "", "x")}
	listed := []store.Finding{store.Found(store.RunListMissing, "r_1", "", "x")}
	status := []store.Finding{store.Found(store.StatusDiffers, "r_1", "", "x")}
	for name, c := range map[string]struct {
		looks  [][]store.Finding
		pages  [][]store.Trace
		repair bool
		want   []breach
	}{
		"there twice":                    {looks: [][]store.Finding{due}, want: found(store.DueMissing, "r_1", "")},
		"gone the second time":           {looks: [][]store.Finding{due, nil}},
		"another one the second time":    {looks: [][]store.Finding{due, status}},
		"repaired at once":               {looks: [][]store.Finding{due, due, nil}, repair: true, want: []breach{{store.DueMissing, "r_1", "", true}}},
		"first seen by the repair":       {looks: [][]store.Finding{listed, due}, repair: true, want: []breach{{store.DueMissing, "r_1", "", true}}},
		"in doubt":                       {looks: [][]store.Finding{append(due, status...)}, repair: true, want: []breach{{store.DueMissing, "r_1", "", false}, {store.StatusDiffers, "r_1", "", false}}},
		"not repairable":                 {looks: [][]store.Finding{status}, repair: true, want: found(store.StatusDiffers, "r_1", "")},
		"the same run in two pages":      {looks: [][]store.Finding{due}, pages: [][]store.Trace{{trace("r_1")}, {trace("r_1"), trace("r_1")}}, want: found(store.DueMissing, "r_1", "")},
		"only the second page is looked": {looks: nil, pages: [][]store.Trace{{}, {trace("r_2")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{pages: c.pages, looks: map[string][][]store.Finding{"r_1": c.looks}}
			if s.pages == nil {
				s.pages = [][]store.Trace{{trace("r_1")}}
			}
			same(t, "found", check(t, s, c.repair), c.want)
			if !c.repair && s.repairs > 0 {
				t.Errorf("%d looks repaired unasked", s.repairs)
			}
		})
	}
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	report := func(store.Finding) error { return broken }
	find := map[string][][]store.Finding{"r_1": {{store.Found(store.DueMissing, "r_1", "", "x")}}}
	pages := [][]store.Trace{{trace("r_1")}}
	for name, c := range map[string]struct {
		gone bool // the caller
		o    fsck.Options
		want error
	}{
		"the report fails":    {false, fsck.Options{Store: &script{pages: pages, looks: find}, Clock: clock.System{}, Report: report}, broken},
		"the walk fails":      {false, fsck.Options{Store: &script{pages: pages, err: broken}, Clock: clock.System{}, Report: report}, broken},
		"the caller gives up": {true, fsck.Options{Store: &script{pages: pages, looks: find}, Clock: clock.System{}, Report: report}, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if c.gone {
			cancel()
		}
		if _, err := fsck.Run(ctx, c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		cancel()
	}
	if _, err := fsck.Run(t.Context(), fsck.Options{}); err == nil {
		t.Error("ran without a store")
	}
}
