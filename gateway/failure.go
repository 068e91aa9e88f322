package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"agentos/internal/problem"
	"agentos/internal/rawjson"
)

const (
	// maxShown is the length in bytes of a provider's words in an error.
	maxShown = 500
	// maxKept bounds what is carried until it is redacted and shortened.
	maxKept = 64 << 10
)

// StatusError is the failure that an HTTP status other than 2xx stands for, with
// the provider's own message taken from body. The statuses 408, 409, 425, 429 and
// 5xx are model_unavailable and carry retryAfter; others are model_error.
func StatusError(status int, body []byte, retryAfter time.Duration) *problem.Error {
	message := "HTTP " + strconv.Itoa(status)
	if text := http.StatusText(status); text != "" {
		message += " " + text
	}
	if text := messageOf(body); text != "" {
		message += ": " + text
	}
	if !passing(status) {
		return problem.New(problem.ModelError, "%s", message)
	}
	p := problem.New(problem.ModelUnavailable, "%s", message)
	p.RetryAfter = retryAfter
	return p
}

// ConnectionError is the failure of a call that never got a whole answer. what
// must not hold the URL, which may carry a key.
func ConnectionError(what string) *problem.Error {
	return problem.New(problem.ModelUnavailable, "%s", what)
}

// passing reports whether a status is worth another attempt.
func passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// embeddedError is the failure that an error member inside a 200 stands for.
// Routers put the status they got from the real provider into code.
func embeddedError(raw json.RawMessage) *problem.Error {
	code := problem.ModelError
	if embeddedPassing(raw) {
		code = problem.ModelUnavailable
	}
	text := messageOf(rawjson.Object([]rawjson.Field{{Name: "error", Value: raw}}))
	return problem.New(code, "the provider answered with an error: %s", text)
}

// embeddedPassing looks at the members that providers use for the kind of an
// error: a number like an HTTP status, or a word.
func embeddedPassing(raw json.RawMessage) bool {
	for _, name := range []string{"code", "status", "type"} {
		v := rawjson.Get(raw, name)
		word, ok := rawjson.Text(v)
		if !ok {
			word = string(v)
		}
		if status, err := strconv.Atoi(word); err == nil {
			return passing(status)
		}
		switch strings.ToLower(word) {
		case "rate_limit_exceeded", "rate_limit_error", "resource_exhausted", "overloaded", "overloaded_error",
			"server_error", "internal_server_error", "api_error", "timeout", "unavailable", "service_unavailable":
			return true
		}
	}
	return false
}

// messageOf finds the words meant for people in an error body.
func messageOf(body []byte) string {
	if text, ok := rawjson.Text(body); ok {
		return text
	}
	inner := rawjson.Get(body, "error")
	candidates := []json.RawMessage{
		rawjson.Get(inner, "message"), inner, rawjson.Get(body, "message"), rawjson.Get(body, "detail"),
	}
	for _, c := range candidates {
		if text, ok := rawjson.Text(c); ok && text != "" {
			return text
		}
	}
	return string(body[:min(len(body), maxKept)])
}

// shorten makes text one line of at most maxShown bytes without control
// characters.
func shorten(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxShown {
		return text
	}
	cut := maxShown
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
