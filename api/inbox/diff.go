package inbox

import (
	"encoding/json"
	"slices"
	"strings"

	"agentos/internal/rawjson"
	"agentos/internal/visible"
)

// change is one line of a comparison.
type change struct {
	// Sign is "-" for a line that goes, "+" for one that comes, else " ".
	Sign string
	Text string
}

// maxDiff bounds the work of a comparison: lines of one text times lines of the
// other. Longer ones are shown whole, old and new.
const maxDiff = 4 << 20

// differences compares two JSON texts line by line as a person is shown them, in
// which numbers and escapes stand as they are.
func differences(before, after json.RawMessage) []change {
	a, b := shownLines(before), shownLines(after)
	var head, tail []change
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, change{" ", a[0]})
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, change{" ", a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	out := append(head, middle(a, b)...)
	for _, c := range slices.Backward(tail) {
		out = append(out, c)
	}
	return out
}

func shownLines(raw json.RawMessage) []string {
	compact, err := rawjson.Compact(raw)
	if err != nil {
		compact = raw
	}
	return strings.Split(visible.JSON(compact, ""), "\n")
}

// middle compares by the longest common subsequence of lines.
func middle(a, b []string) []change {
	var out []change
	if len(a)*len(b) <= maxDiff {
		n := len(b) + 1
		common := make([]int32, (len(a)+1)*n)
		for i, la := range slices.Backward(a) {
			for j, lb := range slices.Backward(b) {
				common[i*n+j] = max(common[(i+1)*n+j], common[i*n+j+1])
				if la == lb {
					common[i*n+j] = common[(i+1)*n+j+1] + 1
				}
			}
		}
		i, j := 0, 0
		for i < len(a) && j < len(b) {
			switch {
			case a[i] == b[j]:
				out = append(out, change{" ", a[i]})
				i, j = i+1, j+1
			case common[(i+1)*n+j] >= common[i*n+j+1]:
				out = append(out, change{"-", a[i]})
				i++
			default:
				out = append(out, change{"+", b[j]})
				j++
			}
		}
		a, b = a[i:], b[j:]
	}
	for _, l := range a {
		out = append(out, change{"-", l})
	}
	for _, l := range b {
		out = append(out, change{"+", l})
	}
	return out
}
