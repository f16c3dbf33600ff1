package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// refusedAdmins counts who asked the private side without its key.
type refusedAdmins struct {
	total atomic.Int64
	said  atomic.Int64 // when the log last told, in Unix nanoseconds
}

func (r *refusedAdmins) count() float64 { return float64(r.total.Load()) }

// sayAdminRefused is how often the log tells of it at most: whoever guesses must not
// fill it.
const sayAdminRefused = 10 * time.Second

func (r *refusedAdmins) add(log *slog.Logger, remote, path string) {
	r.total.Add(1)
	now, said := time.Now().UnixNano(), r.said.Load()
	if now-said >= int64(sayAdminRefused) && r.said.CompareAndSwap(said, now) {
		log.Warn("refused at the admin address: the key is missing or wrong", "remote", remote, "path", path, "refused", r.total.Load())
	}
}

// adminGuard is in front of every route of the private side.
type adminGuard struct {
	key     string   // "": none is asked for
	hosts   []string // the names that --admin-hosts allows
	refused *refusedAdmins
	log     *slog.Logger
}

// guard lets in a request that shows the key. Any other must come by a host that no page of
// a browser can have made lead here. It is served where there is no key, and else only told
// whether the process is well, as a load balancer or a supervisor asks: without the reason,
// which may name hosts and users.
func (g adminGuard) guard(private http.Handler) http.Handler {
	want := sha256.Sum256([]byte(g.key))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(shown))
		switch {
		case g.key != "" && bearer && subtle.ConstantTimeCompare(got[:], want[:]) == 1:
			private.ServeHTTP(w, r)
		case !g.knows(r.Host):
			answerJSON(w, http.StatusForbidden, engineRefusal{Error: "ask by address or localhost, or by a name in --admin-hosts, " +
				"or show the --admin-key: any page of a browser can make a name lead here"})
		case g.key == "":
			private.ServeHTTP(w, r)
		case r.URL.Path == "/healthz" || r.URL.Path == "/readyz":
			private.ServeHTTP(&wordless{ResponseWriter: w}, r)
		default:
			g.refused.add(g.log, r.RemoteAddr, r.URL.Path)
			w.Header().Set("WWW-Authenticate", `Bearer realm="noncegate admin"`)
			http.Error(w, "the admin key is needed", http.StatusUnauthorized)
		}
	})
}

// knows reports whether the host of a request is one that only this machine's people, or
// its operator, can have made lead here. A request without one is from no browser.
func (g adminGuard) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "" || host == "localhost" || net.ParseIP(host) != nil || slices.Contains(g.hosts, host)
}

// wordless passes the status of an answer on, and a word for it instead of its
// body.
type wordless struct {
	http.ResponseWriter
	said bool
}

// WriteHeader implements http.ResponseWriter.
func (w *wordless) WriteHeader(status int) {
	if w.said {
		return
	}
	w.said = true
	word := "ok\n"
	if status != http.StatusOK {
		word = "not ready\n"
	}
	w.ResponseWriter.Header().Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
	_, _ = w.ResponseWriter.Write([]byte(word)) // who has gone is told nothing
}

// Write implements http.ResponseWriter.
func (w *wordless) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(p), nil
}
