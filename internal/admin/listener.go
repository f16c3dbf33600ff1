package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/time/rate"

	"noncegate/internal/access"
)

// readyFor is how long an answer of /readyz is good.
const readyFor = 250 * time.Millisecond

// readiness asks look once for all who want to know within readyFor: /readyz needs no
// key, and however often it is asked must not take the store's connections from those
// who work.
type readiness struct {
	look func() error

	mu  sync.Mutex // guards what follows, and is held while it is looked
	at  time.Time  // when that ended
	err error
}

// Readiness is look, asked once for all who want to know within readyFor.
func Readiness(look func() error) func() error {
	return (&readiness{look: look}).get
}

func (r *readiness) get() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || time.Since(r.at) >= readyFor {
		r.err, r.at = r.look(), time.Now()
	}
	return r.err
}

// adminHandler serves the private side: /metrics from metrics, /healthz, which says only that the process answers,
// /readyz, which is 503 while ready returns an error, and with profiles /debug/pprof/. ready is asked at each request
// and must answer soon. more adds what else there is.
func adminHandler(metrics prometheus.Gatherer, ready func() error, profiles bool, more ...func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { sayWell(w, r, nil, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { sayWell(w, r, ready(), "ready") })
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.Handle("/debug/pprof/cmdline", http.NotFoundHandler()) // the command line may hold a password
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	for _, add := range more {
		add(mux)
	}
	return mux
}

// sayWell answers whether the process is well. The reason why it is not may name hosts and users, so only those who
// may ask for more are told it.
func sayWell(w http.ResponseWriter, r *http.Request, err error, word string) {
	_, known := callerOf(r.Context())
	switch {
	case err != nil && known:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, "not ready", http.StatusServiceUnavailable)
	case known:
		fmt.Fprintln(w, word)
	default:
		fmt.Fprintln(w, "ok")
	}
}

// refusedAdmins counts who showed the private side no key, or a wrong one.
type refusedAdmins struct {
	total atomic.Int64
	said  rate.Sometimes // whoever guesses must not fill the log
}

// sayAdminRefused is how often the log tells of it at most.
const sayAdminRefused = 10 * time.Second

func (r *refusedAdmins) add(log *slog.Logger, remote, path string) {
	r.total.Add(1)
	r.said.Do(func() {
		log.Warn("refused at the admin address: the key is missing or wrong", "remote", remote, "path", path, "refused", r.total.Load())
	})
}

// guard lets in a request that came by a host which no page of a browser can have made lead here, and shows the admin key,
// a session, or, for the API, an API key. Without a key it is served where none is asked for, and else only told whether the
// process is well, as a load balancer or a supervisor asks, and given the console, which has no data. No page of another
// origin may change anything.
func (a *Server) guard(private http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !a.knows(r.Host):
			answerJSON(w, http.StatusForbidden, Refusal{Error: "ask by address or localhost, or by a name in --admin-hosts: " +
				"any page of a browser can make another name lead here"})
			return
		case foreign.Check(r) != nil:
			answerJSON(w, http.StatusForbidden, Refusal{Error: "pages of other origins may change nothing here"})
			return
		}
		by, known, answered := a.whoAsks(w, r)
		switch {
		case answered:
		case known:
			private.ServeHTTP(w, by.asks(r))
		case a.open(r):
			private.ServeHTTP(w, r)
		default:
			a.refuseUnknown(w, r)
		}
	})
}

// open reports whether a request needs no key.
func (a *Server) open(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/readyz":
		return true
	case BeginSession.Path: // a ticket, in its body, is as good
		return r.Header.Get("Authorization") == ""
	case "/ws":
		return a.cfg.Gate != nil // which asks
	}
	return r.Method == http.MethodGet && a.ofConsole(r.URL.Path)
}

// whoAsks finds out by what a request shows who it is from. answered: that is not good.
func (a *Server) whoAsks(w http.ResponseWriter, r *http.Request) (by caller, known, answered bool) {
	by.address = r.RemoteAddr
	shown, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	want, got := sha256.Sum256([]byte(a.cfg.Key)), sha256.Sum256([]byte(shown))
	ticket := r.URL.Query().Get("ticket")
	switch {
	case bearer && strings.HasPrefix(shown, sessionPrefix):
		return a.bySession(w, r, shown)
	case r.URL.Path == "/ws" && strings.HasPrefix(ticket, ticketPrefix):
		is, err := a.tickets.take(ticket)
		if err != nil {
			a.refuseKey(w, r, err.Error())
			return by, false, true
		}
		by.session, by.key = is.by.session, is.by.key
		return by, true, false
	case a.cfg.Key != "" && bearer && subtle.ConstantTimeCompare(got[:], want[:]) == 1:
		by.session, by.key = a.reader("admin-key"), "admin-key"
		return by, true, false
	case a.cfg.Gate != nil && shown != "" && strings.HasPrefix(r.URL.Path, Prefix):
		session, err := a.cfg.Gate.Authenticate(r)
		if err != nil {
			a.refused.add(a.cfg.Log, r.RemoteAddr, r.URL.Path)
			status, said := access.Answer(w, r, err)
			answerJSON(w, status, Refusal{Error: said})
			return by, false, true
		}
		by.session = session
		return by, true, false
	case a.cfg.Key == "" && (r.URL.Path != "/ws" || a.cfg.Gate == nil):
		by.session = a.reader("admin-address")
		return by, true, false
	}
	return by, false, false
}

func (a *Server) bySession(w http.ResponseWriter, r *http.Request, shown string) (by caller, known, answered bool) {
	by, err := a.sessions.use(shown)
	if err != nil {
		a.refuseKey(w, r, err.Error())
		return by, false, true
	}
	by.address = r.RemoteAddr
	return by, true, false
}

// refuseUnknown answers a request without the key, or with a wrong one.
func (a *Server) refuseUnknown(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="noncegate admin"`)
	a.refuseKey(w, r, "the admin key is needed")
}

// refuseKey answers what shows nothing that is good. An address that shows what is wrong too often is told so, and to wait;
// the right key of the same address is taken all the same, so that nobody is locked out by others behind one proxy.
func (a *Server) refuseKey(w http.ResponseWriter, r *http.Request, why string) {
	a.refused.add(a.cfg.Log, r.RemoteAddr, r.URL.Path)
	if r.Header.Get("Authorization") != "" && a.guesses.Wrong(r.RemoteAddr) {
		w.Header().Set("Retry-After", "3")
		answerJSON(w, http.StatusTooManyRequests, Refusal{Error: "too many keys from this address were wrong; try again in a minute"})
		return
	}
	if strings.HasPrefix(r.URL.Path, Prefix) {
		answerJSON(w, http.StatusUnauthorized, Refusal{Error: why})
		return
	}
	http.Error(w, why, http.StatusUnauthorized)
}

// reader is the session of a request that names no principal: it sees everything, and with the admin key also who holds
// what. Where clients need not say who they are, it is as good as any.
func (a *Server) reader(credential string) *access.Session {
	if a.cfg.Gate == nil {
		return nil
	}
	may := func(right access.Right, _ string) bool {
		return right == access.RightRead || right == access.RightSubscribe || right == access.RightMarkAny && credential == "admin-key"
	}
	return access.NewSession("", credential, time.Time{}, may, func(time.Time) error { return nil })
}

// knows reports whether the host of a request is one that only this machine's people, or
// its operator, can have made lead here. A request without one is from no browser.
func (a *Server) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "" || host == "localhost" || net.ParseIP(host) != nil || slices.Contains(a.cfg.Hosts, host)
}

// caller is who asks the private side.
type caller struct {
	session *access.Session // nil: clients of this gateway need not say who they are
	address string

	key     string    // admin-key, where no session says so
	console bool      // it is somebody in a session
	begun   time.Time // that session
	token   string    // of it
}

func (c caller) principal() string {
	if c.session == nil {
		return ""
	}
	return c.session.Principal
}

func (c caller) credential() string {
	if c.session == nil {
		return c.key
	}
	return c.session.Credential
}

type callerKey struct{}

// asks is a request by the caller.
func (c caller) asks(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

func callerOf(ctx context.Context) (c caller, known bool) {
	c, known = ctx.Value(callerKey{}).(caller)
	return c, known
}
