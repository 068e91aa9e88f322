package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"agentos/api/auth"
	"agentos/runtime/store"
)

// requestIDHeader names a request in the answer and in the log. It is ours: what
// callers send under the name is not looked at.
const requestIDHeader = "X-Request-Id"

// statusGone is logged for callers that left before their answer.
const statusGone = 499

func requestID(c echo.Context) string { return c.Response().Header().Get(requestIDHeader) }

// observe is the outermost middleware: it names the request, turns panics and
// errors into answers, and logs and counts what was answered.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := s.cfg.Clock.Now()
		s.limitWrite(c)
		h := c.Response().Header()
		h.Set(requestIDHeader, s.cfg.IDs.Token())
		h.Set(echo.HeaderXContentTypeOptions, "nosniff")
		h.Set(echo.HeaderCacheControl, "no-store")
		err := recovered(next, c)
		if err != nil {
			c.Error(err)
		}
		s.account(c, err, s.cfg.Clock.Now().Sub(began))
		return nil
	}
}

// recovered calls next and makes an error of a panic, with the stack for the log.
func recovered(next echo.HandlerFunc, c echo.Context) (err error) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case http.ErrAbortHandler:
			panic(r) // net/http's own way to drop a connection
		default:
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return next(c)
}

func (s *Server) account(c echo.Context, err error, took time.Duration) {
	r := c.Request()
	code := c.Response().Status
	if !c.Response().Committed {
		code = statusGone
	}
	route := c.Path()
	if route == "" {
		route = "unmatched"
	}
	s.metrics.requests.WithLabelValues(r.Method, route, strconv.Itoa(code)).Inc()
	s.metrics.seconds.WithLabelValues(route).Observe(took.Seconds())

	attrs := []slog.Attr{
		slog.String("request_id", requestID(c)), slog.String("method", r.Method), slog.String("route", route),
		slog.Int("status", code), slog.Duration("took", took),
	}
	if id := runOf(c); id != "" {
		attrs = append(attrs, slog.String("run_id", id))
	}
	if who := auth.From(r.Context()); who.Name != "" {
		attrs = append(attrs, slog.String("by", who.Name))
		if who.KeyID != "" {
			attrs = append(attrs, slog.String("key_id", who.KeyID))
		}
	}
	if code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusTooManyRequests {
		attrs = append(attrs, slog.String("from", from(r)))
	}
	level := slog.LevelInfo
	switch {
	case code >= http.StatusInternalServerError:
		level = slog.LevelError
	case route == "/health", route == "/ready", route == "/metrics":
		level = slog.LevelDebug
	}
	if err != nil && !errors.As(err, &gone{}) {
		attrs = append(attrs, slog.Any("error", err))
	}
	s.cfg.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// runKey is where handle leaves the run a reply is about.
const runKey = "run"

// runOf is the run a request is about, "" when it is about none.
func runOf(c echo.Context) string {
	if id, ok := c.Get(runKey).(string); ok && id != "" {
		return id
	}
	if id := c.Param("run"); id != "" {
		return clip(id)
	}
	return clip(store.RunOfHold(c.Param("hold")))
}

// metrics are the server's own numbers.
type metrics struct {
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	runs      *prometheus.CounterVec
	decisions *prometheus.CounterVec
	streams   prometheus.Gauge
}

func newMetrics(reg *prometheus.Registry) (metrics, error) {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentos_http_requests_total", Help: "Answered requests; status 499 is a caller that left.",
		}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "agentos_http_request_duration_seconds", Help: "Time to answer, waits included.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"route"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentos_run_requests_total", Help: "Accepted requests for a run, repeats of an idempotency key included.",
		}, []string{"agent", "capability"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentos_decisions_total", Help: "Item decisions that were accepted, repeats included.",
		}, []string{"action"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "agentos_event_streams", Help: "Event streams that are open.",
		}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.requests, m.seconds, m.runs, m.decisions, m.streams,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			errs = append(errs, fmt.Errorf("register metrics: %w", err))
		}
	}
	return m, errors.Join(errs...)
}

func (s *Server) showMetrics() echo.HandlerFunc {
	show := promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{})
	return func(c echo.Context) error {
		if err := s.newInput(c).finish(); err != nil {
			return err
		}
		show.ServeHTTP(c.Response(), c.Request())
		return nil
	}
}
