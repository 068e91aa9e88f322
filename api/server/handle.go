package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"agentos/api"
	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

// reply is what a handler answers.
type reply struct {
	// status is 200 when zero.
	status int
	// location is the Location header, or "".
	location string
	// run is the id of the run that the reply is about, for the log.
	run  string
	body any
}

// handle makes an echo handler of a reader, which takes a request apart, and a
// function from request to reply. Limits, decoding, errors and encoding happen
// here, once.
func handle[R any](s *Server, read func(*input) R, do func(context.Context, R) (reply, error)) echo.HandlerFunc {
	return func(c echo.Context) error {
		in := s.newInput(c)
		r := read(in)
		if err := in.finish(); err != nil {
			return err
		}
		out, err := do(c.Request().Context(), r)
		if err != nil {
			return err
		}
		c.Set(runKey, out.run)
		if out.location != "" {
			c.Response().Header().Set(echo.HeaderLocation, out.location)
		}
		if out.status == 0 {
			out.status = http.StatusOK
		}
		return s.encode(c, out.status, out.body)
	}
}

// encode writes body as JSON. Raw values keep their bytes.
func (s *Server) encode(c echo.Context, status int, body any) error {
	raw, err := rawjson.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	h.Set(echo.HeaderContentLength, strconv.Itoa(len(raw)))
	s.limitWrite(c)
	c.Response().WriteHeader(status)
	if _, err := c.Response().Write(raw); err != nil {
		return gone{err}
	}
	return nil
}

// limitWrite gives the next writes their deadline, so that a caller who does not
// read cannot keep the connection. A deadline outlives its request on a
// connection that is kept, so each request begins with a new one.
func (s *Server) limitWrite(c echo.Context) {
	deadline := s.cfg.Clock.Now().Add(answerTimeout)
	// A writer without deadlines is one of a test; there is nothing to protect.
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(deadline) //nolint:errcheck // see above
}

// gone is a failure to answer a caller that has left. Nobody can be told.
type gone struct{ cause error }

func (g gone) Error() string { return "the caller has gone: " + g.cause.Error() }
func (g gone) Unwrap() error { return g.cause }

// holdError is an error about a hold, with the hold as it stands.
type holdError struct {
	cause error
	hold  api.Hold
}

func (e *holdError) Error() string { return e.cause.Error() }
func (e *holdError) Unwrap() error { return e.cause }

// fail is echo's error handler: it answers with err.
func (s *Server) fail(err error, c echo.Context) {
	if c.Response().Committed || errors.As(err, &gone{}) {
		return
	}
	p := s.public(err, c)
	body := api.ErrorBody{Error: api.Error{Code: p.Code, Message: p.Message, Details: p.Details}, RequestID: requestID(c)}
	if he := (*holdError)(nil); errors.As(err, &he) {
		body.Hold = &he.hold
	}
	s.explain(c, p)
	if err := s.encode(c, status(p.Code), body); err != nil {
		s.cfg.Log.DebugContext(c.Request().Context(), "could not answer", slog.Any("error", err))
	}
}

// explain sets the headers that go with an error.
func (*Server) explain(c echo.Context, p *problem.Error) {
	h := c.Response().Header()
	if p.RetryAfter > 0 {
		h.Set(echo.HeaderRetryAfter, strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	if p.Code == problem.Unauthorized {
		h.Set(echo.HeaderWWWAuthenticate, "Bearer")
	}
}

// public is the half of err that callers see. Unknown errors become internal; only
// the log has their cause.
func (s *Server) public(err error, c echo.Context) *problem.Error {
	if he := (*echo.HTTPError)(nil); errors.As(err, &he) {
		switch he.Code {
		case http.StatusNotFound:
			return problem.New(problem.RouteNotFound, "there is nothing at this path; /openapi.json lists what there is")
		case http.StatusMethodNotAllowed:
			return problem.New(problem.MethodNotAllowed, "%s is not allowed here; the Allow header lists what is", c.Request().Method)
		}
	}
	return problem.From(err)
}
