package browser_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"agentos/internal/testenv/browser"
)

// A fault that is not seen would make every test of the pages worthless.
func TestFaultsAreSeen(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/inline" || r.URL.Path == "/style" {
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
		}
		bodies := map[string]string{
			"/inline": "<script>1</script>", "/style": "<p style='color:red'>x</p>", "/throw": "<script>throw Error('oops')</script>",
			"/alert": "<script>alert('hello')</script>", "/good": "<!doctype html><html lang=en><title>t</title><main><h1>good</h1></main>",
		}
		_, _ = w.Write([]byte(bodies[r.URL.Path]))
	}))
	defer srv.Close()
	tab := browser.Open(t)
	for path, want := range map[string]string{"/inline": "Content Security Policy", "/style": "Content Security Policy", "/throw": "oops", "/alert": "dialog: hello", "/good": ""} {
		tab.Go(srv.URL + path)
		found := strings.Join(tab.Faults(), " ")
		for deadline := time.Now().Add(5 * time.Second); found == "" && want != "" && time.Now().Before(deadline); {
			found = strings.Join(tab.Faults(), " ")
		}
		if !strings.Contains(found, want) || want == "" && found != "" {
			t.Errorf("%s: %q, want %q", path, found, want)
		}
	}
	tab.Go(srv.URL + "/good")
	tab.WaitText("good")
	tab.Accessible()
	t.Setenv("AGENTOS_SHOTS", t.TempDir())
	tab.Shot("good")
	if entries, err := os.ReadDir(os.Getenv("AGENTOS_SHOTS")); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}
