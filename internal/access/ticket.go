package access

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"noncegate/internal/access/audit"
	"noncegate/internal/access/ticket"
)

// ticketParameter is the parameter of the URL that has a ticket.
const ticketParameter = "ticket"

// byTicket redeems the ticket of a URL. The session is that of the credential that
// asked for the ticket, and ends with it.
func (g *Gate) byTicket(r *http.Request) (*Session, login, *Refusal) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query[ticketParameter]) != 1 {
		return nil, "", refuse(LoginMalformed, ErrInvalid, "the URL does not have one ticket")
	}
	grant, err := g.tickets.Redeem(r.Context(), query.Get(ticketParameter))
	if err != nil {
		return nil, "", refusalOf(err)
	}
	s, refused := g.resume(r.Context(), grant)
	return s, loginTicket, refused
}

// resume makes the session of a credential that was checked when its ticket was issued.
func (g *Gate) resume(ctx context.Context, grant ticket.Grant) (*Session, *Refusal) {
	if id, ok := strings.CutPrefix(grant.Credential, keyCredential); ok {
		k, err := g.keys.Live(ctx, id)
		if err != nil {
			return nil, refusalOf(err)
		}
		return g.keySession(k), nil
	}
	if ended(grant.Ends, time.Now()) != nil {
		return nil, refuse(LoginExpired, ErrExpired, "it ended after the ticket was issued")
	}
	return g.timedSession(grant.Principal, grant.Credential, grant.Ends), nil
}

// timedSession makes the session of a credential that cannot be revoked.
func (g *Gate) timedSession(principal, credential string, expires time.Time) *Session {
	return g.session(principal, credential, expires, func(now time.Time) error { return ended(expires, now) })
}

func ended(expires, now time.Time) error {
	if !expires.IsZero() && !now.Before(expires) {
		return ErrExpired
	}
	return nil
}

// issued is the answer of the TicketHandler.
type issued struct {
	Ticket    string `json:"ticket"`
	ExpiresAt string `json:"expiresAt"` // by the store's clock
}

// refusedTicket is its answer where there is no ticket.
type refusedTicket struct {
	Error string `json:"error"`
}

// TicketHandler answers POST with a ticket for the credential of the Authorization
// header, which it needs: neither a ticket nor a certificate gets one. Pages of the
// origins that Config.AllowOrigin admits may ask, by the rules of CORS.
func (g *Gate) TicketHandler() http.Handler { return http.HandlerFunc(g.serveTicket) }

func (g *Gate) serveTicket(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Add("Vary", "Origin")
	if origin := r.Header.Get("Origin"); origin != "" {
		if g.cfg.AllowOrigin == nil || !g.cfg.AllowOrigin(r) {
			answer(w, http.StatusForbidden, refusedTicket{"pages of this origin may not ask for tickets"})
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Allow-Methods", http.MethodPost)
		w.Header().Set("Access-Control-Allow-Headers", "Authorization")
	}
	switch r.Method {
	case http.MethodPost:
		g.issue(w, r)
	case http.MethodOptions: // what a browser asks first
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "POST, OPTIONS")
		answer(w, http.StatusMethodNotAllowed, refusedTicket{"POST asks for a ticket"})
	}
}

func (g *Gate) issue(w http.ResponseWriter, r *http.Request) {
	var check check
	if len(r.Header.Values("Authorization")) > 0 {
		check = g.byHeader
	}
	s, refused := g.authenticate(r, check)
	if refused != nil {
		g.auditTicket(r, audit.TicketRefused, nil, refused.Error())
		status, said := Answer(w, r, refused)
		answer(w, status, refusedTicket{said})
		return
	}
	text, expires, err := g.tickets.Issue(r.Context(), ticket.Grant{Principal: s.Principal, Credential: s.Credential, Ends: s.Expires})
	switch {
	case errors.Is(err, ticket.ErrTooMany):
		g.auditTicket(r, audit.TicketRefused, s, err.Error())
		w.Header().Set("Retry-After", "30")
		answer(w, http.StatusTooManyRequests, refusedTicket{ticket.ErrTooMany.Error()})
	case err != nil:
		g.auditTicket(r, audit.TicketRefused, s, err.Error())
		g.logTickets.Do(func() {
			g.cfg.Log.Warn("a ticket could not be issued", "principal", s.Principal, "credential", s.Credential, "error", err)
		})
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, refusedTicket{ticket.ErrUnavailable.Error()})
	default:
		g.auditTicket(r, audit.TicketIssued, s, "")
		answer(w, http.StatusOK, issued{text, expires.UTC().Format("2006-01-02T15:04:05.000Z")})
	}
}

// auditTicket writes down which principal asked for a ticket, as far as that is known, and why there is none.
func (g *Gate) auditTicket(r *http.Request, event audit.Event, s *Session, why string) {
	if !g.cfg.Audit.Wants(audit.Refusals) {
		return
	}
	e := audit.Entry{At: time.Now(), Event: event, Address: r.RemoteAddr, Why: why[:min(len(why), maxWhy)]}
	if s != nil {
		e.Principal, e.Credential = s.Principal, s.Credential
	}
	if event == audit.TicketRefused {
		g.cfg.Audit.Refused(e)
		return
	}
	g.cfg.Audit.Add(e)
}

// maxWhy bounds, in bytes, the reason of a line of the audit: it may quote what a client sent.
const maxWhy = 256

// answer writes a JSON body. An error of writing means that the client is gone.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
