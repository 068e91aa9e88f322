package inbox

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
	"unicode/utf8"

	"agentos/internal/problem"
)

// policy is the content security policy of every answer (CSP level 3): no script,
// style, image or connection but of this origin, nothing inline, and no page may
// frame these.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secure sets what every answer of the inbox says to the browser. The referrer
// policy keeps addresses from other sites; a stricter one would take the Origin
// header from our own forms.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// Limits of a form. Arguments of 1 MiB grow when they are encoded.
const (
	maxForm     = 4 << 20
	formTimeout = 30 * time.Second
)

// Forms are tied to the browser they were made for: a random cookie that no other
// page can read must come back in the form as well (double submit). The server
// has looked at Origin and Sec-Fetch-Site before. The cookie is Lax, so that
// following a link from a message to a hold keeps the forms of open tabs valid.
const (
	cookieName  = "agentos_form"
	tokenField  = "form_token"
	tokenLength = 16
)

// admit gives the visit its token and, of a form, reads it and checks that it is
// ours.
func (in *Inbox) admit(v *visit) error {
	if c, err := v.r.Cookie(cookieName); err == nil && len(c.Value) >= tokenLength && len(c.Value) <= 64 {
		v.token = c.Value
	}
	if v.r.Method == http.MethodPost {
		return in.readForm(v)
	}
	if v.token == "" {
		v.token = in.cfg.IDs.Token()
		http.SetCookie(v.w, &http.Cookie{ //nolint:gosec // Secure would keep it from plain HTTP on loopback; it is no credential
			Name: cookieName, Value: v.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: v.r.TLS != nil,
		})
	}
	return nil
}

func (in *Inbox) readForm(v *visit) error {
	control := http.NewResponseController(v.w)
	if err := control.SetReadDeadline(in.cfg.Clock.Now().Add(formTimeout)); err == nil {
		defer control.SetReadDeadline(time.Time{}) //nolint:errcheck // it worked a moment ago
	}
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	err := v.r.ParseForm()
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return problem.New(problem.BodyTooLarge, "the form is longer than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return problem.Wrap(err, problem.InvalidRequest, "the form could not be read")
	}
	given := v.r.PostForm.Get(tokenField)
	if v.token == "" || subtle.ConstantTimeCompare([]byte(given), []byte(v.token)) != 1 {
		return problem.New(problem.ForbiddenOrigin,
			"the form does not belong to this browser, or cookies are off; nothing was done. Go back, reload the page and send the form again")
	}
	for name, values := range v.r.PostForm {
		for _, value := range values {
			if !utf8.ValidString(value) || !utf8.ValidString(name) {
				return problem.New(problem.InvalidRequest, "the form is not in UTF-8")
			}
		}
	}
	return nil
}

// StaticPath is where the files of the pages are: style and scripts, the same for
// everybody.
const StaticPath = "/inbox/static/"

// asset is a static file. Its address holds its digest, so browsers may keep it.
type asset struct {
	body    []byte
	kind    string
	version string
}

func loadStatic() (map[string]asset, error) {
	kinds := map[string]string{
		".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
	}
	out := map[string]asset{}
	entries, err := fs.ReadDir(files, "static")
	if err != nil {
		return nil, fmt.Errorf("read the static files: %w", err)
	}
	for _, e := range entries {
		body, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the static files: %w", err)
		}
		kind := kinds[path.Ext(e.Name())]
		if kind == "" {
			return nil, fmt.Errorf("the static file %s has no media type", e.Name())
		}
		sum := sha256.Sum256(body)
		out[e.Name()] = asset{body: body, kind: kind, version: hex.EncodeToString(sum[:6])}
	}
	return out, nil
}

// address is where a static file is found.
func (in *Inbox) address(name string) (string, error) {
	a, ok := in.static[name]
	if !ok {
		return "", fmt.Errorf("no static file %q", name)
	}
	return StaticPath + name + "?v=" + a.version, nil
}

func (in *Inbox) serveStatic(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := in.static[name]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "There is no such file.", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	if r.URL.Query().Get("v") == a.version {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(a.body) //nolint:errcheck // a reader who has left cannot be told
}
