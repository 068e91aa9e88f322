package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentos/api"
	"agentos/api/client"
	"agentos/capabilities"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/visible"
	"agentos/runtime/journal"
)

// runOptions are the flags of agentos run.
type runOptions struct {
	manifest string
	input    string
	store    string
	config   string
	json     bool
}

func runCommand(io stdio, env lookup) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run CAPABILITY",
		Short: "Run a capability once, without a server",
		Long: `Run a capability once in this process and print its output.

The input is JSON, @FILE, or - for standard input. When the capability's input has
exactly one required property and that is a string, text that does not begin with
"{" is taken as its value. Without -i the input is {}, unless a property is required.

When the run is held and standard input is a terminal, every call that waits is shown
as it will be sent, and asked about: approve, edit (in $VISUAL or $EDITOR), reject, or
quit, which leaves the run held. Elsewhere a held run prints its hold as JSON and ends
the command with exit code 1.

Runs are kept in memory, and are gone with the command, unless --store names a place
where a server can go on with them. An interrupt cancels a run that is being worked on.`,
		Example: `  agentos run support -i 'Look up order A-1001'`,
		Args:    takes("CAPABILITY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runOnce(cmd, io, env, o, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.manifest, "manifest", "m", "agentos.yaml", "the agent's manifest")
	f.StringVarP(&o.input, "input", "i", "", "input: JSON, text, @FILE or -")
	f.StringVar(&o.store, "store", "memory:", "where the run is kept: memory:, file:PATH, redis://...")
	configFlag(cmd, &o.config, env)
	f.BoolVar(&o.json, "json", false, "print the whole run as the API's JSON")
	return cmd
}

func runOnce(cmd *cobra.Command, io stdio, env lookup, o runOptions, capability string) error {
	agent, err := capabilities.Load(o.manifest)
	if err != nil {
		return err
	}
	body := api.CreateRun{Input: json.RawMessage("{}")}
	// An unknown capability is left to the engine, which lists what exists.
	if c := agent.Capabilities[capability]; c != nil {
		if body.Input, err = readInput(cmd, c.Input, o.input, io.in); err != nil {
			return err
		}
	}
	local, err := openLocal(cmd.Context(), env, io.err, o)
	if err != nil {
		return err
	}
	if mock := local.parts.mock; mock != "" {
		fmt.Fprintf(io.err, "agentos: development mode: %s\n", mock)
	}
	if err := notPaused(cmd.Context(), local.client, agent.Name); err != nil {
		return errors.Join(err, local.close(cmd.Context()))
	}
	s := session{
		stdio: io, client: local.client, store: o.store, json: o.json, paint: paintFor(io.err, env),
		progress: isTerminal(io.err), ask: newTerminal(io, env),
	}
	err = s.run(cmd.Context(), client.CreateRun{Env: environment, Agent: agent.Name, Capability: capability, Body: body})
	return errors.Join(err, s.ask.close(), local.close(cmd.Context()))
}

// notPaused refuses a run that would wait for an operator: nobody claims runs here.
func notPaused(ctx context.Context, c *client.Client, agent string) error {
	orders, err := c.Orders(ctx, environment)
	if err != nil {
		return err
	}
	for _, p := range orders.Paused {
		if p.Agent == agent {
			return problem.New(problem.InvalidSettings, "agent %s is paused in this store by %s (%s); end that with agentos agents resume %[1]s", agent, p.By, p.Reason)
		}
	}
	return nil
}

// readInput makes the input of a run from -i.
func readInput(cmd *cobra.Command, schema json.RawMessage, arg string, stdin io.Reader) (json.RawMessage, error) {
	required, err := requiredOf(schema)
	if err != nil {
		return nil, err
	}
	if !cmd.Flags().Changed("input") {
		if len(required) > 0 {
			return nil, usage(cmd, "-i is missing: the input needs %s", strings.Join(required, ", "))
		}
		return json.RawMessage("{}"), nil
	}
	raw, err := readArgument(arg, stdin)
	if err != nil {
		return nil, usage(cmd, "-i: %v", err)
	}
	if name := onlyText(schema, required); name != "" && !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		text := string(raw)
		if text != arg {
			text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r") // the end of a file is no part of a sentence
		}
		return rawjson.Object([]rawjson.Field{{Name: name, Value: rawjson.Quote(text)}}), nil
	}
	if err := rawjson.Check(raw); err != nil {
		return nil, usage(cmd, "-i is not JSON: %v", err)
	}
	return rawjson.Compact(raw)
}

func requiredOf(schema json.RawMessage) ([]string, error) {
	list := rawjson.Get(schema, "required")
	if list == nil {
		return nil, nil
	}
	var names []string
	return names, json.Unmarshal(list, &names)
}

// onlyText returns the one required property when it holds text, else "".
func onlyText(schema json.RawMessage, required []string) string {
	if len(required) != 1 {
		return ""
	}
	property := rawjson.Get(rawjson.Get(schema, "properties"), required[0])
	if kind, _ := rawjson.Text(rawjson.Get(property, "type")); kind != "string" {
		return ""
	}
	return required[0]
}

// session is one run and the person who watches it.
type session struct {
	stdio
	client   *client.Client
	store    string
	json     bool
	paint    paint
	progress bool
	ask      *terminal
}

// run creates the run and stays with it. An interrupt cancels it, unless it was
// left held: the person who began it wants it to stop.
func (s *session) run(ctx context.Context, create client.CreateRun) error {
	run, err := s.client.CreateRun(ctx, create)
	if err != nil {
		return err
	}
	err = s.stay(ctx, run)
	if err == nil || ctx.Err() == nil || errors.As(err, &failed{}) {
		return err
	}
	return s.cancel(ctx, run.RunID)
}

// stay follows the run until it has ended, or is held and left so.
func (s *session) stay(ctx context.Context, run api.Run) error {
	seq := int64(0)
	for {
		held, err := s.follow(ctx, run.RunID, &seq)
		if err != nil {
			return err
		}
		if run, err = s.client.Run(ctx, environment, run.RunID, 0); err != nil {
			return err
		}
		if !held {
			return s.ended(run)
		}
		if run.Hold == nil {
			continue // somebody else decided
		}
		if !s.ask.there() {
			return s.left(run, "standard input is no terminal, so nobody can be asked")
		}
		if err := s.decide(ctx, run.Hold.HoldID); errors.Is(err, errLeft) {
			return s.left(run, "you left it undecided")
		} else if errors.Is(err, errMore) {
			return s.left(run, "more people must approve it")
		} else if err != nil {
			return err
		}
	}
}

// follow shows the journal from behind *seq on until the run is held or has ended.
func (s *session) follow(ctx context.Context, runID string, seq *int64) (held bool, err error) {
	for e, err := range s.client.Events(ctx, environment, runID, *seq) {
		if err != nil {
			return false, err
		}
		*seq = e.Seq
		if s.progress {
			fmt.Fprintln(s.err, s.paint.bold("· ")+describe(e))
		}
		if e.Type == string(journal.HoldOpened) {
			return true, nil
		}
	}
	return false, nil
}

// cancel ends the run when the command was told to stop.
func (s *session) cancel(ctx context.Context, runID string) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	if _, err := s.client.Cancel(ctx, environment, runID); err != nil {
		return err
	}
	run, err := s.client.Run(ctx, environment, runID, 5*time.Second)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "agentos: interrupted; run %s is %s\n", runID, run.Status)
	return failed{exitFailed}
}

// ended prints what became of the run.
func (s *session) ended(run api.Run) error {
	if s.json {
		if err := printJSON(s.out, run); err != nil {
			return err
		}
	}
	switch {
	case run.Status == api.RunCompleted && !s.json:
		_, err := fmt.Fprintf(s.out, "%s\n", run.Output)
		return err
	case run.Status == api.RunCompleted:
		return nil
	case run.Error != nil:
		return problem.New(run.Error.Code, "the run failed: %s", visible.Text(run.Error.Message)).With(run.Error.Details...)
	}
	fmt.Fprintf(s.err, "agentos: the run is %s\n", run.Status)
	return failed{exitFailed}
}

// left prints a hold that nobody decided here.
func (s *session) left(run api.Run, why string) error {
	var err error
	if s.json {
		err = printJSON(s.out, run)
	} else {
		err = printJSON(s.out, run.Hold)
	}
	fmt.Fprintf(s.err, "agentos: the run is held (%s): %s\n", visible.Text(run.Hold.Intent), why)
	if s.store == "memory:" {
		fmt.Fprintln(s.err, "agentos: it is gone with this command; run it on a terminal, keep it with --store, or use agentos serve")
	} else {
		fmt.Fprintf(s.err, "agentos: it stays held in %s; serve the agent with --store %[1]s, then: agentos holds approve|edit|reject %s\n", s.store, run.Hold.HoldID)
	}
	return errors.Join(err, failed{exitFailed})
}

// errMore says that what was decided at the terminal is not enough.
var errMore = errors.New("more people must approve")

// decide asks about a hold until the server has taken the answer.
func (s *session) decide(ctx context.Context, holdID string) error {
	for {
		hold, err := s.client.Hold(ctx, environment, holdID)
		if err != nil || hold.Status != api.HoldPending {
			return err
		}
		decisions, err := s.ask.decide(ctx, hold)
		if err != nil {
			return err
		}
		done, err := s.client.Decide(ctx, client.Decide{
			Env: environment, Hold: holdID, Body: api.Decide{Decisions: decisions, Revision: hold.Revision},
		})
		refused := (*client.Error)(nil)
		switch {
		case err == nil && done.Hold.Status == api.HoldPending:
			return errMore
		case !errors.As(err, &refused) || refused.Hold == nil:
			return err
		case refused.Problem.Code == problem.HoldExpired || refused.Problem.Code == problem.HoldCancelled:
			return err
		}
		// Invalid, denied, or decided meanwhile: show why, and the hold as it stands.
		s.ask.refused(refused.Problem)
	}
}
