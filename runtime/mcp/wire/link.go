package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"agentos/internal/clock"
	"agentos/internal/rawjson"
)

// Link is a connection to one server. Requests may run concurrently.
type Link interface {
	// Request sends a request and waits for its answer. A JSON-RPC error is an
	// answer: it is in Reply.Err. The error is always a *RequestError, which says
	// whether the server can have seen the request. When ctx ends first the
	// server is told with notifications/cancelled.
	Request(ctx context.Context, method string, params json.RawMessage) (Reply, error)
	// Notify sends a notification. The error is a *RequestError.
	Notify(ctx context.Context, method string, params json.RawMessage) error
	// Agreed tells the link the protocol revision once it is negotiated.
	Agreed(version string)
	// Lost is closed when the link can carry no further request; Cause then
	// tells why.
	Lost() <-chan struct{}
	Cause() error
	// Close ends the link and waits until nothing of it is left, at most until
	// ctx ends, when what remains is killed.
	Close(ctx context.Context)
}

// Reply is the answer to a request.
type Reply struct {
	Result json.RawMessage
	Err    *RPCError
}

// Reach says how far a failed request came.
type Reach int

const (
	// NotSent means that no byte of the request left this process for the server.
	NotSent Reach = iota
	// Refused means that the server answered that it did not execute the request.
	Refused
	// MaybeSent means that the server may have executed the request.
	MaybeSent
	// Answered means that the server answered, but its answer cannot be used.
	Answered
)

// RequestError is a request that got no usable answer.
type RequestError struct {
	Reach Reach
	// SessionGone says that connecting again can help (MCP "Session
	// Management", HTTP 404).
	SessionGone bool
	// RetryAfter is how long the server asks to wait; 0 when it does not.
	RetryAfter time.Duration
	Err        error
}

// Error returns the cause.
func (f *RequestError) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f *RequestError) Unwrap() error { return f.Err }

func fault(reach Reach, err error) *RequestError {
	if f, ok := errors.AsType[*RequestError](err); ok {
		return f
	}
	return &RequestError{Reach: reach, Err: err}
}

func faultf(reach Reach, format string, args ...any) *RequestError {
	return &RequestError{Reach: reach, Err: fmt.Errorf(format, args...)}
}

// Handler receives what a server sends on its own. Both functions are called on
// reading goroutines and must not block.
type Handler struct {
	Notification func(method string)
	// Request answers a request of the server.
	Request func(method string) (json.RawMessage, *RPCError)
}

// Common is what every link is given.
type Common struct {
	Handler Handler
	Clock   clock.Clock
	// Log must redact secrets itself.
	Log *slog.Logger
}

// answer runs the handler for a server's request and encodes the reply.
func (c Common) answer(m message) []byte {
	result, fault := c.Handler.Request(m.method)
	return encodeReply(m.id, result, fault)
}

// Refuse is the answer to requests nobody offers: method not found.
func Refuse(method string) *RPCError {
	return &RPCError{Code: codeMethodNotFound, Message: fmt.Sprintf("this client does not offer %q", Short(method, 100))}
}

func cancelParams(id int64, reason string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"requestId":%d,"reason":%s}`, id, rawjson.Quote(reason)))
}

// replyTimeout bounds the writing of what this side sends unasked: answers to a
// server's requests and the notification that tells it to stop.
const replyTimeout = 5 * time.Second

// maxReplies bounds the answers to a server's own requests that wait to be
// written. A server that asks more than it reads loses the connection.
const maxReplies = 256

// maxNoise is how many lines that are no message are logged for one link.
const maxNoise = 20
