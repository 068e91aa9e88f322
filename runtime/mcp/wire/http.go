package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Header names of the transport.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
)

// Times and sizes of the HTTP transport.
const (
	shortBody = 64 << 10 // read of an error's body
	shownBody = 300      // shown of it
	// resumeTries bounds how often in a row a broken event stream is asked for
	// again without getting an event.
	resumeTries   = 3
	defaultRetry  = time.Second
	maxRetry      = 30 * time.Second
	deleteTimeout = 2 * time.Second
)

// HTTPConfig describes a server behind one URL.
type HTTPConfig struct {
	Common
	URL string
	// Header is sent with every request; those of the protocol win.
	Header http.Header
	// Client must be guarded and follow no redirect to another origin.
	Client *http.Client
}

// HTTP is a Link over streamable HTTP (MCP revision 2025-11-25, "Streamable
// HTTP"): every message is a POST, answered with JSON or an event stream.
type HTTP struct {
	cfg     HTTPConfig
	open    table
	session atomic.Pointer[string]
	version atomic.Pointer[string]

	life     context.Context //nolint:containedctx // ends with the link; requests of this side's own hang off it
	end      context.CancelFunc
	lost     chan struct{}
	lostOnce sync.Once
	cause    error // set before lost is closed
	listen   sync.Once
	replies  chan []byte
	wg       sync.WaitGroup
}

// NewHTTP returns a link; nothing is sent yet. The end of ctx does not end it;
// Close does.
func NewHTTP(ctx context.Context, cfg HTTPConfig) *HTTP {
	l := &HTTP{cfg: cfg, lost: make(chan struct{}), replies: make(chan []byte, maxReplies)}
	l.life, l.end = context.WithCancel(context.WithoutCancel(ctx))
	l.wg.Go(l.postReplies)
	return l
}

// Agreed implements Link: later requests carry the revision.
func (l *HTTP) Agreed(version string) { l.version.Store(&version) }

// Lost implements Link.
func (l *HTTP) Lost() <-chan struct{} { return l.lost }

// Cause implements Link.
func (l *HTTP) Cause() error {
	select {
	case <-l.lost:
		return l.cause
	default:
		return nil
	}
}

// Request implements Link.
func (l *HTTP) Request(ctx context.Context, method string, params json.RawMessage) (Reply, error) {
	id, ch, err := l.open.add()
	if err != nil {
		return Reply{}, err
	}
	defer l.open.remove(id)
	reply, err := l.exchange(ctx, id, encodeRequest(id, method, params), ch)
	if err == nil {
		return reply, nil
	}
	var f *RequestError
	if errors.As(err, &f) && f.Reach == MaybeSent && ctx.Err() != nil && method != "initialize" {
		// Closing the stream is not a cancellation ("Sending Messages to the
		// Server", item 6), so it is said.
		l.reply(encodeNotification("notifications/cancelled", cancelParams(id, context.Cause(ctx).Error())))
	}
	return Reply{}, err
}

// exchange posts a request and reads what answers it.
func (l *HTTP) exchange(ctx context.Context, id int64, body []byte, ch <-chan outcome) (Reply, error) {
	resp, err := l.post(ctx, body)
	if err != nil {
		return Reply{}, err
	}
	defer closeBody(resp)
	if err := l.refusal(resp); err != nil {
		return Reply{}, err
	}
	l.keepSession(resp)
	media, _, mediaErr := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode == http.StatusAccepted:
		// Some servers accept a request here and answer on the listening stream.
		l.Listen()
		return l.wait(ctx, ch)
	case mediaErr == nil && media == "application/json":
		return l.readJSON(ctx, resp, id)
	case mediaErr == nil && media == "text/event-stream":
		return l.readStream(ctx, resp, id)
	}
	return Reply{}, faultf(MaybeSent, "HTTP %d with content type %q instead of JSON or an event stream: %s",
		resp.StatusCode, Short(resp.Header.Get("Content-Type"), 100), bodyText(resp))
}

func (l *HTTP) wait(ctx context.Context, ch <-chan outcome) (Reply, error) {
	select {
	case o := <-ch:
		return o.reply, o.err
	case <-ctx.Done():
		return Reply{}, fault(MaybeSent, context.Cause(ctx))
	case <-l.life.Done():
		return Reply{}, fault(MaybeSent, errClosed)
	}
}

// post sends one message. The fault says whether a connection was ever there to
// carry it.
func (l *HTTP) post(ctx context.Context, body []byte) (*http.Response, error) {
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, l.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fault(NotSent, errors.New("the URL cannot be read"))
	}
	l.setHeaders(req, "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.cfg.Client.Do(req)
	if err == nil {
		return resp, nil
	}
	if resp != nil {
		closeBody(resp) // a redirect that was not followed
	}
	err = withoutURL(err)
	switch {
	case ctx.Err() != nil && connected:
		return nil, fault(MaybeSent, context.Cause(ctx))
	case ctx.Err() != nil:
		return nil, fault(NotSent, context.Cause(ctx))
	case resp != nil:
		return nil, fault(Refused, err)
	case connected:
		return nil, faultf(MaybeSent, "the connection broke: %w", err)
	}
	f := faultf(NotSent, "not reachable: %w", err)
	l.lose(f.Err)
	return nil, f
}

func (l *HTTP) setHeaders(req *http.Request, accept string) {
	maps.Copy(req.Header, l.cfg.Header)
	req.Header.Set("Accept", accept)
	if s := l.session.Load(); s != nil {
		req.Header.Set(headerSession, *s)
	}
	if v := l.version.Load(); v != nil {
		req.Header.Set(headerVersion, *v)
	}
}

// keepSession takes over the session id of an answer to initialize. Ids with
// other characters than the protocol allows would break the header.
func (l *HTTP) keepSession(resp *http.Response) {
	id := resp.Header.Get(headerSession)
	if id == "" || l.session.Load() != nil {
		return
	}
	for i := range len(id) {
		if id[i] < 0x21 || id[i] > 0x7e {
			return
		}
	}
	l.session.Store(&id)
}

// refusal returns the fault of a status that is no success.
func (l *HTTP) refusal(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	text := bodyText(resp)
	f := &RequestError{Reach: Refused, Err: fmt.Errorf("HTTP %d: %s", resp.StatusCode, text), RetryAfter: retryAfter(resp, l.cfg.Clock.Now())}
	hasSession := l.session.Load() != nil
	switch {
	case hasSession && resp.StatusCode == http.StatusNotFound,
		// Servers made after a well-known example answer 400 to a session they
		// do not know.
		hasSession && resp.StatusCode == http.StatusBadRequest && strings.Contains(strings.ToLower(text), "session"):
		f.SessionGone = true
		l.lose(fmt.Errorf("the server ended the session: %w", f.Err))
	case resp.StatusCode == http.StatusUnauthorized:
		f.Err = fmt.Errorf("HTTP 401, the server wants other credentials (WWW-Authenticate: %s): %s",
			Short(resp.Header.Get("WWW-Authenticate"), 200), text)
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented, resp.StatusCode == http.StatusRequestTimeout:
		// A gateway may say so after it has passed the request on.
		f.Reach = MaybeSent
	}
	return f
}

func retryAfter(resp *http.Response, now time.Time) time.Duration {
	v := resp.Header.Get("Retry-After")
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil && t.After(now) {
		return t.Sub(now)
	}
	return 0
}

// Notify implements Link.
func (l *HTTP) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return l.send(ctx, encodeNotification(method, params))
}

// send posts a message that has no answer. Any success is fine, whatever its
// body.
func (l *HTTP) send(ctx context.Context, msg []byte) error {
	resp, err := l.post(ctx, msg)
	if err != nil {
		return err
	}
	defer closeBody(resp)
	return l.refusal(resp)
}

func (l *HTTP) reply(msg []byte) {
	select {
	case l.replies <- msg:
	default:
		l.cfg.Log.Warn("mcp_reply_dropped", slog.String("reason", "the server asks more than it takes answers of"))
	}
}

func (l *HTTP) postReplies() {
	for {
		select {
		case msg := <-l.replies:
			ctx, cancel := context.WithTimeout(l.life, replyTimeout)
			if err := l.send(ctx, msg); err != nil {
				l.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "mcp_reply_not_sent", slog.String("error", err.Error()))
			}
			cancel()
		case <-l.life.Done():
			return
		}
	}
}

// lose makes the link unusable for new requests. Open ones go on: they have
// connections of their own.
func (l *HTTP) lose(cause error) {
	l.lostOnce.Do(func() {
		l.cause = cause
		close(l.lost)
	})
}

// Close implements Link: it stops listening and ends the session at the server,
// which may not know how ("Session Management", item 5). Requests that are
// still open go on until their own contexts end.
func (l *HTTP) Close(ctx context.Context) {
	gone := l.Cause() != nil
	l.lose(errClosed)
	l.end()
	l.wg.Wait()
	if l.session.Load() == nil || gone || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, l.cfg.URL, nil)
	if err != nil {
		return
	}
	l.setHeaders(req, "application/json")
	resp, err := l.cfg.Client.Do(req)
	if err != nil {
		l.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "mcp_session_not_ended", slog.String("error", withoutURL(err).Error()))
		return
	}
	closeBody(resp)
}
