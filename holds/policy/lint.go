package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Unmatched returns the rules that match none of the offered tools, in their
// order. Such a rule protects nothing; the caller says so.
func Unmatched(rules []Rule, offered []Call) []Rule {
	var out []Rule
	for _, r := range rules {
		if !r.matchesAny(offered) {
			out = append(out, r)
		}
	}
	return out
}

func (r Rule) matchesAny(offered []Call) bool {
	return slices.ContainsFunc(offered, r.matches)
}

// NearMiss reports whether rule reads like protection of an offered tool but is
// none: it asks or denies, matches no raw name, and is either written as the
// model sees a tool (shownNames[i] is the shown name of offered[i], "" when it
// is not shown) or differs from a raw name only in case, separators or one
// slip of the pen. The text says what to write instead. A server with such a
// rule must not start.
func NearMiss(rule Rule, offered []Call, shownNames []string) (string, bool) {
	if rule.Effect == Allow || rule.matchesAny(offered) {
		return "", false
	}
	for i, c := range offered {
		if i < len(shownNames) && shownNames[i] != "" && glob(rule.Tool, shownNames[i]) {
			return fmt.Sprintf("rule %s: %q is a name the model sees; rules match raw names: write %q",
				rule.ID, rule.Tool, c.Server+"/"+c.Tool), true
		}
	}
	for _, c := range offered {
		if near(rule.Tool, c.Tool) || near(rule.Tool, c.Server+"/"+c.Tool) {
			return fmt.Sprintf("rule %s: %q matches no tool, but server %s offers %q: write %q",
				rule.ID, rule.Tool, c.Server, c.Tool, c.Server+"/"+c.Tool), true
		}
	}
	return "", false
}

// Lengths from which likeness means something: shorter texts are alike by chance.
const (
	minFolded = 3
	minTypo   = 6
)

// near compares without regard to case and separators. Globs keep separators
// apart from letters, or "git.*" would be near "github_search".
func near(pattern, name string) bool {
	if IsGlob(pattern) {
		f := fold(pattern, "_")
		return len(strings.Trim(f, "*?_")) >= minFolded && glob(f, fold(name, "_"))
	}
	p, n := fold(pattern, ""), fold(name, "")
	if len(p) >= minFolded && p == n {
		return true
	}
	return len(p) >= minTypo && oneSlip(p, n)
}

// fold lowers the letters and replaces every run of other characters by sep.
// Wildcards stay.
func fold(s, sep string) string {
	var b strings.Builder
	gap := false
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '*' && r != '?' {
			gap = true
			continue
		}
		if gap {
			b.WriteString(sep)
			gap = false
		}
		b.WriteRune(unicode.ToLower(r))
	}
	if gap {
		b.WriteString(sep)
	}
	return b.String()
}

// oneSlip reports whether a and b differ by one letter missing, added or
// replaced, or by two neighbours swapped.
func oneSlip(a, b string) bool {
	x, y := []rune(a), []rune(b)
	if len(x) > len(y) {
		x, y = y, x
	}
	if len(y)-len(x) > 1 {
		return false
	}
	i := 0
	for i < len(x) && x[i] == y[i] {
		i++
	}
	if len(x) < len(y) {
		return string(x[i:]) == string(y[i+1:])
	}
	if i == len(x) {
		return true
	}
	if string(x[i+1:]) == string(y[i+1:]) {
		return true
	}
	return i+1 < len(x) && x[i] == y[i+1] && x[i+1] == y[i] && string(x[i+2:]) == string(y[i+2:])
}
