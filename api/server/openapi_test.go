package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"agentos/api"
	"agentos/api/server"
	"agentos/internal/problem"
)

// checked is a transport that holds every answer to the document and notes which
// error codes each operation gave.
type checked struct {
	t      *testing.T
	next   http.RoundTripper
	router routers.Router
	doc    *openapi3.T

	mu   sync.Mutex
	seen map[string]bool // "operation code"
}

func newChecked(t *testing.T, document json.RawMessage, next http.RoundTripper) *checked {
	t.Helper()
	doc := loadDoc(t, document)
	doc.Servers = nil
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &checked{t: t, next: next, router: router, doc: doc, seen: map[string]bool{}}
}

func loadDoc(t *testing.T, document json.RawMessage) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// RoundTrip implements http.RoundTripper.
func (c *checked) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); kind {
	case "text/event-stream", "application/jsonl":
		return res, nil // a stream has no body to wait for; what is in it is checked by the tests
	}
	raw, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(raw))
	c.check(req, res, raw)
	return res, nil
}

func (c *checked) check(req *http.Request, res *http.Response, raw []byte) {
	code := ""
	if res.StatusCode >= 400 && res.Header.Get("Content-Type") == "application/json" {
		var body api.ErrorBody
		if json.Unmarshal(raw, &body) == nil && body.Error.Code != "" { // /ready answers 503 without an error
			code = string(body.Error.Code)
			if want := server.Status(body.Error.Code); want != res.StatusCode {
				c.t.Errorf("%s %s: %s came with status %d, the table says %d", req.Method, req.URL, code, res.StatusCode, want)
			}
			if body.RequestID == "" || body.RequestID != res.Header.Get("X-Request-Id") {
				c.t.Errorf("%s %s: request id %q in the body, %q in the header", req.Method, req.URL, body.RequestID, res.Header.Get("X-Request-Id"))
			}
		}
	}
	probe := req.Clone(context.Background())
	probe.Host, probe.URL.Host, probe.URL.Scheme = "", "", ""
	route, params, err := c.router.FindRoute(probe)
	if err != nil {
		if !slices.Contains(codesOf(c.t, c.doc.Extensions), code) {
			c.t.Errorf("%s %s is not in the document (%v) and answered %d %s", req.Method, req.URL, err, res.StatusCode, raw)
		}
		return
	}
	if code != "" {
		c.mu.Lock()
		c.seen[route.Operation.OperationID+" "+code] = true
		c.mu.Unlock()
		if !slices.Contains(codesOf(c.t, route.Operation.Extensions), code) && !slices.Contains(codesOf(c.t, c.doc.Extensions), code) {
			c.t.Errorf("%s answered %s, which the document does not tell: %s", route.Operation.OperationID, code, raw)
		}
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: probe, PathParams: params, Route: route},
		Status:                 res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(raw)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		c.t.Errorf("%s %s: the answer does not fit the document: %v\n%s", req.Method, req.URL, err, raw)
	}
}

func codesOf(t *testing.T, extensions map[string]any) []string {
	t.Helper()
	list, _ := extensions["x-errors"].([]any)
	var out []string
	for _, v := range list {
		code, ok := v.(string)
		if !ok {
			t.Fatalf("x-errors holds %v", v)
		}
		out = append(out, code)
	}
	return out
}

func TestDocumentIsValid(t *testing.T) {
	r := newRig(t)
	doc := loadDoc(t, r.server.Document())
	if err := doc.Validate(context.Background()); err != nil {
		t.Error(err)
	}
	a := r.send(call{method: "GET", path: "/openapi.json"})
	if !bytes.Equal(a.body, r.server.Document()) {
		t.Errorf("served document differs from the loaded one")
	}
}

// operations lists "METHOD /path" of the document with its operation.
func operations(doc *openapi3.T) map[string]*openapi3.Operation {
	out := map[string]*openapi3.Operation{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			out[method+" "+path] = op
		}
	}
	return out
}

var pathParameter = regexp.MustCompile(`:([a-z_]+)`)

func TestRoutesAndDocumentAgree(t *testing.T) {
	r := newRig(t)
	documented := operations(loadDoc(t, r.server.Document()))
	routed := map[string]bool{}
	for _, route := range r.server.Routes() {
		if route.Method == "echo_route_not_found" {
			continue // a group's own answer for paths below it that are nothing
		}
		if strings.HasPrefix(route.Path, "/inbox") {
			continue // pages for people are no contract with programs
		}
		key := route.Method + " " + pathParameter.ReplaceAllString(route.Path, "{$1}")
		routed[key] = true
		if documented[key] == nil {
			t.Errorf("%s is served and not documented", key)
		}
	}
	for key := range documented {
		if !routed[key] {
			t.Errorf("%s is documented and not served", key)
		}
	}
}

// problemCodes are the codes that package problem declares.
func problemCodes(t *testing.T) []problem.Code {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../internal/problem/codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []problem.Code
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			code, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, problem.Code(code))
		}
		return true
	})
	return out
}

// internalOnly are codes that no request is answered with: those of failed runs,
// which a run object carries, of commands, and of routes that are not there yet.
var internalOnly = []problem.Code{
	problem.InvalidOutput, problem.TooManyTurns, problem.TokenBudgetExceeded, problem.Timeout, problem.MCPUnavailable,
	problem.EgressDenied, problem.InvalidHistory, problem.RecoveryExhausted,
	problem.InvalidManifest, problem.InvalidSettings, problem.StoreLocked,
}

// Every code is either documented or known never to answer a request; every
// documented one exists, has a status, and its status is among the operation's.
func TestCodesStatusesAndDocumentAgree(t *testing.T) {
	raw, err := server.LoadDocument()
	if err != nil {
		t.Fatal(err)
	}
	doc := loadDoc(t, raw)
	documented := map[string]bool{}
	for _, code := range codesOf(t, doc.Extensions) {
		documented[code] = true
	}
	for key, op := range operations(doc) {
		want := map[string]bool{}
		for _, code := range codesOf(t, op.Extensions) {
			documented[code] = true
			want[strconv.Itoa(server.Status(problem.Code(code)))] = true
		}
		if key == "GET /ready" {
			want["503"] = true // without an error
		}
		for status := range op.Responses.Map() {
			if strings.HasPrefix(status, "4") || strings.HasPrefix(status, "5") {
				if !want[status] {
					t.Errorf("%s documents status %s and no code with it", key, status)
				}
				delete(want, status)
			}
		}
		for status := range want {
			t.Errorf("%s documents a code with status %s and not the status", key, status)
		}
	}
	codes := problemCodes(t)
	for _, code := range codes {
		never := slices.Contains(internalOnly, code)
		if documented[string(code)] == never {
			t.Errorf("code %s: documented %v, never an answer %v", code, documented[string(code)], never)
		}
		if !never && server.Status(code) == http.StatusInternalServerError && code != problem.Internal && code != problem.JournalDamaged {
			t.Errorf("code %s has no status of its own", code)
		}
	}
	for code := range documented {
		if !slices.Contains(codes, problem.Code(code)) {
			t.Errorf("the document has the code %q, package problem does not", code)
		}
	}
}

// missing returns the documented pairs of operation and code that were not seen.
func (c *checked) missing(doc *openapi3.T) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, op := range operations(doc) {
		for _, code := range codesOf(c.t, op.Extensions) {
			if key := op.OperationID + " " + code; !c.seen[key] {
				out = append(out, key)
			}
		}
	}
	sort.Strings(out)
	return out
}
