package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentos/api"
	"agentos/api/client"
)

// variant is one way to run a case.
type variant struct {
	// title is shown behind the case's name; "" for a run in peace.
	title string
	// armed is a fault that waits from the beginning of the run.
	armed *armed
	// race sends approve against reject instead of one decision from many clients.
	race bool
}

// attempt is one run of a case.
type attempt struct {
	k      *kit
	c      Case
	v      variant
	result *Result
	// key is the idempotency key that creates the run.
	key string
	run api.Run
	// rulings are what was decided about each call, by call id.
	rulings map[string]ruling
	// decided is the last request that a hold accepted.
	decided *decidedHold
	// mark is where the notes stood when the run began.
	mark mark
	// fired reports whether the armed kill came to pass; before is how often each
	// call had reached its tool by then, by idempotency key.
	fired  bool
	before map[string]int
	// turned says that the opposite of the case's decision won a race.
	turned bool
}

// ruling is what the kit, as the reviewer, decided about a call.
type ruling struct {
	action string
	// arguments are what may run.
	arguments []byte
	// unknown is the decision about its unknown outcome, "" when none was asked.
	unknown string
	expired bool
}

// decidedHold is a hold and what was posted to it.
type decidedHold struct {
	hold string
	body api.Decide
}

// mark is a place in the notes.
type mark struct {
	calls, models int
	points        int64
}

// errStop ends an attempt whose failed check makes the rest pointless.
var errStop = errors.New("the attempt cannot go on")

// attempt runs the case once. The error is one of the kit itself.
func (k *kit) attempt(ctx context.Context, c Case, v variant) (*attempt, error) {
	a := &attempt{
		k: k, c: c, v: v, rulings: map[string]ruling{}, before: map[string]int{},
		result: &Result{Capability: c.Capability, Name: c.Name, Fault: v.title},
		key:    "conformance-" + strconv.FormatInt(k.cfg.Clock.Now().UnixNano(), 36) + "-" + strconv.Itoa(len(k.report.Results)),
	}
	began := k.cfg.Clock.Now()
	err := a.play(ctx)
	if errors.Is(err, errStop) {
		err = nil
	}
	if err == nil && k.own() {
		_, err = k.cfg.Dir.disarm()
	}
	k.report.add(*a.result, k.cfg.Clock.Now().Sub(began))
	return a, err
}

// check records a check; a failed one is returned as errStop for those that
// cannot go on without it.
func (a *attempt) check(name string, ok bool, expected, seen string) error {
	if a.result.check(name, ok, expected, seen) {
		return nil
	}
	return errStop
}

func (a *attempt) play(ctx context.Context) error {
	if err := a.begin(ctx); err != nil {
		return err
	}
	if err := a.create(ctx); err != nil {
		return err
	}
	if err := a.settle(ctx); err != nil {
		return err
	}
	want := string(a.c.Expect)
	if err := a.check(CheckStatus, string(a.run.Status) == want, want, a.status()); err != nil {
		return err
	}
	for i, s := range a.c.Steps {
		if err := a.step(ctx, i, s); err != nil {
			return err
		}
	}
	return a.end(ctx)
}

// begin marks the notes and arms the fault of the whole run.
func (a *attempt) begin(ctx context.Context) error {
	if !a.k.own() {
		return nil
	}
	if err := a.k.revive(ctx); err != nil {
		return err
	}
	if err := a.setMark(); err != nil {
		return err
	}
	if a.v.armed == nil {
		return nil
	}
	if lacks := a.k.awaitReady(ctx); lacks != "" {
		return a.check(CheckAnswers, false, "a server that is ready", lacks)
	}
	return a.k.cfg.Dir.arm(*a.v.armed)
}

func (a *attempt) setMark() error {
	calls, err := a.k.cfg.Dir.Calls()
	if err != nil {
		return err
	}
	models, err := a.k.cfg.Dir.Models()
	if err != nil {
		return err
	}
	points, err := a.k.cfg.Dir.pointsSize()
	a.mark = mark{calls: len(calls), models: len(models), points: points}
	return err
}

// do sends a request. When the server dies by the armed kill, it is started again
// and the request repeated: all requests of an attempt may be.
func (a *attempt) do(ctx context.Context, send func(ctx context.Context) error) error {
	err := a.once(ctx, send)
	if a.answered(err) {
		return err
	}
	died, killErr := a.recover(ctx)
	if killErr != nil {
		return killErr
	}
	if !died {
		return a.check(CheckAnswers, false, "an answer", answer(err))
	}
	if err = a.once(ctx, send); a.answered(err) {
		return err
	}
	return a.check(CheckAnswers, false, "an answer after the restart", answer(err))
}

func (a *attempt) once(ctx context.Context, send func(ctx context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, patience+10*time.Second)
	defer stop()
	return send(ctx)
}

// answered reports whether the server said something.
func (a *attempt) answered(err error) bool {
	var e *client.Error
	return err == nil || errors.As(err, &e)
}

// deathTime is how long a killed process may take to be gone.
const deathTime = 10 * time.Second

// recover starts the server again when the armed kill has ended it, and keeps
// how often each call had run by then.
func (a *attempt) recover(ctx context.Context) (died bool, err error) {
	if !a.k.own() {
		return false, nil
	}
	select {
	case <-a.k.server.Exited:
	case <-a.k.cfg.Clock.After(deathTime):
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	fired, err := a.k.cfg.Dir.disarm()
	if err != nil || !fired {
		return false, err
	}
	a.fired = true
	return true, a.k.restart(ctx, 0, a.countBefore)
}

func (a *attempt) countBefore() error {
	calls, err := a.executions()
	for _, e := range calls {
		a.before[e.Key]++
	}
	return err
}

// create creates the run.
func (a *attempt) create(ctx context.Context) error {
	err := a.do(ctx, func(ctx context.Context) (err error) {
		a.run, err = a.k.client.CreateRun(ctx, client.CreateRun{
			Env: env, Agent: a.k.agent.Name, Capability: a.c.Capability, Key: a.key, Wait: patience,
			Body: api.CreateRun{Input: a.c.Input},
		})
		return err
	})
	if !a.answered(err) {
		return err
	}
	return a.check(CheckAccepted, err == nil && a.run.RunID != "", "a run with an id", a.accepted(err))
}

func (a *attempt) accepted(err error) string {
	if err == nil {
		return fmt.Sprintf("run_id %q", a.run.RunID)
	}
	return answer(err)
}

// settle waits until the run is held or finished, and decides holds that are not
// the case's own: those about calls whose outcome is unknown after a fault.
func (a *attempt) settle(ctx context.Context) error {
	for range maxUnknown {
		if err := a.wait(ctx); err != nil {
			return err
		}
		if a.run.Status != api.RunHeld || a.run.Hold == nil || a.run.Hold.Kind != kindUnknown || !a.disturbed() {
			return nil
		}
		if err := a.decideUnknown(ctx, *a.run.Hold); err != nil {
			return err
		}
	}
	return a.check(CheckStatus, false, "an end", fmt.Sprintf("%d holds about unknown outcomes", maxUnknown))
}

// maxUnknown bounds the holds about unknown outcomes in one run.
const maxUnknown = 20

// disturbed reports whether a fault is played on the run that can leave the
// outcome of a call unknown.
func (a *attempt) disturbed() bool { return a.ordered(FaultKill) || a.ordered(FaultDrop) }

// ordered reports whether the fault is armed from the beginning or in a step.
func (a *attempt) ordered(kind FaultKind) bool {
	if a.v.armed != nil && a.v.armed.Kind == kind {
		return true
	}
	return slices.ContainsFunc(a.c.Steps, func(s Step) bool { return s.Fault.Kind == kind })
}

func (a *attempt) wait(ctx context.Context) error {
	until := a.k.cfg.Clock.Now().Add(patience)
	for a.run.Status == api.RunQueued || a.run.Status == api.RunRunning {
		err := a.do(ctx, func(ctx context.Context) (err error) {
			a.run, err = a.k.client.Run(ctx, env, a.run.RunID, patience)
			return err
		})
		if err != nil {
			return a.gone(err)
		}
		if !a.k.cfg.Clock.Now().Before(until) {
			return a.check(CheckStatus, false, "held or finished", a.status())
		}
	}
	return nil
}

// gone records that a run or hold that the server has shown cannot be read.
func (a *attempt) gone(err error) error {
	if errors.Is(err, errStop) || !a.answered(err) {
		return err
	}
	return a.check(CheckAnswers, false, "the run as it stands", answer(err))
}

// status describes where the run stands, for reports.
func (a *attempt) status() string {
	s := string(a.run.Status)
	if e := a.run.Error; e != nil {
		s += fmt.Sprintf(" (%s: %s)", e.Code, e.Message)
	}
	if h := a.run.Hold; h != nil && a.run.Status == api.RunHeld {
		s += fmt.Sprintf(" (%s: %s)", h.Kind, h.Intent)
	}
	return s
}

// executions are the calls of the run that reached a tool, and any that name no
// run: nothing else runs meanwhile.
func (a *attempt) executions() ([]Execution, error) {
	calls, err := a.k.cfg.Dir.Calls()
	if err != nil {
		return nil, err
	}
	var out []Execution
	for _, e := range calls[min(a.mark.calls, len(calls)):] {
		if run, _, ok := strings.Cut(e.Key, "/"); !ok || run == a.run.RunID || a.run.RunID == "" {
			out = append(out, e)
		}
	}
	return out, nil
}
