package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentos/api"
	"agentos/api/client"
	"agentos/holds"
	"agentos/internal/rawjson"
	"agentos/internal/visible"
)

func holdsCommand(io stdio, env lookup) *cobra.Command {
	r := &remote{stdio: io, env: env}
	return remoteGroup(r, "holds", "Look at what runs wait for, and decide it",
		holdsList(r), holdsShow(r),
		decideCommand(r, holds.Approve, "Approve items: they run exactly as they are shown",
			"  agentos holds approve h_01k9x5v3m2q8w7e6t4r1y0a9sd_1 call_1 --wait"),
		decideCommand(r, holds.Edit, "Approve an item with other arguments",
			`  agentos holds edit h_01k9x5v3m2q8w7e6t4r1y0a9sd_1 call_1 --data '{"order_id": "A-1001", "reason": "wrong order"}'`),
		decideCommand(r, holds.Reject, "Reject items: they do not run, and the model is told the reason",
			"  agentos holds reject h_01k9x5v3m2q8w7e6t4r1y0a9sd_1 --reason 'The order has shipped.'"),
		decideCommand(r, holds.Ran, "Say that a call with unknown outcome has run, with --data as its result",
			"  agentos holds ran h_01k9x5v3m2q8w7e6t4r1y0a9sd_2 call_1 --data '{\"cancelled\": true}'"),
		decideCommand(r, holds.Retry, "Run a call with unknown outcome again, with the same idempotency key",
			"  agentos holds retry h_01k9x5v3m2q8w7e6t4r1y0a9sd_2 call_1"),
		decideCommand(r, holds.Skip, "Go on without knowing the outcome of a call",
			"  agentos holds skip h_01k9x5v3m2q8w7e6t4r1y0a9sd_2 call_1"),
	)
}

func holdsList(r *remote) *cobra.Command {
	var q client.HoldQuery
	var status, reviewer string
	var p pages
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List holds, newest first; the pending ones by default",
		Example: "  agentos holds list",
		Args:    takes(),
		RunE: r.run(func(ctx context.Context, c *client.Client, _ []string) error {
			if err := oneOf(p.cmd, "status", status, "pending", "decided", "expired", "cancelled", "all"); err != nil {
				return err
			}
			if q.Status = api.HoldStatus(status); status == "all" {
				q.Status = ""
			}
			if reviewer != "" && reviewer != "me" {
				return usageError{fmt.Errorf("--reviewer %q; write me: the server knows who that is from the key", reviewer)}
			}
			q.Mine = reviewer == "me"
			head := []string{"HOLD", "STATUS", "AGENT", "CAPABILITY", "INTENT", "APPROVED", "EXPIRES"}
			return r.eachPage(&p, func(limit int, cursor string) (string, error) {
				q.Limit, q.Cursor = limit, cursor
				list, err := c.Holds(ctx, r.environment, q)
				if err != nil {
					return "", err
				}
				rows := make([][]string, len(list.Holds))
				for i, h := range list.Holds {
					rows[i] = []string{h.HoldID, string(h.Status), h.Agent, h.Capability, h.Intent, progress(h), stamp(h.ExpiresAt.Time)}
				}
				return list.NextCursor, r.printPage(&p, list, head, rows)
			})
		}),
	}
	cmd.Flags().StringVar(&status, "status", string(api.HoldPending), "pending, decided, expired, cancelled, or all")
	cmd.Flags().StringVar(&q.Agent, "agent", "", "only holds of this agent")
	cmd.Flags().StringVar(&reviewer, "reviewer", "", "me: only the holds that wait for you, as far as rules let you decide them")
	p.flags(cmd)
	return cmd
}

// progress says of every item that waits for more than one person how many have
// approved it, such as 1/2; "-" when one is enough.
func progress(h api.Hold) string {
	var parts []string
	for _, it := range h.Items {
		if it.Decision == nil && it.Reviewers != nil && it.Reviewers.Require > 1 {
			parts = append(parts, fmt.Sprintf("%d/%d", it.Approvals, it.Reviewers.Require))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func holdsShow(r *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "show HOLD",
		Short: "Show a hold: what will run, on what, why it was stopped, what already ran",
		Long: `Show everything that deciding a hold takes. Arguments are shown as they will be
sent; characters that cannot be seen or that turn text around are written as \u202e.`,
		Example: "  agentos holds show h_01k9x5v3m2q8w7e6t4r1y0a9sd_1",
		Args:    takes("HOLD"),
		RunE: r.run(func(ctx context.Context, c *client.Client, args []string) error {
			h, err := c.Hold(ctx, r.environment, args[0])
			if err != nil {
				return err
			}
			return r.showHold(h)
		}),
	}
}

func (r *remote) showHold(h api.Hold) error {
	if r.json {
		return printJSON(r.out, h)
	}
	return printHold(r.out, paintFor(r.out, r.env), h)
}

func printHold(w io.Writer, p paint, h api.Hold) error {
	expires := stamp(h.ExpiresAt.Time)
	if h.OnExpire != "" {
		expires += ", then " + h.OnExpire
	}
	err := printFields(w,
		[2]string{"hold", h.HoldID},
		[2]string{"status", string(h.Status)},
		[2]string{"reason", h.Reason},
		[2]string{"intent", h.Intent},
		[2]string{"kind", h.Kind},
		[2]string{"run", h.RunID},
		[2]string{"requester", h.Requester},
		[2]string{"agent", h.Agent},
		[2]string{"capability", h.Capability},
		[2]string{"opened", stamp(h.CreatedAt.Time)},
		[2]string{"expires", expires},
		[2]string{"revision", strconv.FormatInt(h.Revision, 10)},
		[2]string{"actions", strings.Join(h.Actions, ", ")},
	)
	printRan(w, h.AlreadyRan)
	for _, it := range h.Items {
		fmt.Fprintln(w)
		printItem(w, p, it)
		if len(it.Schema) > 0 {
			fmt.Fprintf(w, "  schema:    %s\n", visible.Text(string(it.Schema)))
		}
		printDecision(w, it.Decision)
	}
	return err
}

// printRan lists the calls of the run that have finished.
func printRan(w io.Writer, ran []api.RanCall) {
	if len(ran) == 0 {
		return
	}
	fmt.Fprintln(w, "already ran:")
	for _, c := range ran {
		fmt.Fprintf(w, "  %s %s/%s %s: %s\n", c.ID, visible.Text(c.Server), visible.Text(c.Tool), visible.Text(string(c.Arguments)), visible.Text(c.Outcome))
	}
}

// printItem shows what would run and why somebody is asked.
func printItem(w io.Writer, p paint, it api.Item) {
	fmt.Fprintln(w, p.bold(fmt.Sprintf("%s: %s", it.ID, visible.Text(it.Title))))
	fmt.Fprintf(w, "  tool:      %s on server %s\n", visible.Text(it.Tool), visible.Text(it.Server))
	why := visible.Text(strings.Join(it.Rules, ", "))
	if why == "" {
		why = visible.Text(it.Reason)
	} else {
		why = "rule " + why + because(it.Reason)
	}
	fmt.Fprintf(w, "  why:       %s\n", why)
	if c := it.Changed; c != nil {
		fmt.Fprintf(w, "  changed:   the tool was approved as %s and is now %s\n", visible.Text(c.OldDigest), visible.Text(it.ToolDigest))
		if len(c.OldSchema) > 0 {
			fmt.Fprintf(w, "  schema as approved: %s\n", visible.Text(string(c.OldSchema)))
		}
	}
	printReviewers(w, it)
	printArguments(w, "arguments", it.Data)
	if len(it.Proposed) > 0 {
		printArguments(w, "before the edit", it.Proposed)
	}
}

// printReviewers shows who may decide, and how far that has come.
func printReviewers(w io.Writer, it api.Item) {
	r := it.Reviewers
	if r == nil {
		return
	}
	for _, s := range r.Sets {
		fmt.Fprintf(w, "  reviewers: %s (rule %s)\n", people(s.Roles, s.Users), visible.Text(s.Rule))
		if e := s.Escalate; e != nil {
			fmt.Fprintf(w, "             from %s on also %s\n", stamp(e.At.Time), people(e.Roles, e.Users))
		}
	}
	if r.NotRequester {
		fmt.Fprintln(w, "  reviewers: not the requester")
	}
	if r.Require > 1 {
		fmt.Fprintf(w, "  approved:  by %d of %d people\n", it.Approvals, r.Require)
	}
	for _, v := range it.Votes {
		void := ""
		if v.Void {
			void = ", void since the arguments were edited"
		}
		fmt.Fprintf(w, "    %s by %s at %s%s%s\n", visible.Text(v.Action), visible.Text(v.By), stamp(v.At.Time), because(v.Reason), void)
	}
}

// people says who has one of the roles or names.
func people(roles, users []string) string {
	var who []string
	if len(roles) > 0 {
		who = append(who, "role "+strings.Join(roles, " or "))
	}
	return visible.Text(strings.Join(append(who, users...), " or "))
}

func printArguments(w io.Writer, name string, raw json.RawMessage) {
	text := visible.JSON(raw, "    ")
	fmt.Fprintf(w, "  %s:\n%s\n", name, text)
	if visible.Text(string(raw)) != string(raw) {
		fmt.Fprintln(w, `    (characters that cannot be seen or that turn text around are written as \uXXXX)`)
	}
}

func printDecision(w io.Writer, d *api.Decision) {
	if d == nil {
		return
	}
	fmt.Fprintf(w, "  decision:  %s by %s at %s%s\n", visible.Text(d.Action), visible.Text(d.By), stamp(d.At.Time), because(d.Reason))
	if len(d.Data) > 0 {
		printArguments(w, "decided", d.Data)
	}
}

// decision is a call of one of the deciding commands.
type decision struct {
	action holds.Action
	data   json.RawMessage
	reason string
	wait   bool
	// one says that the data belongs to a single item.
	one bool
}

func decideCommand(r *remote, action holds.Action, short, example string) *cobra.Command {
	d := &decision{action: action, one: action == holds.Edit || action == holds.Ran}
	var data string
	cmd := &cobra.Command{
		Use:   string(action) + " HOLD [ITEM...]",
		Short: short,
		Long: short + `.

Without ITEM it is about every item that is still to be decided. The decision names
the revision of the hold that it was made on: if somebody else was faster nothing is
applied, and the hold is shown as it stands.`,
		Example: example,
		Args:    takes("HOLD", "[ITEM...]"),
	}
	decide := r.run(func(ctx context.Context, c *client.Client, args []string) error {
		return r.decide(ctx, c, d, args)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if d.one {
			if d.data, err = readData(cmd, data, r.in); err != nil {
				return err
			}
		}
		return decide(cmd, args)
	}
	if d.one {
		cmd.Flags().StringVar(&data, "data", "", "JSON, @FILE or - for standard input")
	}
	cmd.Flags().StringVar(&d.reason, "reason", "", "why; kept with the decision")
	cmd.Flags().BoolVar(&d.wait, "wait", false, "wait until the run is held again or has ended, and show it")
	return cmd
}

func readData(cmd *cobra.Command, data string, stdin io.Reader) (json.RawMessage, error) {
	if data == "" {
		return nil, usage(cmd, "--data is missing")
	}
	raw, err := readArgument(data, stdin)
	if err != nil {
		return nil, usage(cmd, "--data: %v", err)
	}
	if err := rawjson.Check(raw); err != nil {
		return nil, usage(cmd, "--data is not JSON: %v", err)
	}
	return rawjson.Compact(raw)
}

func (r *remote) decide(ctx context.Context, c *client.Client, d *decision, args []string) error {
	hold, err := c.Hold(ctx, r.environment, args[0])
	if err != nil {
		return err
	}
	items, err := d.items(hold, args[1:])
	if err != nil {
		return err
	}
	body := api.Decide{Revision: hold.Revision}
	for _, id := range items {
		body.Decisions = append(body.Decisions, api.ItemDecision{ID: id, Action: string(d.action), Data: d.data, Reason: d.reason})
	}
	done, err := c.Decide(ctx, client.Decide{Env: r.environment, Hold: hold.HoldID, Body: body})
	if refused := (*client.Error)(nil); errors.As(err, &refused) && refused.Hold != nil {
		return errors.Join(r.showHold(*refused.Hold), err)
	}
	if err != nil {
		return err
	}
	if d.wait {
		if done.Run, err = settled(ctx, c, done.Run); err != nil {
			return err
		}
	}
	if err := r.showDecided(done, d.wait); err != nil {
		return err
	}
	if d.wait && done.Run.Status == api.RunFailed {
		return failed{exitFailed}
	}
	return nil
}

// items are the items a command is about: those named, or all that are pending.
// When none is, all of them: the server knows a repeat from a contradiction.
func (d *decision) items(h api.Hold, named []string) ([]string, error) {
	if len(named) == 0 {
		var all []string
		for _, it := range h.Items {
			all = append(all, it.ID)
			if it.Decision == nil {
				named = append(named, it.ID)
			}
		}
		if len(named) == 0 {
			named = all
		}
	}
	if d.one && len(named) != 1 {
		return nil, usageError{fmt.Errorf("--data belongs to one item; name one of %s", strings.Join(named, ", "))}
	}
	return named, nil
}

// settled waits until the run is held or has ended.
func settled(ctx context.Context, c *client.Client, run api.Run) (api.Run, error) {
	for run.Status != api.RunHeld && !run.Status.Finished() {
		var err error
		if run, err = c.Run(ctx, run.Env, run.RunID, time.Minute); err != nil {
			return run, err
		}
	}
	return run, nil
}

func (r *remote) showDecided(done api.Decided, waited bool) error {
	if r.json {
		return printJSON(r.out, done)
	}
	if waited {
		return printRun(r.out, done.Run)
	}
	pending := 0
	for _, it := range done.Hold.Items {
		if it.Decision != nil {
			continue
		}
		pending++
		if it.Reviewers != nil && it.Approvals > 0 {
			fmt.Fprintf(r.out, "%s: approved by %d of %d people\n", it.ID, it.Approvals, it.Reviewers.Require)
		}
	}
	if pending > 0 {
		_, err := fmt.Fprintf(r.out, "%s: %d items still to decide\n", done.Hold.HoldID, pending)
		return err
	}
	_, err := fmt.Fprintf(r.out, "%s: %s; run %s goes on\n", done.Hold.HoldID, done.Hold.Status, done.Run.RunID)
	return err
}
