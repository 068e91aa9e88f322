package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentos/api/client"
	"agentos/capabilities"
	"agentos/holds/policy"
	"agentos/internal/strictyaml"
	"agentos/internal/visible"
	"agentos/platform"
)

func policyCommand(io stdio, env lookup) *cobra.Command {
	r := &remote{stdio: io, env: env}
	return remoteGroup(r, "policy", "Try policy out before it decides about calls", policyTest(r))
}

// policyFlags are the flags of agentos policy test.
type policyFlags struct {
	manifest, config string
	replay, runs     bool
	query            client.RunQuery
	limit            int
}

// maxReplay bounds how many runs one replay reads.
const maxReplay = 1000

func policyTest(r *remote) *cobra.Command {
	var f policyFlags
	cmd := &cobra.Command{
		Use:   "test FILE | test --replay RUN... | test --runs",
		Short: "Judge examples, or recorded calls, by the manifest and the operator's rules",
		Long: `Judge calls by the rules of a manifest (-m) and of the operator (--config) as they
are now. No MCP server is started and nothing is called.

With FILE the calls are examples, each with what policy is expected to say; a
mismatch is shown as what was expected (-) and what came (+). With --replay they are
those of recorded runs, and with --runs those of the newest runs of a server: shown
is what would be decided differently today. Calls that cannot be judged again are
told with the reason.

The exit code is 0 when everything is as expected or as it was, 1 when something is
not, 2 when the command or a file is wrong.`,
		Example: `  agentos policy test examples.yaml
  agentos policy test --replay r_01k9x5v3m2q8w7e6t4r1y0a9sd
  agentos policy test --runs --status completed --limit 200 --config platform.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args); err != nil {
				return err
			}
			b, err := f.book()
			if err != nil {
				return r.badFiles(err)
			}
			if !f.replay && !f.runs {
				return r.testExamples(b, args[0])
			}
			return r.replay(b, f)(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.manifest, "manifest", "m", "agentos.yaml", "the agent's manifest")
	configFlag(cmd, &f.config, r.env)
	flags.BoolVar(&f.replay, "replay", false, "judge the calls of these runs again")
	flags.BoolVar(&f.runs, "runs", false, "judge the calls of the newest runs again")
	flags.StringVar((*string)(&f.query.Status), "status", "", "with --runs: only queued, running, held, completed, failed or cancelled ones")
	flags.StringVar(&f.query.Agent, "agent", "", "with --runs: only runs of this agent; the manifest's by default")
	flags.IntVar(&f.limit, "limit", 50, "with --runs: the most runs, 1 to 1000")
	return cmd
}

// check refuses calls of the command that mean nothing.
func (f *policyFlags) check(cmd *cobra.Command, args []string) error {
	switch {
	case f.replay && f.runs:
		return usage(cmd, "give --replay or --runs, not both")
	case f.replay && len(args) == 0:
		return usage(cmd, "RUN is missing")
	case f.runs && len(args) > 0:
		return usage(cmd, "unexpected argument %q", args[0])
	case !f.replay && !f.runs && len(args) != 1:
		return usage(cmd, "give one FILE with examples, --replay RUN..., or --runs")
	case f.limit < 1 || f.limit > maxReplay:
		return usage(cmd, "--limit must be 1 to %d", maxReplay)
	}
	for _, name := range []string{"status", "agent", "limit"} {
		if !f.runs && cmd.Flags().Changed(name) {
			return usage(cmd, "--%s goes with --runs", name)
		}
	}
	return nil
}

// book is all that calls are judged by.
type book struct {
	agent    *capabilities.Agent
	operator platform.Config
}

func (f *policyFlags) book() (book, error) {
	operator, platformErr := platform.Load(f.config)
	agent, err := capabilities.Load(f.manifest)
	return book{agent: agent, operator: operator}, errors.Join(err, platformErr)
}

// judge returns what policy says about a call of the capability.
func (b book) judge(c *capabilities.Capability, call policy.Call) policy.Verdict {
	return policy.Evaluate(slices.Concat(b.operator.Policy.Rules, b.agent.RulesOf(c)), call)
}

// offers returns what is wrong with asking for a tool of the capability, or "". What
// servers really offer is not known here.
func (b book) offers(c *capabilities.Capability, server, tool string) string {
	s := b.agent.Servers[server]
	switch {
	case s == nil:
		return fmt.Sprintf("the manifest has no MCP server %q", server)
	case !c.Loop.Offers(server, tool):
		return "the capability " + c.Name + " does not offer this tool"
	case s.Tools != nil && !slices.ContainsFunc(s.Tools, func(pattern string) bool { return policy.Match(pattern, server, tool) }):
		return "the manifest leaves this tool of the server out"
	}
	return ""
}

// badFiles prints what is wrong with files, which no test can begin with.
func (r *remote) badFiles(err error) error {
	lines := []string{err.Error()}
	if problems := strictyaml.Errors(nil); errors.As(err, &problems) {
		lines = strings.Split(err.Error(), "\n")
	}
	for _, line := range lines {
		fmt.Fprintln(r.err, visible.Text(line))
	}
	return failed{exitUsage}
}

// ruleNames shows the rules of a verdict.
func ruleNames(rules []string) string {
	if len(rules) == 0 {
		return "none"
	}
	return visible.Text(strings.Join(rules, ", "))
}

// asked shows whom a verdict asks.
func asked(v policy.Verdict) string {
	if v.Effect != policy.Ask {
		return "nobody is asked"
	}
	return whoDecides(v.Reviewers)
}

// whoDecides shows in one line who may decide and how many must agree.
func whoDecides(r policy.Reviewers) string {
	parts := []string{"one person"}
	if n := r.Needed(); n > 1 {
		parts[0] = fmt.Sprintf("%d people", n)
	}
	if r.NotRequester {
		parts = append(parts, "not the requester")
	}
	for _, s := range r.Sets {
		parts = append(parts, people(s.Roles, s.Users))
	}
	return strings.Join(parts, ", ")
}

// diffLine prints one line of what is alike (" "), expected ("-") or got ("+").
func diffLine(w io.Writer, mark, name, value string) {
	fmt.Fprintf(w, "      %s %s: %s\n", mark, name, value)
}
