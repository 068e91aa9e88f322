package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// maxRows is the most rows that the API puts into a page.
const maxRows = 200

// pages are the flags of a list that comes in pages, and how far it has come.
type pages struct {
	cmd    *cobra.Command
	limit  int
	cursor string
	all    bool
	// printed counts the pages.
	printed int
}

func (p *pages) flags(cmd *cobra.Command) {
	p.cmd = cmd
	cmd.Flags().IntVar(&p.limit, "limit", 50, "the most rows, 1 to 200")
	cmd.Flags().StringVar(&p.cursor, "cursor", "", "go on where the page before ended")
	cmd.Flags().BoolVar(&p.all, "all", false, "print page after page to the end; with --json a line for each")
}

// eachPage has page print one page, or all: it is given the limit and the cursor of
// each, and returns the cursor of the next. A page never passes for the whole list:
// that there are more is told with the command for them.
func (r *remote) eachPage(p *pages, page func(limit int, cursor string) (next string, err error)) error {
	if p.limit < 1 || p.limit > maxRows {
		return usage(p.cmd, "--limit %d: must be from 1 to %d", p.limit, maxRows)
	}
	if p.all && !p.cmd.Flags().Changed("limit") {
		p.limit = maxRows
	}
	for {
		next, err := page(p.limit, p.cursor)
		switch {
		case err != nil || next == "":
			return err
		case !p.all:
			_, err := fmt.Fprintf(r.err, "agentos: there are more; add --all, or go on with\n  %s\n", p.command(next))
			return err
		case next == p.cursor:
			return fmt.Errorf("the server gave the page of cursor %q twice", next)
		}
		p.cursor = next
	}
}

// printPage prints one page: the answer as it came, or its rows, with the head
// above the first.
func (r *remote) printPage(p *pages, answer any, head []string, rows [][]string) error {
	p.printed++
	if r.json {
		return printJSON(r.out, answer)
	}
	if p.printed == 1 {
		rows = append([][]string{head}, rows...)
	}
	return printTable(r.out, rows)
}

// chosen are the flags by which a list is chosen and shown: those that its next page
// has too.
const chosen = "env json status agent reviewer limit"

// command is the command line for the page that begins at cursor, with the flags
// of this one.
func (p *pages) command(cursor string) string {
	line := []string{p.cmd.CommandPath()}
	for name := range strings.FieldsSeq(chosen) {
		if f := p.cmd.Flags().Lookup(name); f != nil && f.Changed {
			line = append(line, "--"+name+"="+shellWord(f.Value.String()))
		}
	}
	return strings.Join(append(line, "--cursor="+shellWord(cursor)), " ")
}

// shellWord returns s as one word of a POSIX shell.
func shellWord(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
