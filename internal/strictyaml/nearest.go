package strictyaml

import "strings"

// maxLikeness bounds the texts that are compared; longer ones are no slips.
const maxLikeness = 64

// Nearest returns the candidate that word most likely means, or "": one that
// differs only in case and separators, or by few slips for its length.
func Nearest(word string, candidates []string) string {
	if word == "" || len(word) > maxLikeness {
		return ""
	}
	best, bestDistance := "", 1+max(1, len(word)/3)
	for _, c := range candidates {
		if len(c) > maxLikeness {
			continue
		}
		d := distance(plainForm(word), plainForm(c))
		if d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

func plainForm(s string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "", ".", "").Replace(strings.ToLower(s))
}

// distance counts the letters to add, remove, replace or swap with a neighbour.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}
