package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentos/api"
	"agentos/api/client"
	"agentos/internal/visible"
)

func agentsCommand(io stdio, env lookup) *cobra.Command {
	r := &remote{stdio: io, env: env}
	return remoteGroup(r, "agents", "Pause agents, and let them go on", agentsPause(r), agentsResume(r))
}

func toolsCommand(io stdio, env lookup) *cobra.Command {
	r := &remote{stdio: io, env: env}
	return remoteGroup(r, "tools", "Switch tools off, and on again", toolsOff(r), toolsOn(r))
}

func ordersCommand(io stdio, env lookup) *cobra.Command {
	r := &remote{stdio: io, env: env}
	cmd := &cobra.Command{
		Use:     "orders",
		Short:   "List the agents that are paused and the tools that are switched off",
		Example: "  agentos orders",
		Args:    takes(),
		RunE: r.run(func(ctx context.Context, c *client.Client, _ []string) error {
			o, err := c.Orders(ctx, r.environment)
			if err != nil {
				return err
			}
			if r.json {
				return printJSON(r.out, o)
			}
			return printTable(r.out, orderRows(o))
		}),
	}
	r.flags(cmd)
	return cmd
}

// orderRows are the rows of a table: no agent or tool has the names "*" and "-".
func orderRows(o api.Orders) [][]string {
	rows := [][]string{{"ORDER", "AGENT", "TOOL", "BY", "AT", "REASON"}}
	for _, p := range o.Paused {
		rows = append(rows, []string{"paused", p.Agent, "-", p.By, stamp(p.At.Time), p.Reason})
	}
	for _, t := range o.Off {
		agent := t.Agent
		if agent == "" {
			agent = "*"
		}
		rows = append(rows, []string{"off", agent, t.Tool, t.By, stamp(t.At.Time), t.Reason})
	}
	return rows
}

func agentsPause(r *remote) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "pause NAME",
		Short: "Pause an agent: its runs stay where they are",
		Long: `Pause an agent: its runs stay where they are, on every server of the store, until
agents resume.

Calls that have started come to their end; no tool call starts after this command has
returned. Other servers hear of the pause within about a second; until then they may ask a
model once more. New runs are accepted, stay queued and tell why in "waiting". Holds stay
open and can be decided, expire as always, and what they let run waits too.

Pausing a paused agent changes nothing: the first reason stays.`,
		Example: "  agentos agents pause shop --reason 'incident 7'",
		Args:    takes("NAME"),
	}
	r.ordering(cmd, &reason, func(ctx context.Context, c *client.Client, args []string) (answer, error) {
		o, err := c.PauseAgent(ctx, r.environment, args[0], api.PauseAgent{Reason: reason})
		return answer{
			body: o, version: o.Version,
			done: args[0] + ": paused; calls that have started come to their end",
			same: args[0] + ": was paused already; agentos orders tells by whom",
		}, err
	})
	return cmd
}

func agentsResume(r *remote) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume NAME",
		Short: "End the pause of an agent: its runs go on within 15 s",
		Long: `End the pause of an agent. Its runs go on within 15 s, where they were. Resuming an agent
that is not paused changes nothing.`,
		Example: "  agentos agents resume shop",
		Args:    takes("NAME"),
	}
	r.ordering(cmd, nil, func(ctx context.Context, c *client.Client, args []string) (answer, error) {
		o, err := c.ResumeAgent(ctx, r.environment, args[0])
		return answer{
			body: o, version: o.Version,
			done: args[0] + ": resumed; its runs go on within 15 s",
			same: args[0] + ": was not paused; agentos orders tells who is",
		}, err
	})
	return cmd
}

func toolsOff(r *remote) *cobra.Command {
	var reason, agent string
	cmd := &cobra.Command{
		Use:   "off PATTERN",
		Short: "Switch tools off: no call of them starts any more, approved or not",
		Long: `Switch tools off. PATTERN is the name of a tool, or SERVER/TOOL, with * and ? as in the
rules of a manifest; quote it. The tools of every agent are meant, or those of --agent.

When this command has returned, no further call of such a tool starts on any server of the
store, whatever manifests allow and people have approved. Calls that have started come to
their end. Open holds that ask whether such a call may run are cancelled with the reason,
and their runs go on with the call denied; what else such a hold asked is asked again in a
new one. Runs that ask for the tool later are denied it the same way, by the rule
"operator".

The tools that are meant are printed, as far as their MCP servers are connected. Switching
off what is off changes nothing: the first reason stays. After an error the tools may be
off and some holds still open: repeat the command.`,
		Example: "  agentos tools off orders/cancel_order --reason 'incident 7'",
		Args:    takes("PATTERN"),
	}
	cmd.Flags().StringVar(&agent, "agent", "", "only the tools of this agent")
	r.ordering(cmd, &reason, func(ctx context.Context, c *client.Client, args []string) (answer, error) {
		o, err := c.SwitchOff(ctx, r.environment, api.SwitchOff{Tool: args[0], Agent: agent, Reason: reason})
		holds := fmt.Sprintf("; %d holds cancelled", o.CancelledHolds)
		if o.CancelledHolds == 1 {
			holds = "; 1 hold cancelled"
		}
		out := answer{body: o, version: o.Version, done: args[0] + ": off" + holds, same: args[0] + ": was off already" + holds}
		for _, m := range o.Matches {
			out.more = append(out.more, fmt.Sprintf("  agent %s: %s/%s", m.Agent, m.Server, m.Tool))
		}
		if len(o.Matches) == 0 {
			out.warning = fmt.Sprintf("no tool that is connected now is meant by %q; check its name", args[0])
		}
		return out, err
	})
	return cmd
}

func toolsOn(r *remote) *cobra.Command {
	var agent string
	cmd := &cobra.Command{
		Use:   "on PATTERN",
		Short: "Take a tools off back: policy decides about the tools as before",
		Long: `Take a tools off back: the one with the same PATTERN and the same --agent, letter by
letter. A tool that another order means too stays off. Calls that were denied stay denied,
cancelled holds stay cancelled.`,
		Example: "  agentos tools on orders/cancel_order",
		Args:    takes("PATTERN"),
	}
	cmd.Flags().StringVar(&agent, "agent", "", "as in the order that is taken back")
	r.ordering(cmd, nil, func(ctx context.Context, c *client.Client, args []string) (answer, error) {
		o, err := c.SwitchOn(ctx, r.environment, api.SwitchOn{Tool: args[0], Agent: agent})
		out := answer{
			body: o, version: o.Version, done: args[0] + ": on",
			same: args[0] + ": there is no such order; agentos orders lists them",
		}
		if len(o.Off) > 0 {
			out.warning = others(len(o.Off)) + " tools off; see agentos orders"
		}
		return out, err
	})
	return cmd
}

// others begins a sentence about n other orders.
func others(n int) string {
	if n == 1 {
		return "1 other order keeps"
	}
	return fmt.Sprintf("%d other orders keep", n)
}

// answer is what an order came to.
type answer struct {
	// body is the API's answer, version the one of the orders in it.
	body    any
	version int64
	// done is said when the order changed something, same when it did not.
	done, same string
	// more are lines below that; the warning goes to standard error.
	more    []string
	warning string
}

// ordering makes cmd give an order and tell what it came to. reason is the value of
// --reason, which must be given then, or nil.
func (r *remote) ordering(cmd *cobra.Command, reason *string, order func(context.Context, *client.Client, []string) (answer, error)) {
	give := r.run(func(ctx context.Context, c *client.Client, args []string) error {
		before, err := c.Orders(ctx, r.environment)
		if err != nil {
			return err
		}
		a, err := order(ctx, c, args)
		if err != nil {
			return err
		}
		return r.showAnswer(a, a.version != before.Version)
	})
	cmd.RunE = give
	if reason == nil {
		return
	}
	cmd.Flags().StringVar(reason, "reason", "", "why; required, shown to everybody who meets the order")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *reason == "" {
			return usage(cmd, "--reason is missing")
		}
		return give(cmd, args)
	}
}

func (r *remote) showAnswer(a answer, changed bool) error {
	if a.warning != "" {
		fmt.Fprintf(r.err, "agentos: %s\n", a.warning)
	}
	if r.json {
		return printJSON(r.out, a.body)
	}
	line := a.done
	if !changed {
		line = a.same
	}
	_, err := fmt.Fprintln(r.out, visible.Text(line))
	for _, more := range a.more {
		_, err = fmt.Fprintln(r.out, visible.Text(more))
	}
	return err
}
