package wire

import (
	"errors"
	"io"
	"net/http"
	"net/url"
)

// bodyText returns the start of a body for a message to a person.
func bodyText(resp *http.Response) string {
	b, err := io.ReadAll(io.LimitReader(resp.Body, shortBody))
	text := Short(string(b), shownBody)
	switch {
	case text != "":
		return text
	case err != nil:
		return "(the body cannot be read)"
	}
	return "(no body)"
}

// closeBody reads a rest that is known to be short, so that the connection can
// be used again, and closes the body.
func closeBody(resp *http.Response) {
	if resp.ContentLength >= 0 && resp.ContentLength <= shortBody {
		_, _ = io.Copy(io.Discard, resp.Body) //nolint:errcheck // only to use the connection again
	}
	_ = resp.Body.Close() //nolint:errcheck // nothing is left to read
}

// withoutURL takes off what http.Client puts before an error: the URL may hold
// what the operator does not want to see in a log.
func withoutURL(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}
