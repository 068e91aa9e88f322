package conformance

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDirKeepsWhatIsNoted(t *testing.T) {
	t.Parallel()
	d := Dir{Path: t.TempDir()}
	if calls, err := d.Calls(); err != nil || calls != nil {
		t.Errorf("an empty folder has calls %v, %v", calls, err)
	}
	want := []Execution{
		{Server: "s", Tool: "t", Arguments: json.RawMessage(`{"n":12345678901234567890,"s":"<&>"}`), Key: "r_1/call_1"},
		{Server: "s", Tool: "t", Arguments: json.RawMessage(`{}`)},
	}
	for _, e := range want {
		if err := d.NoteCall(e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.Calls()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, request := range []string{`{"messages":[{"role":"user"}]}`, `{"messages":[]}`} {
		if err := d.NoteModel(json.RawMessage(request)); err != nil {
			t.Fatal(err)
		}
	}
	models, err := d.Models()
	if err != nil || len(models) != 2 || models[0].Fault != "" || models[1].Fault == "" {
		t.Errorf("models %+v, %v", models, err)
	}
	if err := os.WriteFile(d.file(callsFile), []byte("{}\n{\"server\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Calls(); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("half a line reads as %v", err)
	}
}

// A kill is for one passage: counted from when it was armed, once, and only for
// its point.
func TestReached(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		armed  armed
		points []string
		die    int // index of the point that kills, -1 for none
	}{
		"first":              {killAt("after:call.started"), []string{"before:call.started", "after:call.started", "after:call.started"}, 1},
		"second":             {killAt("after:call.started#2"), []string{"after:call.started", "after:call.started", "after:call.started"}, 1},
		"one of several":     {killAt("before:call.started"), []string{"before:model.answered+call.started"}, 0},
		"all of several":     {killAt("before:model.answered+call.started"), []string{"before:call.started", "before:model.answered+call.started"}, 1},
		"other time":         {killAt("before:call.started"), []string{"after:call.started"}, -1},
		"part of a name":     {killAt("before:call"), []string{"before:call.started"}, -1},
		"another fault":      {armed{Kind: FaultDrop}, []string{"during:call"}, -1},
		"during":             {killAt("during:call"), []string{"during:model", "during:call"}, 1},
		"second of a part":   {killAt("after:call.started#2"), []string{"after:model.answered+call.started", "after:call.started"}, 1},
		"never often enough": {killAt("during:model#3"), []string{"during:model", "during:model"}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Dir{Path: t.TempDir()}
			// What was passed before the order does not count.
			for _, p := range test.points {
				if die, err := d.Reached(p); die || err != nil {
					t.Fatalf("%s before the order: %t, %v", p, die, err)
				}
			}
			if err := d.arm(test.armed); err != nil {
				t.Fatal(err)
			}
			killed := -1
			for i, p := range test.points {
				die, err := d.Reached(p)
				if err != nil {
					t.Fatal(err)
				}
				if die && killed >= 0 {
					t.Errorf("killed at %d and %d", killed, i)
				}
				if die {
					killed = i
				}
			}
			if killed != test.die {
				t.Errorf("killed at %d, want %d", killed, test.die)
			}
			if fired, err := d.disarm(); err != nil || fired != (test.die >= 0) {
				t.Errorf("disarm: %t, %v", fired, err)
			}
		})
	}
}

// The name of each passage leads back to it.
func TestNumbered(t *testing.T) {
	t.Parallel()
	points := []string{
		"before:run.created", "during:model", "before:model.answered+call.started", "during:call", "before:call.finished+hold.opened",
		"before:call.started", "during:call", "before:call.finished", "during:model", "before:model.answered+run.completed",
	}
	for i, name := range numbered(points) {
		d := Dir{Path: t.TempDir()}
		if err := d.arm(killAt(name)); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(points, func(p string) bool {
			die, err := d.Reached(p)
			return die && err == nil
		})
		if at != i {
			t.Errorf("%s kills at %d, want %d", name, at, i)
		}
	}
}

// Of many processes that come to an armed fault, one plays it.
func TestOneTakesTheFault(t *testing.T) {
	t.Parallel()
	d := Dir{Path: t.TempDir()}
	if err := d.arm(armed{Kind: FaultDrop}); err != nil {
		t.Fatal(err)
	}
	const takers = 16
	got := make(chan bool, takers)
	for range takers {
		go func() {
			mine, err := d.take()
			got <- mine && err == nil
		}()
	}
	n := 0
	for range takers {
		if <-got {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d took the fault", n)
	}
}

// The kit reads the notes only when nobody can write any more.
func TestSettleWaitsForProxies(t *testing.T) {
	t.Parallel()
	d := Dir{Path: t.TempDir()}
	joined, err := d.Join()
	if err != nil {
		t.Fatal(err)
	}
	settled := make(chan error, 1)
	go func() { settled <- d.settle() }()
	if err := d.NoteCall(Execution{Tool: "late", Arguments: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-settled:
		t.Fatal("settled while a proxy lives")
	default:
	}
	if err := joined.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
}
