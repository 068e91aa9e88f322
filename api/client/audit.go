package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"agentos/api"
)

// Audit writes the audit chain of an environment to w, a line for each entry after
// entry after, byte for byte. It fails when the server did not send all that it had
// when the answer began; what came is written then.
func (c *Client) Audit(ctx context.Context, env string, after int64, w io.Writer) error {
	r := request{method: http.MethodGet, path: path(env, "audit")}
	if after > 0 {
		r.query = url.Values{"after": {strconv.FormatInt(after, 10)}}
	}
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // read only
	end, err := strconv.ParseInt(res.Header.Get(api.AuditEntries), 10, 64)
	if err != nil {
		return fmt.Errorf("the answer has no header %s: this is no agentos server, or something between changed it", api.AuditEntries)
	}
	lines, err := copyLines(w, res.Body)
	if got := after + lines; err == nil && got < end {
		err = fmt.Errorf("the export broke off after entry %d of %d; try again", got, end)
	}
	return err
}

// copyLines copies text and counts its lines.
func copyLines(w io.Writer, from io.Reader) (lines int64, err error) {
	r := bufio.NewReader(from)
	for {
		part, err := r.ReadSlice('\n')
		if _, err := w.Write(part); err != nil {
			return lines, err
		}
		switch {
		case err == nil:
			lines++
		case errors.Is(err, io.EOF):
			return lines, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return lines, fmt.Errorf("read the audit: %w", err)
		}
	}
}
