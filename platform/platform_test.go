package platform

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentos/holds/policy"
	"agentos/internal/strictyaml"
)

var update = flag.Bool("update", false, "rewrite the expected errors")

// TestInvalidFiles compares every file of testdata/invalid with the errors beside
// it. A person reads the difference after -update.
func TestInvalidFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			c, err := Parse("platform.yaml", read(t, file))
			var all strictyaml.Errors
			if !errors.As(err, &all) {
				t.Fatalf("error is %T %v, want strictyaml.Errors", err, err)
			}
			if len(c.Policy.Rules) > 0 {
				t.Errorf("a file with faults has rules: %+v", c)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(all.Error()+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(read(t, golden)), all.Error()+"\n"); diff != "" {
				t.Errorf("errors differ (-want +got):\n%s", diff)
			}
		})
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse(t *testing.T, text string) Config {
	t.Helper()
	c, err := Parse("platform.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRules(t *testing.T) {
	t.Parallel()
	c := parse(t, `
policy:
  rules:
    - {effect: deny, tool: "*/admin_*", reason: "Not ${here}."}
    - {id: big, effect: ask, tool: "refund_*", when: args.amount > 100, reviewers: {roles: [finance], require: 2}, expires: 24h, on_expire: fail}
    - {effect: allow, tool: docs/drop_cache}
`)
	var got []string
	for _, r := range c.Policy.Rules {
		got = append(got, r.ID+" "+string(r.Effect)+" "+r.Tool)
	}
	want := []string{"operator:1 deny */admin_*", "operator:big ask refund_*", "operator:3 allow docs/drop_cache"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if r := c.Policy.Rules[0]; r.Reason != "Not ${here}." {
		t.Errorf("reason %q: the file is no template", r.Reason)
	}
	r := c.Policy.Rules[1]
	if r.When == nil || r.Expires != 24*time.Hour || r.OnExpire != policy.FailOnExpire || r.Reviewers.Needed() != 2 {
		t.Errorf("rule = %+v", r)
	}
}

func TestNoRules(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{}", "policy: {}", "policy: {rules: []}"} {
		if c := parse(t, text); !reflect.DeepEqual(c, Config{}) {
			t.Errorf("%s = %+v", text, c)
		}
	}
	if c, err := Load(""); err != nil || !reflect.DeepEqual(c, Config{}) {
		t.Errorf("no file: %+v, %v", c, err)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "platform.yaml")
	var all strictyaml.Errors
	if _, err := Load(path); !errors.As(err, &all) || all[0].Message != "the file does not exist" {
		t.Errorf("error = %v", err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("#"), strictyaml.MaxBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.As(err, &all) || !strings.Contains(err.Error(), "larger than 1024 KiB") {
		t.Errorf("error = %v", err)
	}
	if err := os.WriteFile(path, []byte("policy: {rules: [{effect: deny, tool: t}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || len(c.Policy.Rules) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestDigest: layout does not count, everything else does.
func TestDigest(t *testing.T) {
	t.Parallel()
	const base = `policy: {rules: [{id: a, effect: ask, tool: t, when: args.n > 1, expires: 1h, on_expire: reject, reason: r, reviewers: {roles: [x], require: 2}}]}`
	digest := parse(t, base).Policy.Digest
	if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(digest) {
		t.Fatalf("digest %q", digest)
	}
	laidOut := "# a comment\npolicy:\n  rules:\n  - effect: ask\n    id: \"a\"\n    tool: t\n    when: args.n > 1\n    reason: r\n    expires: 60m\n    reviewers: {require: 2, roles: [x]}\n"
	if got := parse(t, laidOut).Policy.Digest; got != digest {
		t.Errorf("the same rules laid out otherwise: %s, want %s", got, digest)
	}
	seen := map[string]string{digest: base}
	for old, changed := range map[string]string{
		"id: a": "id: b", "effect: ask": "effect: ask, id2: x", "tool: t": "tool: u", "args.n > 1": "args.n > 2", "expires: 1h": "expires: 2h",
		"on_expire: reject": "on_expire: fail", "reason: r": "reason: s", "roles: [x]": "users: [x, y]", "require: 2": "require: 3",
	} {
		text := strings.Replace(base, old, changed, 1)
		if old == "effect: ask" {
			text = `policy: {rules: [{id: a, effect: deny, tool: t, when: args.n > 1, reason: r}]}`
		}
		d := parse(t, text).Policy.Digest
		if seen[d] != "" {
			t.Errorf("the digests are equal of\n%s\n%s", text, seen[d])
		}
		seen[d] = text
	}
	if n := reflect.TypeFor[policy.Rule]().NumField(); n != 8 {
		t.Errorf("a rule has %d fields, and the digest covers 8", n)
	}
}

// FuzzParse: whatever is in the file, there are rules or faults with a place, rules
// have ids of the operator's, each once, and what is read is read the same again.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(data) < 8<<10 {
			f.Add(data)
		}
	}
	f.Add([]byte(`policy: {rules: [{effect: ask, tool: "a/*", when: 'args.n > 1 && "x" in requester.groups', reviewers: {users: [u], not_requester: true}, on_expire: {escalate: {to: {users: [v]}, after: 1h}}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("platform.yaml", data)
		if err != nil {
			var all strictyaml.Errors
			if !errors.As(err, &all) || len(all) == 0 || len(all) > 101 {
				t.Fatalf("error %T %v", err, err)
			}
			if !reflect.DeepEqual(c, Config{}) {
				t.Fatalf("faults and %+v", c)
			}
			return
		}
		if (c.Policy.Digest == "") != (len(c.Policy.Rules) == 0) {
			t.Fatalf("%d rules with digest %q", len(c.Policy.Rules), c.Policy.Digest)
		}
		seen := map[string]bool{}
		for _, r := range c.Policy.Rules {
			if !strings.HasPrefix(r.ID, rulePrefix) || seen[r.ID] || r.Tool == "" {
				t.Fatalf("rule %+v", r)
			}
			seen[r.ID] = true
			if !slices.Contains([]policy.Effect{policy.Allow, policy.Ask, policy.Deny}, r.Effect) {
				t.Fatalf("effect %q", r.Effect)
			}
			if r.Effect != policy.Ask && (len(r.Reviewers.Sets) > 0 || r.Expires != 0) {
				t.Fatalf("%s has %+v", r.Effect, r)
			}
		}
		again, err := Parse("platform.yaml", data)
		if err != nil || again.Policy.Digest != c.Policy.Digest {
			t.Fatalf("read again: %v, %s, before %s", err, again.Policy.Digest, c.Policy.Digest)
		}
	})
}
