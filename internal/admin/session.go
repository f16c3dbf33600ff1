package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
)

// A person works in the console with a session instead of a key: it is short, ends when it is not used, and can do
// nothing that its credential could not. A ticket is for the link that begins one, and for a WebSocket, whose URL is
// all that a page of a browser can say.
const (
	sessionPrefix = "ncs_"
	ticketPrefix  = "nca_"

	sessionIdle = 15 * time.Minute // without use
	sessionLife = 12 * time.Hour
	ticketLife  = time.Minute
	// maxPasses bounds the sessions, and the tickets, of a node; maxPassesEach those of one credential.
	maxPasses, maxPassesEach = 1000, 100
)

// pass is a session or a ticket.
type pass struct {
	by    caller
	begun time.Time // of the session, or of that which the ticket was made in
	until time.Time
}

// passes are all of a kind, by the hash of their text.
type passes struct {
	prefix, what string

	mu sync.Mutex // guards of
	of map[[sha256.Size]byte]*pass
}

func newPasses(prefix, what string) *passes {
	return &passes{prefix: prefix, what: what, of: make(map[[sha256.Size]byte]*pass)}
}

// make makes one that is good for so long.
func (p *passes) make(by caller, begun time.Time, lasts time.Duration) (text string, made pass, err error) {
	now := time.Now()
	if begun.IsZero() {
		begun = now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	same := 0
	for hash, old := range p.of {
		switch {
		case !now.Before(old.until):
			delete(p.of, hash)
		case old.by.credential() == by.credential() && old.by.principal() == by.principal():
			same++
		}
	}
	switch {
	case same >= maxPassesEach:
		why := fmt.Sprintf("this credential has %d %s, which is the most; end one, or wait until one has ended", same, p.what)
		return "", made, &badQuestion{why, http.StatusTooManyRequests}
	case len(p.of) >= maxPasses:
		return "", made, &badQuestion{fmt.Sprintf("this node has %d %s, which is the most; try again in a minute", maxPasses, p.what),
			http.StatusTooManyRequests}
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it ends the process rather than to fail
	text = p.prefix + hex.EncodeToString(secret[:])
	made = pass{by: by, begun: begun, until: now.Add(lasts)}
	p.of[sha256.Sum256([]byte(text))] = &made
	return text, made, nil
}

// use returns a session that still is one, and has it last on.
func (p *passes) use(text string) (by caller, err error) {
	hash, now := sha256.Sum256([]byte(text)), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	is := p.of[hash]
	if is == nil || !now.Before(is.until) {
		delete(p.of, hash)
		return by, errSessionOver
	}
	if err := is.by.session.Ended(now); err != nil {
		delete(p.of, hash)
		return by, fmt.Errorf("the session has ended: %w", err)
	}
	if is.until = now.Add(sessionIdle); is.until.After(is.begun.Add(sessionLife)) {
		is.until = is.begun.Add(sessionLife)
	}
	by = is.by
	by.console, by.begun, by.token = true, is.begun, text
	return by, nil
}

// take returns what a ticket is for. It works once.
func (p *passes) take(text string) (is pass, err error) {
	hash, now := sha256.Sum256([]byte(text)), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.of[hash]
	delete(p.of, hash)
	if found == nil || !now.Before(found.until) {
		return is, errors.New("the ticket is not valid: it works once, for a minute")
	}
	if err := found.by.session.Ended(now); err != nil {
		return is, fmt.Errorf("the ticket is not valid: %w", err)
	}
	return *found, nil
}

func (p *passes) end(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, sha256.Sum256([]byte(text)))
}

var errSessionOver = errors.New("the session has ended, or is none of this node")

// NewTicket is a ticket: for the link to the console, or for /ws?ticket=.
type NewTicket struct {
	Ticket string    `json:"ticket"`
	Until  time.Time `json:"until"`
}

// SessionOrder begins a session, by a ticket or else by the credential of the request.
type SessionOrder struct {
	Ticket string `json:"ticket,omitempty"`
}

// NewSession is the session that was begun. Each use lets it last 15 minutes more, 12 hours at most.
type NewSession struct {
	Token     string    `json:"token"`
	Until     time.Time `json:"until"`
	Principal string    `json:"principal"`
}

// RightsOn are the rights of a principal on the signers of a pattern.
type RightsOn struct {
	Signers string   `json:"signers"`
	Rights  []string `json:"rights"`
}

// Me is who asks, and what that one may do.
type Me struct {
	Node       string     `json:"node"`
	Version    string     `json:"version"`
	Principal  string     `json:"principal"`
	Credential string     `json:"credential"`
	Console    string     `json:"console"` // on, read or off
	Acts       bool       `json:"acts"`
	Why        string     `json:"why,omitempty"` // Acts is false
	All        bool       `json:"all,omitempty"` // nobody is asked who he is
	Rights     []RightsOn `json:"rights"`
}

func (a *Server) makeTicket(ctx context.Context, _ None) (t NewTicket, err error) {
	if err := a.consoleOff(); err != nil {
		return t, err
	}
	by, _ := callerOf(ctx)
	text, made, err := a.tickets.make(by, by.begun, ticketLife)
	return NewTicket{text, made.until.UTC()}, err
}

func (a *Server) beginSession(ctx context.Context, q SessionOrder) (s NewSession, err error) {
	if err := a.consoleOff(); err != nil {
		return s, err
	}
	by, known := callerOf(ctx)
	if q.Ticket != "" {
		is, err := a.tickets.take(q.Ticket)
		if err != nil {
			return s, &badQuestion{err.Error(), http.StatusUnauthorized}
		}
		address := cmp.Or(by.address, is.by.address)
		by, known = is.by, true
		by.begun, by.address = is.begun, address
	}
	if !known {
		return s, &badQuestion{"a key is needed: the admin key, or an API key; or the link of gateway console", http.StatusUnauthorized}
	}
	text, made, err := a.sessions.make(by, by.begun, sessionIdle)
	if err != nil {
		return s, err
	}
	a.auditSession(by, audit.Login)
	return NewSession{text, made.until.UTC(), by.principal()}, nil
}

func (a *Server) endSession(ctx context.Context, _ None) (n None, err error) {
	by, _ := callerOf(ctx)
	if by.token == "" {
		return n, &badQuestion{why: "this request has no session"}
	}
	a.sessions.end(by.token)
	a.auditSession(by, audit.Logout)
	return n, nil
}

func (a *Server) auditSession(by caller, event audit.Event) {
	if a.cfg.Audit.Wants(audit.Refusals) {
		a.cfg.Audit.Add(audit.Entry{
			At: time.Now(), Event: event, Address: by.address, Principal: by.principal(), Credential: by.credential(), Method: "console",
		})
	}
}

// consoleOff refuses sessions where there is no console.
func (a *Server) consoleOff() error {
	if a.cfg.Console == "off" {
		return &badQuestion{"the console is off at this gateway (--console)", http.StatusForbidden}
	}
	return nil
}

func (a *Server) whoAmI(ctx context.Context, _ None) (Me, error) {
	by, _ := callerOf(ctx)
	me := Me{
		Node: a.cfg.Node, Version: a.cfg.Version, Principal: by.principal(), Credential: by.credential(), Console: a.cfg.Console,
		Rights: []RightsOn{}, All: by.session == nil,
	}
	err := a.mayAct(by)
	if me.Acts = err == nil; err != nil {
		me.Why = err.Error()
	}
	if a.cfg.Gate != nil && me.Principal != "" {
		me.Rights = rightsOf(a.cfg.Gate, me.Principal)
	}
	return me, nil
}

func rightsOf(g *access.Gate, principal string) []RightsOn {
	list := []RightsOn{}
	for _, grant := range g.Rights().Grants(principal) {
		list = append(list, RightsOn{grant.Signers, strings.Split(grant.Rights.String(), ", ")})
	}
	return list
}
