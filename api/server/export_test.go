package server

import (
	"encoding/json"

	"github.com/labstack/echo/v4"
)

// Routes are the routes as echo knows them.
func (s *Server) Routes() []*echo.Route { return s.echo.Routes() }

// Document is the OpenAPI document as it is served.
func (s *Server) Document() json.RawMessage { return s.spec.json }

// LoadDocument is the document of a server that is not there.
func LoadDocument() (json.RawMessage, error) {
	d, err := loadDocument()
	return d.json, err
}

// ServesHost reports whether a server with the allowed hosts answers for one.
func ServesHost(allowed []string, host string) bool {
	return (&Server{cfg: Config{AllowedHosts: allowed}}).servesHost(host)
}

// Heartbeat is how often event streams send a comment.
const Heartbeat = heartbeat

// Status is the table from code to status.
var Status = status

// Stop ends waits and streams, as the end of Serve does.
func (s *Server) Stop() { s.stop() }

// Endpoint is a route with what it takes.
type Endpoint struct{ Method, Path, Role string }

// Endpoints are all routes.
func (s *Server) Endpoints() []Endpoint {
	var out []Endpoint
	for _, e := range s.endpoints() {
		out = append(out, Endpoint{Method: e.method, Path: e.path, Role: string(e.role)})
	}
	return out
}
