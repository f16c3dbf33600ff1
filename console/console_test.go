package console

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// most is how many bytes script and style sheet have together, compressed.
const most = 60 << 10

func get(t *testing.T, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

func TestThePageMayLoadAndAskNothingButItsGateway(t *testing.T) {
	for path, kind := range map[string]string{"/": "text/html", "/console.js": "text/javascript", "/console.css": "text/css"} {
		w := get(t, path)
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) {
			t.Errorf("%s: %d, %s, want %s", path, w.Code, w.Header().Get("Content-Type"), kind)
		}
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
			if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: the policy is %q, want %s in it", path, policy, want)
			}
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	for _, path := range []string{"/index.html", "/dist/", "/dist/console.js", "/src/main.tsx", "/nothing"} {
		if w := get(t, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, w.Code)
		}
	}
}

func TestScriptAndStyleSheetAreSmall(t *testing.T) {
	var all bytes.Buffer
	for _, path := range []string{"/console.js", "/console.css"} {
		z := gzip.NewWriter(&all)
		if _, err := z.Write(get(t, path).Body.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if all.Len() > most {
		t.Errorf("%d bytes compressed, want %d at most", all.Len(), most)
	}
	t.Logf("%d bytes compressed", all.Len())
}
