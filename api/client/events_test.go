package client

import (
	"bufio"
	"strings"
	"testing"
)

// Whatever a stream holds, reading it ends, and every entry came from a data line
// that was closed by an empty line.
func FuzzNext(f *testing.F) {
	f.Add("id: 1\nevent: run.created\ndata: {\"seq\":1,\"type\":\"run.created\",\"data\":{}}\n\n")
	f.Add(":\n\n:\n\ndata: {}\n\ndata:{\"seq\":2}\r\n\r\n")
	f.Add("data: {\"seq\":1}\ndata: {\"seq\":2}\n\n")
	f.Add("data: {\"seq\":1e99}\n\n")
	f.Add("data: \x00\xff\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines := bufio.NewScanner(strings.NewReader(text))
		n := 0
		for {
			_, err := next(lines)
			if err != nil {
				break
			}
			if n++; n > strings.Count(text, "data:") {
				t.Fatalf("%d entries from %q", n, text)
			}
		}
	})
}
