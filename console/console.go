// Package console is the web console: a page, a script and a style sheet that ask the admin API of the gateway that
// serves them. They hold no data, so that no key is needed for them, and load nothing from anywhere else. Their
// sources are in src and sdk/typescript; `make console` makes dist of them, and a test of test/interop compares the two.
package console

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed dist
var dist embed.FS

// policy lets the page run and show what came with it, and ask the gateway that it came from, by HTTP and by WebSocket.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// Handler serves the page at /, and what it consists of.
func Handler() http.Handler {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // dist is a valid path
	}
	serve := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/index.html") || r.URL.Path != "/" && strings.HasSuffix(r.URL.Path, "/") {
			http.NotFound(w, r) // one name for each file, and no listing
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // another version of the gateway has another console
		serve.ServeHTTP(w, r)
	})
}
