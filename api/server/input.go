package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"agentos/api/auth"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
	"agentos/internal/strictyaml"
	"agentos/runtime/store"
)

// Bounds of ?wait_timeout=.
const (
	defaultWait = 60 * time.Second
	minWait     = time.Millisecond
	maxWait     = 10 * time.Minute
)

// defaultPage is the length of a page of a list unless asked for.
const defaultPage = 50

// maxKey is the longest Idempotency-Key.
const maxKey = 255

// input takes a request apart. Its readers collect what is wrong, so that a caller
// learns all of it at once, and remember which parameters they know: finish refuses
// the others.
type input struct {
	s      *Server
	c      echo.Context
	query  url.Values
	known  []string
	faults []problem.Detail
	// err is a fault that is not about a parameter.
	err error
}

// nothing is the request of routes that take none.
type nothing struct{}

func noInput(in *input) nothing {
	in.env()
	return nothing{}
}

func (s *Server) newInput(c echo.Context) *input {
	in := &input{s: s, c: c}
	query, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		in.fault("?", "the query is malformed: %v", err)
	}
	in.query = query
	return in
}

func (in *input) fault(path, format string, args ...any) {
	in.faults = append(in.faults, problem.Detail{Path: path, Message: fmt.Sprintf(format, args...)})
}

// finish returns what is wrong with the request: parameters first, unknown ones
// included.
func (in *input) finish() error {
	for _, name := range slices.Sorted(maps.Keys(in.query)) {
		if slices.Contains(in.known, name) {
			continue
		}
		advice := "this route takes none"
		if near := strictyaml.Nearest(name, in.known); near != "" {
			advice = "did you mean " + strconv.Quote(near) + "?"
		} else if len(in.known) > 0 {
			advice = "this route takes " + strings.Join(in.known, ", ")
		}
		in.fault("?"+name, "unknown parameter; %s", advice)
	}
	if len(in.faults) == 0 {
		return in.err
	}
	first := in.faults[0]
	return problem.New(problem.InvalidRequest, "%s: %s", first.Path, first.Message).With(in.faults...)
}

// env returns the environment of the path and checks that it is the one served.
func (in *input) env() string {
	env := in.param("env")
	if env != "" && env != in.s.cfg.Env && in.err == nil {
		in.err = problem.New(problem.EnvNotFound, "no environment %q; this server has %q", clip(env), in.s.cfg.Env)
	}
	return env
}

// run returns the run of the path. Ids of another form are not looked up.
func (in *input) run() string {
	id := in.param("run")
	if !strings.HasPrefix(id, "r_") && in.err == nil {
		in.err = noRun(store.ErrNotFound, id)
	}
	return id
}

// param returns a segment of the path. Echo leaves segments of a path with escaped
// slashes as they were sent.
func (in *input) param(name string) string {
	value := in.c.Param(name)
	if in.c.Request().URL.RawPath == "" {
		return value
	}
	if plain, err := url.PathUnescape(value); err == nil {
		return plain
	}
	return value
}

// text returns a query parameter, "" when absent. Given twice or empty it is a
// fault: which one counts would be a guess.
func (in *input) text(name string) string {
	in.known = append(in.known, name)
	values, given := in.query[name]
	switch {
	case !given:
		return ""
	case len(values) > 1:
		in.fault("?"+name, "is given %d times", len(values))
		return ""
	case values[0] == "":
		in.fault("?"+name, "is empty; leave it out or give it a value")
	}
	return values[0]
}

// oneOf returns a query parameter that has one of the choices as value.
func (in *input) oneOf(name string, choices ...string) string {
	value := in.text(name)
	if value != "" && !slices.Contains(choices, value) {
		in.fault("?"+name, "is %q; choose one of %s", clip(value), strings.Join(choices, ", "))
	}
	return value
}

// duration returns a query parameter such as 90s within bounds, otherwise when
// absent.
func (in *input) duration(name string, low, high, otherwise time.Duration) time.Duration {
	value := in.text(name)
	if value == "" {
		return otherwise
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < low || d > high {
		in.fault("?"+name, "is %q; write a duration such as 30s or 5m, from %s to %s", clip(value), low, high)
		return otherwise
	}
	return d
}

// integer returns a query parameter that is a whole number within bounds.
func (in *input) integer(name string, low, high, otherwise int64) int64 {
	value := in.text(name)
	if value == "" {
		return otherwise
	}
	n, ok := digits(value)
	if !ok || n < low || n > high {
		in.fault("?"+name, "is %q; write a whole number from %d to %d", clip(value), low, high)
		return otherwise
	}
	return n
}

// digits reads a number that has nothing but digits: no sign, no space.
func digits(text string) (int64, bool) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// wait returns how long the caller wants to wait; 0 means not at all.
func (in *input) wait() time.Duration {
	wanted := in.oneOf("wait", "true", "false") == "true"
	d := in.duration("wait_timeout", minWait, maxWait, defaultWait)
	if wanted {
		return d
	}
	if in.query.Has("wait_timeout") {
		in.fault("?wait_timeout", "needs wait=true")
	}
	return 0
}

// page returns the part of a list that is asked for.
func (in *input) page() store.Page {
	return store.Page{Limit: int(in.integer("limit", 1, 200, defaultPage)), Cursor: in.text("cursor")}
}

// key returns the Idempotency-Key, "" when absent.
func (in *input) key() string {
	values := in.c.Request().Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return ""
	}
	key := values[0]
	visible := strings.IndexFunc(key, func(r rune) bool { return r < '!' || r > '~' }) < 0
	if len(values) > 1 || key == "" || len(key) > maxKey || !visible {
		in.fault("Idempotency-Key", "must be one header of 1 to %d visible ASCII characters", maxKey)
	}
	return key
}

// body reads the body, checks it against the schema of the document and decodes
// it into v. Without a schema it only reads JSON into v, a *json.RawMessage.
func (in *input) body(schema string, v any) {
	if len(in.faults) > 0 || in.err != nil {
		return
	}
	raw, err := in.readBody()
	if err != nil {
		in.err = err
		return
	}
	if err := rawjson.Check(raw); err != nil {
		in.err = problem.New(problem.InvalidJSON, "the body is not the JSON this API reads: %v", err)
		return
	}
	if whole, ok := v.(*json.RawMessage); ok {
		*whole = raw
		return
	}
	if faults := in.s.spec.schemas[schema].Validate(raw); len(faults) > 0 {
		in.err = problem.New(problem.InvalidBody, "the body does not fit: %s %s", where(faults[0].Path), faults[0].Message).With(faults...)
		return
	}
	if err := rawjson.Decode(raw, v); err != nil {
		in.err = problem.New(problem.InvalidBody, "the body does not fit: %v", err)
	}
}

func where(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// readBody reads the whole body within its limits of size and time.
func (in *input) readBody() ([]byte, error) {
	r := in.c.Request()
	kind, params, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
	charset := strings.ToLower(params["charset"])
	if err != nil || kind != echo.MIMEApplicationJSON || (charset != "" && charset != "utf-8") || r.Header.Get(echo.HeaderContentEncoding) != "" {
		return nil, problem.New(problem.UnsupportedMedia, "send the body as Content-Type: application/json, in UTF-8 and not compressed")
	}
	control := http.NewResponseController(in.c.Response())
	if err := control.SetReadDeadline(in.s.cfg.Clock.Now().Add(bodyTimeout)); err == nil {
		defer control.SetReadDeadline(time.Time{}) //nolint:errcheck // it worked a moment ago
	}
	raw, err := io.ReadAll(http.MaxBytesReader(in.c.Response().Writer, r.Body, in.s.cfg.MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, problem.New(problem.BodyTooLarge, "the body is longer than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, problem.Wrap(err, problem.InvalidRequest, "the body could not be read to its end")
	}
	return raw, nil
}

// noBody refuses a body on routes that take none.
func (in *input) noBody() {
	if in.c.Request().ContentLength != 0 {
		in.fault("body", "this route takes no body")
	}
}

// principal is the name of who makes the request.
func (in *input) principal() string { return auth.From(in.c.Request().Context()).Name }

// words are the roles and groups of who makes the request, as policy compares them.
func (in *input) words() []string { return auth.From(in.c.Request().Context()).Words() }

// from is the address the request came from, for the record. What a proxy says in
// a header is not believed.
func from(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return host
}

// clip shortens a caller's own words before they are repeated to them.
func clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
