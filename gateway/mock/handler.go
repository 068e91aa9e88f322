package mock

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"agentos/gateway"
)

// Handler serves p as an OpenAI-compatible API: POST /v1/chat/completions for any
// model name and GET /v1/models. It asks for no key: whoever serves it decides who
// can reach it.
func Handler(p *Provider) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.serveCompletion)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, json.RawMessage(
			`{"object":"list","data":[{"id":"mock","object":"model","created":0,"owned_by":"agentos"}]}`))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusNotFound, refuse(http.StatusNotFound,
			"the mock model serves POST /v1/chat/completions and GET /v1/models").body())
	})
	return mux
}

func (p *Provider) serveCompletion(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, gateway.MaxBody))
	if err != nil {
		status := http.StatusBadRequest
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			status = http.StatusRequestEntityTooLarge
		}
		reply(w, status, refuse(status, "the request could not be read").body())
		return
	}
	answer, refused, err := p.respond(r.Context(), body)
	switch {
	case err != nil: // the client went away, or the server ends
		reply(w, http.StatusServiceUnavailable, refuse(http.StatusServiceUnavailable, "the request was given up").body())
	case refused != nil:
		reply(w, refused.status, refused.body())
	default:
		reply(w, http.StatusOK, answer)
	}
}

func reply(w http.ResponseWriter, status int, body json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:errcheck // the client went away
}
