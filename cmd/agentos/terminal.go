package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"agentos/api"
	"agentos/holds"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/schema"
	"agentos/internal/visible"
)

// errLeft says that the person at the terminal left a hold undecided.
var errLeft = errors.New("left undecided")

// quit is the answer that leaves a hold undecided, beside the hold's actions.
const quit = "quit"

// terminal asks the person in front of it about holds.
type terminal struct {
	in    *bufio.Reader // nil when nobody is there
	out   io.Writer
	paint paint
	// edit lets the person change a text; the result is what they saved.
	edit func(ctx context.Context, text []byte) ([]byte, error)
	// file is the terminal when it was opened here.
	file *os.File
}

// newTerminal returns a terminal when standard input is one. Questions go to the
// controlling terminal itself, so that they are seen and answered there whatever
// the streams were redirected to.
func newTerminal(s stdio, env lookup) *terminal {
	t := &terminal{}
	if !isTerminal(s.in) {
		return t
	}
	t.in, t.out, t.paint = bufio.NewReader(s.in), s.err, paintFor(s.err, env)
	if f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		t.in, t.out, t.paint, t.file = bufio.NewReader(f), f, paintFor(f, env), f
	}
	t.edit = func(ctx context.Context, text []byte) ([]byte, error) {
		return runEditor(ctx, env, t.file, text)
	}
	return t
}

// there reports whether there is anybody to ask.
func (t *terminal) there() bool { return t.in != nil }

func (t *terminal) close() error {
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}

// decide asks about every open item of a hold. It returns errLeft when the person
// quits, closes the input or interrupts: nothing is decided then.
func (t *terminal) decide(ctx context.Context, h api.Hold) ([]api.ItemDecision, error) {
	fmt.Fprintf(t.out, "\n%s\n", t.paint.bold(visible.Text(h.Intent)))
	fmt.Fprintf(t.out, "run %s of %s/%s, hold %s, until %s\n", h.RunID, visible.Text(h.Agent), visible.Text(h.Capability), h.HoldID, stamp(h.ExpiresAt.Time))
	printRan(t.out, h.AlreadyRan)
	var out []api.ItemDecision
	for _, it := range h.Items {
		if it.Decision != nil {
			continue
		}
		d, err := t.item(ctx, h.Actions, it)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

func (t *terminal) item(ctx context.Context, actions []string, it api.Item) (api.ItemDecision, error) {
	fmt.Fprintln(t.out)
	printItem(t.out, t.paint, it)
	var edited json.RawMessage
	for {
		action, err := t.choose(ctx, actions)
		if err != nil {
			return api.ItemDecision{}, err
		}
		d := api.ItemDecision{ID: it.ID, Action: action}
		switch holds.Action(action) {
		case holds.Approve:
			if edited != nil {
				d.Action, d.Data = string(holds.Edit), edited
			}
			return d, nil
		case holds.Edit:
			if edited, err = t.change(ctx, it, edited); err != nil {
				return d, err
			}
			continue
		case holds.Reject:
			d.Reason, err = t.line(ctx, "Reason (the model is told; may be empty): ")
			return d, err
		case holds.Ran:
			d.Data, err = t.result(ctx)
			return d, err
		case holds.Retry, holds.Skip:
			return d, nil
		}
		return d, problem.New(problem.InvalidDecision, "this version cannot ask about %q; decide the hold on a server", action)
	}
}

// choose asks until the answer is the beginning of exactly one choice.
func (t *terminal) choose(ctx context.Context, actions []string) (string, error) {
	choices := append(slices.Clone(actions), quit)
	question := strings.Join(choices[:len(choices)-1], ", ") + " or " + quit + "? "
	for {
		answer, err := t.line(ctx, question)
		if err != nil {
			return "", err
		}
		var fits []string
		for _, c := range choices {
			if answer != "" && strings.HasPrefix(c, strings.ToLower(answer)) {
				fits = append(fits, c)
			}
		}
		switch {
		case len(fits) == 1 && fits[0] == quit:
			return "", errLeft
		case len(fits) == 1:
			return fits[0], nil
		}
		fmt.Fprintln(t.out, "Answer with one of these words, or as many letters of it as tell it from the others.")
	}
}

// line asks for one line. The goroutine that reads is left behind only when the
// process is told to stop: a terminal cannot be read with a deadline everywhere.
func (t *terminal) line(ctx context.Context, question string) (string, error) {
	fmt.Fprint(t.out, question)
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		text, err := t.in.ReadString('\n')
		got <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", errLeft
	case a := <-got:
		if a.err != nil {
			return "", errLeft // the end of the input answers nothing, half a line neither
		}
		return strings.TrimSpace(a.text), nil
	}
}

// result asks for the result of a call that a person knows has run.
func (t *terminal) result(ctx context.Context) (json.RawMessage, error) {
	for {
		text, err := t.line(ctx, "Its result, as JSON or text: ")
		switch {
		case err != nil:
			return nil, err
		case text == "":
			continue
		case rawjson.Check([]byte(text)) == nil:
			return json.RawMessage(text), nil
		}
		return rawjson.Quote(text), nil
	}
}

// change lets the person edit the arguments, shows what is wrong with them or how
// they will be sent, and returns them: nil when the item stays as it is.
func (t *terminal) change(ctx context.Context, it api.Item, before json.RawMessage) (json.RawMessage, error) {
	text := []byte(visible.JSON(it.Data, ""))
	if before != nil {
		text = []byte(visible.JSON(before, ""))
	}
	for {
		saved, err := t.edit(ctx, text)
		if err != nil {
			fmt.Fprintf(t.out, "The editor failed: %v\n", err)
			return before, nil
		}
		faults := checkEdit(it, saved)
		if len(faults) == 0 {
			return t.changed(it, saved)
		}
		fmt.Fprintln(t.out, "These arguments cannot be sent:")
		printDetails(t.out, faults)
		again, err := t.line(ctx, "Edit them again (y), or drop the changes (n)? ")
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(strings.ToLower(again), "n") {
			return before, nil
		}
		text = saved
	}
}

func (t *terminal) changed(it api.Item, saved []byte) (json.RawMessage, error) {
	if rawjson.Equal(saved, it.Data) {
		fmt.Fprintln(t.out, "The arguments are unchanged.")
		return nil, nil
	}
	edited, err := rawjson.Compact(saved)
	if err != nil {
		return nil, err
	}
	printArguments(t.out, "arguments as edited; approve sends these", edited)
	return edited, nil
}

// checkEdit reports what the server would refuse about edited arguments, as far as
// the item tells. Policy is judged there.
func checkEdit(it api.Item, saved []byte) []problem.Detail {
	if err := rawjson.Check(saved); err != nil {
		return []problem.Detail{{Path: "/", Message: "is not JSON: " + err.Error()}}
	}
	if rawjson.Kind(saved) != "object" {
		return []problem.Detail{{Path: "/", Message: "must be an object"}}
	}
	if len(it.Schema) == 0 {
		return nil
	}
	s, err := schema.Compile(it.Schema, schema.Options{Lenient: true})
	if err != nil {
		return nil // the tool's own schema is unusable; the server judges
	}
	return s.Validate(saved)
}

// refused shows why the server did not take the decisions.
func (t *terminal) refused(p *problem.Error) {
	fmt.Fprintf(t.out, "\nNothing was decided: %s (%s)\n", visible.Text(p.Message), p.Code)
	printDetails(t.out, p.Details)
}

// runEditor opens text in the person's editor and returns what they saved. The
// file is theirs alone and goes away afterwards.
func runEditor(ctx context.Context, env lookup, tty *os.File, text []byte) (saved []byte, err error) {
	editor := strings.Fields(env.or("VISUAL", env.or("EDITOR", "vi")))
	if len(editor) == 0 {
		return nil, errors.New("VISUAL or EDITOR names no program")
	}
	f, err := os.CreateTemp("", "agentos-*.json")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(append(bytes.TrimSuffix(text, []byte("\n")), '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, editor[0], append(editor[1:], f.Name())...) //nolint:gosec // the person's own editor
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if tty != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", editor[0], err)
	}
	return os.ReadFile(f.Name())
}
