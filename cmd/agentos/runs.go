package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/problem"
	"agentos/internal/visible"
	"agentos/runtime/journal"
)

// remote is what the commands share that are clients of a server.
type remote struct {
	stdio
	env lookup
	// environment and json are flags.
	environment string
	json        bool
}

// remoteGroup makes a group of commands that talk to a server.
func remoteGroup(r *remote, name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := group(name, short, commands...)
	r.flags(cmd)
	return cmd
}

// flags adds the flags that commands share which talk to a server, and says which.
func (r *remote) flags(cmd *cobra.Command) {
	cmd.Long = cmd.Short + `.

The server is the one at AGENTOS_URL, http://127.0.0.1:8080 by default. AGENTOS_API_KEY
is sent as bearer token when it is set.`
	f := cmd.PersistentFlags()
	f.StringVar(&r.environment, "env", environment, "environment")
	f.BoolVar(&r.json, "json", false, "print the API's JSON")
}

// connect returns a client of the server that the environment names.
func (r *remote) connect() (*client.Client, error) {
	return client.New(client.Config{URL: r.address(), Key: strings.TrimSpace(r.env.or("AGENTOS_API_KEY", "")), HTTP: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment},
		// The API never redirects, and a key must not travel to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
}

func (r *remote) address() string { return r.env.or("AGENTOS_URL", "http://127.0.0.1:8080") }

// run makes the RunE of a command that talks to the server.
func (r *remote) run(do func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := r.connect()
		if err != nil {
			return usageError{problem.New(problem.InvalidSettings, "AGENTOS_URL: %s", problem.From(err).Message)}
		}
		err = do(cmd.Context(), c, args)
		if problem.CodeOf(err) == problem.InvalidRequest { // a value that only the server can judge
			return usageError{err}
		}
		if ue := (*url.Error)(nil); errors.As(err, &ue) && cmd.Context().Err() == nil {
			return fmt.Errorf("no answer from %s: %w; start a server with agentos serve, or set AGENTOS_URL", r.address(), ue.Err)
		}
		return err
	}
}

func runsCommand(io stdio, env lookup) *cobra.Command {
	r := &remote{stdio: io, env: env}
	return remoteGroup(r, "runs", "Look at runs of a server, and cancel them",
		runsList(r), runsShow(r), runsEvents(r), runsCancel(r))
}

func runsList(r *remote) *cobra.Command {
	var q client.RunQuery
	var status string
	var p pages
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		Example: "  agentos runs list --status held\n  agentos runs list --all",
		Args:    takes(),
		RunE: r.run(func(ctx context.Context, c *client.Client, _ []string) error {
			q.Status = api.RunStatus(status)
			if err := oneOf(p.cmd, "status", status, "", "queued", "running", "held", "completed", "failed", "cancelled"); err != nil {
				return err
			}
			head := []string{"RUN", "STATUS", "AGENT", "CAPABILITY", "TURNS", "UPDATED"}
			return r.eachPage(&p, func(limit int, cursor string) (string, error) {
				q.Limit, q.Cursor = limit, cursor
				list, err := c.Runs(ctx, r.environment, q)
				if err != nil {
					return "", err
				}
				rows := make([][]string, len(list.Runs))
				for i, run := range list.Runs {
					rows[i] = []string{run.RunID, string(run.Status), run.Agent, run.Capability, strconv.Itoa(run.Turns), stamp(run.UpdatedAt.Time)}
				}
				return list.NextCursor, r.printPage(&p, list, head, rows)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&status, "status", "", "only queued, running, held, completed, failed or cancelled ones")
	f.StringVar(&q.Agent, "agent", "", "only runs of this agent")
	p.flags(cmd)
	return cmd
}

func runsShow(r *remote) *cobra.Command {
	var trajectory bool
	cmd := &cobra.Command{
		Use:     "show RUN",
		Short:   "Show a run: status, input, output or error, and what it waits for",
		Example: "  agentos runs show r_01k9x5v3m2q8w7e6t4r1y0a9sd --trajectory",
		Args:    takes("RUN"),
		RunE: r.run(func(ctx context.Context, c *client.Client, args []string) error {
			if trajectory {
				t, err := c.Trajectory(ctx, r.environment, args[0])
				if err != nil {
					return err
				}
				return r.showTrajectory(t)
			}
			run, err := c.Run(ctx, r.environment, args[0], 0)
			if err != nil {
				return err
			}
			return r.showRun(run)
		}),
	}
	cmd.Flags().BoolVar(&trajectory, "trajectory", false, "turn by turn: model calls, tool calls, decisions")
	return cmd
}

func (r *remote) showRun(run api.Run) error {
	if r.json {
		return printJSON(r.out, run)
	}
	return printRun(r.out, run)
}

func printRun(w io.Writer, run api.Run) error {
	fault := ""
	if run.Error != nil {
		fault = run.Error.Message + " (" + string(run.Error.Code) + ")"
	}
	hold := ""
	if run.Hold != nil {
		hold = run.Hold.HoldID + " " + run.Hold.Intent
	}
	err := printFields(w,
		[2]string{"run", run.RunID},
		[2]string{"status", string(run.Status)},
		[2]string{"agent", run.Agent},
		[2]string{"capability", run.Capability},
		[2]string{"requester", run.Requester},
		[2]string{"policy", run.PolicyDigest},
		[2]string{"session", run.SessionID},
		[2]string{"created", stamp(run.CreatedAt.Time)},
		[2]string{"updated", stamp(run.UpdatedAt.Time)},
		[2]string{"turns", strconv.Itoa(run.Turns)},
		[2]string{"waiting", run.Waiting},
		[2]string{"tokens", strconv.FormatInt(run.Usage.TotalTokens, 10)},
		[2]string{"input", string(run.Input)},
		[2]string{"output", string(run.Output)},
		[2]string{"hold", hold},
		[2]string{"cancelled by", run.CancelledBy},
		[2]string{"error", fault},
	)
	if run.Error != nil {
		printDetails(w, run.Error.Details)
	}
	return err
}

func (r *remote) showTrajectory(t api.Trajectory) error {
	if r.json {
		return printJSON(r.out, t)
	}
	if err := printRun(r.out, t.Run); err != nil {
		return err
	}
	for _, turn := range t.Turns {
		fmt.Fprintf(r.out, "\nturn %d: %s, %d ms\n", turn.Turn, visible.Text(turn.ModelUsed), turn.LatencyMS)
		for _, c := range turn.Calls {
			printCall(r.out, c)
		}
	}
	if len(t.Holds) > 0 {
		fmt.Fprintln(r.out)
	}
	for _, h := range t.Holds {
		end := "pending"
		if h.ClosedAt != nil {
			end = h.Why + " at " + stamp(h.ClosedAt.Time) + because(h.Reason)
		}
		fmt.Fprintf(r.out, "hold %s: %s, opened at %s, %s\n", h.HoldID, visible.Text(h.Intent), stamp(h.OpenedAt.Time), end)
	}
	for _, rec := range t.Recoveries {
		fmt.Fprintf(r.out, "taken over by %s at %s; unfinished calls: %s\n", visible.Text(rec.Worker), stamp(rec.At.Time), visible.Text(strings.Join(rec.Unfinished, ", ")))
	}
	return nil
}

// printCall shows the three facts about arguments apart only where they differ.
func printCall(w io.Writer, c api.Call) {
	fmt.Fprintf(w, "  %s %s/%s: %s", c.ID, visible.Text(c.Server), visible.Text(c.Tool), outcomeOf(c))
	if c.Executions > 1 {
		fmt.Fprintf(w, ", started %d times", c.Executions)
	}
	fmt.Fprintln(w)
	shown := ""
	for _, a := range []struct {
		name string
		raw  json.RawMessage
	}{{"proposed", c.ProposedArguments}, {"decided", c.DecidedArguments}, {"executed", c.ExecutedArguments}} {
		if len(a.raw) == 0 {
			continue
		}
		text := string(a.raw)
		if text == shown {
			text = "the same"
		} else {
			shown = text
		}
		fmt.Fprintf(w, "    %-9s %s\n", a.name, visible.Text(text))
	}
	for _, d := range c.Decisions {
		fmt.Fprintf(w, "    %s by %s at %s%s\n", visible.Text(d.Action), visible.Text(d.By), stamp(d.At.Time), because(d.Reason))
	}
	if c.Text != "" {
		fmt.Fprintf(w, "    result    %s\n", clip(visible.Text(c.Text)))
	}
}

func outcomeOf(c api.Call) string {
	if c.Outcome == "" {
		return "not finished"
	}
	return visible.Text(c.Outcome)
}

// because is a reason after a statement.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + visible.Text(reason)
}

func runsEvents(r *remote) *cobra.Command {
	var after int64
	cmd := &cobra.Command{
		Use:   "events RUN",
		Short: "Follow the journal of a run until the run ends",
		Long: `Print the entries of a run's journal as they are written, until the run ends. Each
begins with its number; --after goes on behind one. With --json every entry is one line.
A connection that ends before the run does is made again as long as each brings an entry;
after that the command to go on with is printed, and the exit code is 1.`,
		Example: "  agentos runs events r_01k9x5v3m2q8w7e6t4r1y0a9sd --after 2",
		Args:    takes("RUN"),
		RunE: r.run(func(ctx context.Context, c *client.Client, args []string) error {
			if after < 0 {
				return usageError{fmt.Errorf("--after %d: must not be negative; see agentos runs events --help", after)}
			}
			seen := after
			for e, err := range c.Events(ctx, r.environment, args[0], after) {
				if err != nil {
					if seen > after && ctx.Err() == nil {
						fmt.Fprintf(r.err, "agentos: the stream ended before the run did; go on with\n  agentos runs events %s --after %d\n", shellWord(args[0]), seen)
					}
					return err
				}
				seen = e.Seq
				if r.json {
					if err := printJSON(r.out, e); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(r.out, "%d %s %s\n", e.Seq, stamp(e.At.Time), describe(e))
			}
			return nil
		}),
	}
	cmd.Flags().Int64Var(&after, "after", 0, "only entries after this number")
	return cmd
}

func runsCancel(r *remote) *cobra.Command {
	return &cobra.Command{
		Use:     "cancel RUN",
		Short:   "Cancel a run; one that is being worked on stops at its next step",
		Example: "  agentos runs cancel r_01k9x5v3m2q8w7e6t4r1y0a9sd",
		Args:    takes("RUN"),
		RunE: r.run(func(ctx context.Context, c *client.Client, args []string) error {
			run, err := c.Cancel(ctx, r.environment, args[0])
			if err != nil {
				return err
			}
			if err := r.showRun(run); err != nil {
				return err
			}
			if run.Status != api.RunCancelled && run.Status.Finished() {
				fmt.Fprintf(r.err, "agentos: the run had already ended: %s\n", run.Status)
				return failed{exitFailed}
			}
			return nil
		}),
	}
}

// describe says in one line what an entry of a journal tells.
func describe(e api.Entry) string {
	text, err := describeData(journal.Type(e.Type), e.Data)
	if err != nil {
		text = string(e.Data) // of a newer server
	}
	return e.Type + " " + clip(visible.Text(text))
}

func describeData(t journal.Type, data json.RawMessage) (string, error) {
	switch t {
	case journal.RunCreated:
		d, err := decode[journal.Created](data)
		return d.Agent + "/" + d.Capability, err
	case journal.ModelAnswered:
		d, err := decode[journal.Answered](data)
		return answered(d), err
	case journal.CallStarted:
		d, err := decode[journal.Started](data)
		return d.Call + " " + d.Server + "/" + d.Tool + " " + string(d.Arguments), err
	case journal.CallFinished:
		d, err := decode[journal.Finished](data)
		return d.Call + " " + string(d.Outcome) + ": " + d.Text, err
	case journal.HoldOpened:
		d, err := decode[journal.Opened](data)
		return d.Hold.ID + " " + d.Hold.Intent, err
	case journal.HoldDecided:
		d, err := decode[journal.HoldDecision](data)
		parts := make([]string, len(d.Items))
		for i, it := range d.Items {
			parts[i] = it.ID + " " + string(it.Decision.Action)
			if it.Open {
				parts[i] += " (more people are needed)"
			}
		}
		return strings.Join(parts, ", ") + " by " + d.By, err
	case journal.HoldClosed:
		d, err := decode[journal.Closed](data)
		return d.HoldID + " " + string(d.Why) + because(d.Reason), err
	case journal.RunRecovered:
		d, err := decode[journal.Recovered](data)
		return "by " + d.Worker + "; unfinished calls: " + strings.Join(d.Unfinished, ", "), err
	case journal.RunCompleted:
		d, err := decode[journal.Completed](data)
		return string(d.Output), err
	case journal.RunFailed:
		d, err := decode[journal.Failed](data)
		return d.Error.Message + " (" + string(d.Error.Code) + ")", err
	case journal.RunCancelled:
		d, err := decode[journal.Cancel](data)
		return "by " + d.By, err
	}
	return string(data), nil
}

func answered(d journal.Answered) string {
	names := make([]string, len(d.Calls))
	for i, c := range d.Calls {
		names[i] = c.Name
	}
	does := "answers"
	if len(names) > 0 {
		does = "asks for " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("turn %d: %s %s", d.Turn, d.Model, does)
}

func decode[T any](data json.RawMessage) (T, error) {
	var v T
	return v, json.Unmarshal(data, &v)
}
