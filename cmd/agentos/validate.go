package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentos/api"
	"agentos/capabilities"
	"agentos/internal/problem"
	"agentos/internal/strictyaml"
	"agentos/internal/visible"
	"agentos/platform"
	"agentos/runtime"
	"agentos/runtime/mcp"
)

// report is what validate found, and its --json.
type report struct {
	File string `json:"file"`
	// Valid is false exactly when there are problems.
	Valid    bool     `json:"valid"`
	Problems []fault  `json:"problems"`
	Warnings []string `json:"warnings,omitempty"`
	// Agent is set when the file could be read, the rest with --connect.
	Agent        string             `json:"agent,omitempty"`
	MCPServers   []mcp.Status       `json:"mcp_servers,omitempty"`
	Capabilities []capabilityReport `json:"capabilities,omitempty"`
}

// fault is one thing to correct. Line and column count from 1; they are absent
// where the fault is not in the text of the file.
type fault struct {
	// File is set where the fault is in the platform file.
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// capabilityReport are the tools that the model of a capability would be offered,
// and those it cannot be.
type capabilityReport struct {
	Name     string         `json:"name"`
	Tools    []toolReport   `json:"tools"`
	Excluded []mcp.Excluded `json:"excluded,omitempty"`
}

// toolReport is a tool with what policy says about it.
type toolReport struct {
	Name    string      `json:"name"`
	Server  string      `json:"server"`
	Tool    string      `json:"tool"`
	Effect  string      `json:"effect"`
	Verdict api.Verdict `json:"verdict"`
}

func validateCommand(io stdio, env lookup) *cobra.Command {
	var connect, json bool
	var config string
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check agentos.yaml and report every fault with its position",
		Long: `Check a manifest, ./agentos.yaml by default, and report every fault at once.

With --connect every MCP server is started or reached as well: their tools are listed
with what policy says about each, and rules that match no tool are faults. With
--config the operator's platform.yaml is checked too, and its rules have their say.`,
		Example: "  agentos validate agentos.yaml",
		Args:    takes("[FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &report{File: "agentos.yaml", Problems: []fault{}}
			if len(args) == 1 {
				r.File = args[0]
			}
			agent, err := capabilities.Load(r.File)
			operator, platformErr := platform.Load(config)
			if !r.read(err, "") || !r.read(platformErr, config) {
				return errors.Join(err, platformErr)
			}
			if err == nil {
				r.Agent = agent.Name
			}
			if err == nil && platformErr == nil && connect {
				if err := r.connect(cmd.Context(), io, env, agent, operator); err != nil {
					return err
				}
			}
			r.Valid = len(r.Problems) == 0
			return r.print(io, agent, json)
		},
	}
	configFlag(cmd, &config, env)
	cmd.Flags().BoolVar(&connect, "connect", false, "connect the MCP servers and check policy against their tools")
	cmd.Flags().BoolVar(&json, "json", false, "print the report as JSON")
	return cmd
}

// read takes over the problems of a file, "" for the manifest; false means that err
// is something else.
func (r *report) read(err error, file string) bool {
	var problems strictyaml.Errors
	if err == nil {
		return true
	}
	if !errors.As(err, &problems) {
		return false
	}
	for _, p := range problems {
		r.Problems = append(r.Problems, fault{File: file, Line: p.Line, Column: p.Column, Path: p.Path, Message: p.Message})
	}
	return true
}

func (r *report) add(path, format string, args ...any) {
	r.Problems = append(r.Problems, fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

// connect opens the MCP servers and reports what they offer.
func (r *report) connect(ctx context.Context, io stdio, env lookup, agent *capabilities.Agent, operator platform.Config) (err error) {
	agents := []*capabilities.Agent{agent}
	p := &parts{platform: operator}
	if p.secrets, err = readSecrets(env, agents); err != nil {
		return err
	}
	s := settings{logFormat: env.or("AGENTOS_LOG", "text"), logLevel: env.or("AGENTOS_LOG_LEVEL", "error")}
	if p.log, err = newLog(s, io.err, p.secrets); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	if err := p.connect(ctx, env, agents); err != nil {
		return r.refused(err)
	}
	a := p.agents[0]
	a.MCP.Wait(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.servers(a)
	for _, c := range slices.SortedFunc(maps.Values(agent.Capabilities), func(x, y *capabilities.Capability) int {
		return cmp.Compare(x.Name, y.Name)
	}) {
		r.capability(a, c)
	}
	r.rules(a)
	return nil
}

// refused takes over what only connecting finds wrong with the manifest.
func (r *report) refused(err error) error {
	var p *problem.Error
	if !errors.As(err, &p) || p.Code != problem.InvalidManifest {
		return err
	}
	for _, d := range p.Details {
		r.add(d.Path, "%s", d.Message)
	}
	if len(p.Details) == 0 {
		r.add("", "%s", p.Message)
	}
	return nil
}

func (r *report) servers(a *runtime.Agent) {
	r.MCPServers = a.MCP.Status()
	for _, s := range r.MCPServers {
		path := "mcp_servers." + s.Name
		switch {
		case s.Status == mcp.Connected:
		case s.Required:
			r.add(path, "%s: %s", s.Status, s.Error)
		default:
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: %s: %s; runs go on without its tools", path, s.Status, s.Error))
		}
		for _, text := range slices.Concat(s.Excluded, s.Warnings) {
			r.Warnings = append(r.Warnings, path+": "+text)
		}
	}
}

func (r *report) capability(a *runtime.Agent, c *capabilities.Capability) {
	out := capabilityReport{Name: c.Name, Tools: []toolReport{}}
	if c.Loop == nil {
		return
	}
	for _, t := range a.Tools(c) {
		out.Tools = append(out.Tools, toolReport{
			Name: t.Provider, Server: t.Server, Tool: t.Tool, Effect: t.Effect,
			Verdict: api.Verdict{Effect: string(t.Verdict.Effect), Rules: t.Verdict.Rules, Reason: t.Verdict.Reason},
		})
	}
	mine := slices.DeleteFunc(a.MCP.Tools(), func(t mcp.Tool) bool { return !c.Loop.Offers(t.Server, t.Name) })
	_, out.Excluded = mcp.Names(mine, c.Loop.Namespaced)
	for _, e := range out.Excluded {
		if named(a.Manifest, c, e) {
			r.add("capabilities."+c.Name, "the tool %s/%s cannot be offered: %s", e.Server, e.Tool, e.Reason)
		}
	}
	r.Capabilities = append(r.Capabilities, out)
}

// named reports whether the manifest counts on a tool: it names it, without
// wildcards, among the tools of its server or of the capability.
func named(a *capabilities.Agent, c *capabilities.Capability, e mcp.Excluded) bool {
	s := a.Servers[e.Server]
	_, renamed := s.Rename[e.Tool]
	return renamed || slices.Contains(s.Tools, e.Tool) || slices.Contains(c.Loop.Tools, e.Server+"/"+e.Tool)
}

// rules reports rules that protect nothing.
func (r *report) rules(a *runtime.Agent) {
	if misleading := a.Misleading(); misleading != nil {
		for _, d := range misleading.Details {
			r.add(d.Path, "%s", d.Message)
		}
	}
	for _, text := range a.Idle() {
		r.add("", "%s", text)
	}
}

// print writes the report and returns how the command ends.
func (r *report) print(out stdio, agent *capabilities.Agent, json bool) error {
	if json {
		if err := printJSON(out.out, r); err != nil {
			return err
		}
	} else if err := r.printText(out, agent); err != nil {
		return err
	}
	if !r.Valid {
		return failed{exitFailed}
	}
	return nil
}

func (r *report) printText(out stdio, agent *capabilities.Agent) error {
	for _, f := range r.Problems {
		p := strictyaml.Problem{File: cmp.Or(f.File, r.File), Line: f.Line, Column: f.Column, Path: f.Path, Message: f.Message}
		fmt.Fprintln(out.err, visible.Text(p.String()))
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(out.err, "%s: warning: %s\n", r.File, visible.Text(w))
	}
	if err := r.printTools(out.out); err != nil {
		return err
	}
	if r.Valid {
		fmt.Fprintf(out.out, "%s: valid: agent %s, %d capabilities, %d MCP servers\n", r.File, agent.Name, len(agent.Capabilities), len(agent.Servers))
	}
	return nil
}

func (r *report) printTools(w io.Writer) error {
	if len(r.MCPServers) > 0 {
		rows := [][]string{{"SERVER", "STATUS", "TOOLS", "SAYS IT IS"}}
		for _, s := range r.MCPServers {
			info := ""
			if s.ServerInfo != nil {
				info = strings.TrimSpace(s.ServerInfo.Name + " " + s.ServerInfo.Version)
			}
			rows = append(rows, []string{s.Name, string(s.Status), strconv.Itoa(s.ToolCount), info})
		}
		if err := printTable(w, rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if len(r.Capabilities) == 0 {
		return nil
	}
	rows := [][]string{{"CAPABILITY", "TOOL", "SERVER", "EFFECT", "POLICY", "RULES"}}
	for _, c := range r.Capabilities {
		for _, t := range c.Tools {
			rows = append(rows, []string{c.Name, t.Tool, t.Server, t.Effect, t.Verdict.Effect, strings.Join(t.Verdict.Rules, ", ")})
		}
		for _, e := range c.Excluded {
			rows = append(rows, []string{c.Name, e.Tool, e.Server, "", "excluded", e.Reason})
		}
	}
	err := printTable(w, rows)
	fmt.Fprintln(w)
	return err
}
