package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentos/api"
)

// listServer answers lists of runs from a list of n, and records the limits asked
// for.
func listServer(t *testing.T, n int) (url string, limits *[]string) {
	t.Helper()
	limits = &[]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*limits = append(*limits, r.URL.Query().Get("limit"))
		var from, limit int
		_, _ = fmt.Sscanf(r.URL.Query().Get("cursor"), "c%d", &from)
		_, _ = fmt.Sscanf(r.URL.Query().Get("limit"), "%d", &limit)
		list := api.RunList{Runs: []api.Run{}}
		for i := from; i < min(n, from+limit); i++ {
			list.Runs = append(list.Runs, api.Run{RunID: fmt.Sprintf("r_%026d", i), Status: api.RunHeld})
		}
		if from+limit < n {
			list.NextCursor = fmt.Sprint("c", from+limit)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, limits
}

func TestEveryPageIsPrinted(t *testing.T) {
	t.Parallel()
	url, limits := listServer(t, 450)
	code, out, errs := call(t, map[string]string{"AGENTOS_URL": url}, "runs", "list", "--all")
	ids := regexp.MustCompile(`r_\d{26}`).FindAllString(out, -1)
	if code != exitOK || errs != "" || len(ids) != 450 || !slices.IsSorted(ids) || len(slices.Compact(ids)) != 450 {
		t.Errorf("exit %d, %d rows, %q", code, len(ids), errs)
	}
	if !slices.Equal(*limits, []string{"200", "200", "200"}) || strings.Count(out, "CAPABILITY") != 1 {
		t.Errorf("limits %q, %d heads", *limits, strings.Count(out, "CAPABILITY"))
	}
	code, out, _ = call(t, map[string]string{"AGENTOS_URL": url}, "runs", "list", "--all", "--json", "--limit", "100")
	if code != exitOK || strings.Count(out, "\n") != 5 {
		t.Errorf("exit %d, %d lines, want 5 pages", code, strings.Count(out, "\n"))
	}
}

// The command for the next page is one that can be pasted.
func TestNextPageCommand(t *testing.T) {
	t.Parallel()
	url, _ := listServer(t, 10)
	code, _, errs := call(t, map[string]string{"AGENTOS_URL": url}, "runs", "list", "--limit", "4", "--agent", "it's; rm -rf", "--json", "--cursor", "c2")
	want := "agentos: there are more; add --all, or go on with\n  agentos runs list --json=true --agent='it'\\''s; rm -rf' --limit=4 --cursor=c6\n"
	if code != exitOK || errs != want {
		t.Errorf("exit %d, %q, want %q", code, errs, want)
	}
	if shellWord("") != "''" || shellWord("a b") != "'a b'" || shellWord("1.r_x") != "1.r_x" {
		t.Errorf("words: %s %s %s", shellWord(""), shellWord("a b"), shellWord("1.r_x"))
	}
}

func TestListThatStandsStill(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"runs":[],"next_cursor":"again"}`)
	}))
	defer srv.Close()
	code, _, errs := call(t, map[string]string{"AGENTOS_URL": srv.URL}, "runs", "list", "--all")
	if code != exitFailed || !strings.Contains(errs, `the page of cursor "again" twice`) {
		t.Errorf("exit %d, %q", code, errs)
	}
}

// A flag that chooses rows and is left out of the next page would make it a page of
// another list.
func TestNextPageHasEveryFlag(t *testing.T) {
	t.Parallel()
	for _, path := range [][]string{{"runs", "list"}, {"holds", "list"}} {
		cmd, _, err := commands().Find(path)
		if err != nil {
			t.Fatal(err)
		}
		cmd.InitDefaultHelpFlag()
		usages := cmd.Flags().FlagUsages() + cmd.InheritedFlags().FlagUsages()
		for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(usages, -1) {
			if !slices.Contains(append(strings.Fields(chosen), "cursor", "all", "help"), m[1]) {
				t.Errorf("%v: the next page does not have --%s", path, m[1])
			}
		}
		if !strings.Contains(usages, "--env") || !strings.Contains(usages, "--agent") {
			t.Errorf("%v: flags are not seen:\n%s", path, usages)
		}
	}
}
