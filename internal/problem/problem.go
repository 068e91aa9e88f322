// Package problem owns the one error type that crosses package borders: a
// stable code for programs, a message that tells a person what to change, and a
// private cause that only logs may show. It refuses to know about HTTP; the
// table from code to status lives in api/server.
package problem

import (
	"errors"
	"fmt"
	"time"
)

// Code is a stable snake_case name of a kind of failure. It is part of the API:
// renaming one is a breaking change.
type Code string

// Detail points at one faulty place of an input.
type Detail struct {
	// Path is a JSON pointer (RFC 6901) or a manifest path such as
	// "mcp_servers.orders.command".
	Path string `json:"path"`
	// Message says what is wrong there and what to write instead.
	Message string `json:"message"`
}

// Error is a failure with a stable code. The zero value is not useful.
type Error struct {
	// Code is the stable name of the failure.
	Code Code
	// Message is shown to users; it must hold no secret and no internals.
	Message string
	// Details are the single faults, when there are several.
	Details []Detail
	// RetryAfter is how long to wait before the same request can succeed; zero
	// when waiting does not help or the time is unknown.
	RetryAfter time.Duration

	cause error
}

// New returns an error with the code and the message made from format and args.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap is New with a private cause: the cause is reachable with errors.Is and
// errors.As and appears in Error(), never in Message.
func Wrap(cause error, code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), cause: cause}
}

// With returns a copy of e that carries the details.
func (e *Error) With(details ...Detail) *Error {
	c := *e
	c.Details = details
	return &c
}

// Error returns code, message and cause, for logs.
func (e *Error) Error() string {
	if e.cause != nil {
		return string(e.Code) + ": " + e.Message + ": " + e.cause.Error()
	}
	return string(e.Code) + ": " + e.Message
}

// Unwrap returns the private cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is an *Error with the same code, so that sentinels
// compare by code and not by identity.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// CodeOf returns the code of the first *Error in err's chain, Internal for any
// other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Internal
}

// From returns the first *Error in err's chain, or an Internal one that hides
// err behind a general message. It returns nil for nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return Wrap(err, Internal, "internal error; the server's log says more")
}
