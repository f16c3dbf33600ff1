package access

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"noncegate/internal/access/apikey"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/jwt"
	"noncegate/internal/access/quota"
	"noncegate/internal/access/rights"
	"noncegate/internal/access/ticket"
)

// What Session.Credential begins with.
const (
	keyCredential         = "key:"
	tokenCredential       = "token:"
	certificateCredential = "certificate:"
)

// Config are the settings of a Gate. Rights is required.
type Config struct {
	// Rights is the path of the rights file.
	Rights string
	// RightsEvery is how often it is looked at, and so how soon a change counts. 0: 2s.
	RightsEvery time.Duration
	// Keys are the settings of API keys.
	Keys apikey.Config
	// Tokens are the settings of JSON Web Tokens. nil: none is accepted.
	Tokens *jwt.Config
	// Certificates accepts client certificates, which the TLS listener has to ask for and
	// to verify.
	Certificates bool
	// CertificatePrefix is put before the name of a certificate, so that their issuer
	// cannot name the principal of an API key or a token.
	CertificatePrefix string
	// Tickets are the settings of tickets.
	Tickets ticket.Config
	// AllowOrigin reports whether a page of a request's Origin, which is not empty, may
	// ask for tickets. nil: none may; a program, which sends no Origin, may.
	AllowOrigin func(*http.Request) bool
	// Audit is told of tickets. nil: nothing is written.
	Audit *audit.Log
	// Metrics counts the clients that are let in and those that are not. It may be nil.
	Metrics prometheus.Registerer
	// Log is told of rights that come into force, and of what cannot be read. It
	// may be nil.
	Log *slog.Logger
}

// Store keeps credentials; every store of nonces but the one for tests is one.
type Store interface {
	apikey.Store
	ticket.Store
}

// Gate is the Authenticator of a gateway. Its methods may be called by any goroutine.
type Gate struct {
	cfg      Config
	rights   *rights.File
	keys     *apikey.Cache
	tokens   *jwt.Verifier // nil: tokens are not accepted
	tickets  *ticket.Issuer
	failures *failures
	// logTickets throttles a warning that each request for a ticket may cause.
	logTickets rate.Sometimes
	used       *lru.Cache[string, time.Time] // when each API key was used last
	counters   *counters                     // nil: nothing is counted
	stops      []func()                      // in the order in which they were started
}

var _ Authenticator = (*Gate)(nil)

// New reads the rights and the keys and starts what keeps them up to date. The error
// is a sentence that names what cannot be used. Stop ends what New started.
func New(ctx context.Context, store Store, cfg Config) (*Gate, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Keys.Log, cfg.Tickets.Log = cfg.Log, cfg.Log
	g := &Gate{cfg: cfg, failures: newFailures(), logTickets: rate.Sometimes{Interval: 10 * time.Second}}
	g.used, _ = lru.New[string, time.Time](apikey.MaxKeys) // fails for a size below 1
	if err := g.open(ctx, store); err != nil {
		g.Stop()
		return nil, err
	}
	if cfg.Metrics != nil {
		g.register(cfg.Metrics)
	}
	return g, nil
}

// Stop ends the goroutines of the Gate and waits for them. Sessions go on by what is
// known. It may be called more than once.
func (g *Gate) Stop() {
	for i := len(g.stops) - 1; i >= 0; i-- {
		g.stops[i]()
	}
}

// Rights are the rights in force.
func (g *Gate) Rights() *rights.Rights { return g.rights.Rights() }

// KeyUsed is when a client was let in by an API key here last; zero: never, or the key is long not used.
func (g *Gate) KeyUsed(id string) time.Time {
	at, _ := g.used.Peek(id)
	return at
}

// Reload has the rights, the API keys and the keys of tokens read now, and not when
// their time comes. It does not wait for that; what cannot be used is logged, and what
// was read before stays in force.
func (g *Gate) Reload() {
	g.rights.Soon()
	g.keys.Soon()
	if g.tokens != nil {
		g.tokens.Soon()
	}
}

// open reads the rights, keys, key sets and what tickets need. After an error, Stop ends what was begun.
func (g *Gate) open(ctx context.Context, store Store) (err error) {
	cfg := &g.cfg
	if g.rights, err = rights.Open(ctx, cfg.Rights, rights.Config{Every: cfg.RightsEvery, Log: cfg.Log}); err != nil {
		return err
	}
	g.stops = append(g.stops, g.rights.Stop)
	if g.keys, err = apikey.Open(ctx, store, cfg.Keys); err != nil {
		return err
	}
	g.stops = append(g.stops, g.keys.Stop)
	if cfg.Tokens != nil {
		tokens := *cfg.Tokens
		tokens.Log = cfg.Log
		if g.tokens, err = jwt.Open(ctx, tokens); err != nil {
			return err
		}
		g.stops = append(g.stops, g.tokens.Stop)
	}
	if g.tickets, err = ticket.Open(ctx, store, cfg.Tickets); err != nil {
		return err
	}
	g.stops = append(g.stops, g.tickets.Stop)
	return nil
}

// Authenticate implements Authenticator. What is looked at, in this order; the first
// that is there decides alone, so that a wrong one is not made good by another:
//
//  1. the Authorization header: Bearer with an API key, or with a token where tokens are
//     accepted; or Basic with an API key as the password and any user name;
//  2. the parameter ticket of the URL;
//  3. where certificates are accepted, a client certificate that TLS has verified.
//
// Of an address from which too many were wrong, nothing but API keys that are known
// here is looked at.
// The error is a *Refusal.
func (g *Gate) Authenticate(r *http.Request) (*Session, error) {
	s, refused := g.authenticate(r, g.credential(r))
	if refused != nil {
		return nil, refused
	}
	return s, nil
}

// authenticate checks a credential and counts how that went.
func (g *Gate) authenticate(r *http.Request, check check) (*Session, *Refusal) {
	s, by, refused := g.admit(r, check)
	switch {
	case g.counters == nil:
	case refused != nil:
		g.counters.refused.Inc(refused.Reason)
	default:
		g.counters.loggedIn.Inc(by)
	}
	return s, refused
}

// admit counts a credential against its address when it is wrong. Of an address from
// which too many were, API keys that are known here are let in all the same: they cost
// next to nothing to check and cannot be guessed, and many clients may have one address.
func (g *Gate) admit(r *http.Request, check check) (*Session, login, *Refusal) {
	if check == nil {
		return nil, "", refuse(LoginMissing, ErrMissing, nil)
	}
	addr := quota.NetworkOf(r.RemoteAddr)
	switch g.failures.take(addr, time.Now()) {
	case tooBusy:
		return nil, "", refuse(LoginUnavailable, ErrUnavailable, "many credentials of this address are being looked at")
	case tooWrong:
		if s := g.byKnownKey(r); s != nil && g.rights.Rights().Knows(s.Principal) {
			return s, loginKey, nil
		}
		return nil, "", refuse(LoginThrottled, ErrThrottled, nil)
	}
	s, by, refused := check(r)
	if refused == nil && !g.rights.Rights().Knows(s.Principal) {
		refused = refuse(LoginPrincipal, ErrInvalid, fmt.Sprintf("principal %q is not in the rights file", s.Principal))
	}
	g.failures.done(addr, refused != nil && refused.Reason != LoginUnavailable)
	return s, by, refused
}

// check looks at one kind of credential of a request.
type check func(*http.Request) (*Session, login, *Refusal)

// credential returns the check of the first kind of credential that a request has.
func (g *Gate) credential(r *http.Request) check {
	switch {
	case len(r.Header.Values("Authorization")) > 0:
		return g.byHeader
	case strings.Contains(r.URL.RawQuery, ticketParameter) && r.URL.Query().Has(ticketParameter):
		return g.byTicket
	case g.cfg.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return g.byCertificate
	}
	return nil
}

func (g *Gate) byKey(ctx context.Context, text string) (*Session, login, *Refusal) {
	k, err := g.keys.Check(ctx, text)
	if err != nil {
		return nil, "", refusalOf(err)
	}
	return g.keySession(k), loginKey, nil
}

func (g *Gate) byToken(ctx context.Context, text string) (*Session, login, *Refusal) {
	id, err := g.tokens.Check(ctx, text)
	if err != nil {
		return nil, "", refusalOf(err)
	}
	return g.timedSession(id.Principal, tokenCredential+id.ID, id.Expires), loginToken, nil
}

// byCertificate lets in the principal that a client certificate names. It ends with the certificate;
// TLS has checked that it has begun.
func (g *Gate) byCertificate(r *http.Request) (*Session, login, *Refusal) {
	leaf := r.TLS.VerifiedChains[0][0]
	principal, err := certificatePrincipal(leaf, g.cfg.CertificatePrefix)
	if err != nil {
		return nil, "", refuse(LoginCertificateName, ErrInvalid, err)
	}
	if ended(leaf.NotAfter, time.Now()) != nil { // a TLS connection may be older than the request
		return nil, "", refuse(LoginExpired, ErrExpired, "the client certificate")
	}
	return g.timedSession(principal, certificateCredential+leaf.SerialNumber.Text(16), leaf.NotAfter), loginCertificate, nil
}

// certificatePrincipal returns the one URI among the certificate's subject alternative
// names, as SPIFFE has it, and where there is none the common name, behind the prefix.
func certificatePrincipal(leaf *x509.Certificate, prefix string) (string, error) {
	what, name := "common name", leaf.Subject.CommonName
	if len(leaf.URIs) == 1 {
		what, name = "URI", leaf.URIs[0].String()
	}
	switch {
	case len(leaf.URIs) > 1:
		return "", fmt.Errorf("the client certificate has %d URIs, and so does not say who it is", len(leaf.URIs))
	case name == "": // a prefix alone is no name
		return "", errors.New("the client certificate has neither a URI nor a common name")
	}
	if err := rights.CheckPrincipal(prefix + name); err != nil {
		return "", fmt.Errorf("the %s %q of the client certificate, behind the prefix %q, %w", what, name, prefix, err)
	}
	return prefix + name, nil
}

func (g *Gate) keySession(k apikey.Key) *Session {
	g.used.Add(k.ID, time.Now())
	return g.session(k.Principal, keyCredential+k.ID, k.Expires, func(now time.Time) error {
		switch err := g.keys.Ended(k.ID, now); {
		case errors.Is(err, apikey.ErrExpired):
			return ErrExpired
		case err != nil:
			return ErrRevoked
		}
		return nil
	})
}

// session makes a Session whose rights and quota are those in force at each call. It
// ends with its credential, or when the principal is taken out of the rights file.
func (g *Gate) session(principal, credential string, expires time.Time, ended func(time.Time) error) *Session {
	quota := func() Quota { return g.rights.Rights().Quota(principal) }
	return NewSession(principal, credential, expires,
		func(want Right, signer string) bool { return g.rights.Rights().May(principal, want, signer) },
		func(now time.Time) error {
			if err := ended(now); err != nil {
				return err
			}
			if !g.rights.Rights().Knows(principal) {
				return ErrRevoked
			}
			return nil
		}).WithQuota(quota)
}
