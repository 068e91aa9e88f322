package floor

import (
	"encoding/json"
	"fmt"
	"net/http"

	"agentos/bench/scenario"
)

// The bodies of a run over HTTP. Every system but agentos itself is asked this way.
type (
	// request is POST /runs with a message, or POST /decide with an id.
	request struct {
		ID      string `json:"id"`
		Message string `json:"message"`
	}
	answer struct {
		ID     string `json:"id,omitempty"`
		Status string `json:"status"`
	}
)

// Handler puts net/http in front of the program, for runs of one capability:
//
//	POST /runs    {"message"}  ->  {"id", "status": "held" or "completed"}
//	POST /decide  {"id"}       ->  {"status": "completed"}
//
// The message is the scenario's; another one is refused.
func (p *Program) Handler(capability string) http.Handler {
	mux := http.NewServeMux()
	message := scenario.User()
	mux.HandleFunc("POST /runs", handle(func(r *http.Request, in request) (out answer, err error) {
		if in.Message != message {
			return out, fmt.Errorf("not the message of the scenario: %.40q", in.Message)
		}
		out.ID, out.Status, err = p.Start(r.Context(), capability)
		return out, err
	}))
	mux.HandleFunc("POST /decide", handle(func(r *http.Request, in request) (out answer, err error) {
		out.Status, err = p.Decide(r.Context(), in.ID)
		return out, err
	}))
	return mux
}

func handle(do func(*http.Request, request) (answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		out, err := do(r, in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the caller has left
	}
}
