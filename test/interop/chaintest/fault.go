package chaintest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Upgrade is the name under which a Proxy's rules and counts know the HTTP request that
// opens a WebSocket; All is the name of every call, that one left out.
const (
	Upgrade = "websocket upgrade"
	All     = "*"
)

// Fault is what becomes of a call that meets a Rule. In a batch, those that concern one
// answer change that one; those that concern the message (all that have no result to show:
// Lost, NoAnswer, Cut, CutAfter, Status, Redirect, NotJSON, Big, Endless) concern the
// whole batch, and what is said of forwarding is then true of the batch.
type Fault struct {
	name    string
	local   bool // not forwarded
	delay   time.Duration
	whole   *outcome             // instead of the whole message's answer
	replace func(j *job) *answer // instead of forwarding this call

	edit func(result json.RawMessage) json.RawMessage // of the node's result
}

// String is the fault's name.
func (f Fault) String() string { return f.name }

var (
	// Lost neither forwards a call nor answers it.
	Lost = Fault{name: "lost", local: true, whole: &outcome{kind: silent}}
	// NoAnswer forwards a call and never answers it: sent, and nobody was told.
	NoAnswer = Fault{name: "no answer", whole: &outcome{kind: silent}}
	// Cut closes the connection and does not forward.
	Cut = Fault{name: "cut", local: true, whole: &outcome{kind: closed}}
	// CutAfter forwards a call, waits for the node's answer and closes the connection
	// without giving it.
	CutAfter = Fault{name: "cut after", whole: &outcome{kind: closed}}
	// NotJSON answers with a page of a proxy, status 200, and does not forward.
	NotJSON = Fault{name: "not JSON", local: true, whole: &outcome{kind: raw, body: []byte("<html><body>Bad gateway</body></html>")}}
	// Endless answers with a result that never ends, and does not forward.
	Endless = Fault{name: "endless", local: true, whole: &outcome{kind: stream, bytes: -1}}
	// RateLimited is the JSON-RPC error of a provider whose limit is exceeded; the HTTP
	// form is Status(429).
	RateLimited = RPCError(-32005, "daily request count exceeded, request rate limited")
)

// Delay forwards a call after a time, on the real clock.
func Delay(d time.Duration) Fault { return Fault{name: "delay " + d.String(), delay: d} }

// Status answers with an HTTP status and does not forward. On an open WebSocket there is
// no status: the connection is closed. At Upgrade it refuses the WebSocket.
func Status(code int) Fault {
	return Fault{name: fmt.Sprint("status ", code), local: true, whole: &outcome{kind: status, status: code}}
}

// Redirect answers 302 with another address and does not forward; an open WebSocket is
// closed.
func Redirect(url string) Fault {
	return Fault{name: "redirect", local: true, whole: &outcome{kind: status, status: 302, location: url}}
}

// Big answers with a JSON-RPC result, a string, that makes the answer so many bytes long,
// and does not forward.
func Big(bytes int64) Fault {
	return Fault{name: "big", local: true, whole: &outcome{kind: stream, bytes: bytes}}
}

// RPCError answers with a JSON-RPC error and does not forward.
func RPCError(code int, message string) Fault {
	text, err := json.Marshal(map[string]any{"code": code, "message": message})
	if err != nil {
		panic(err) // an int and a string
	}
	return Fault{name: fmt.Sprint("error ", code), replace: func(j *job) *answer {
		return &answer{ID: j.id, Error: text}
	}}
}

// Result answers with this result, whatever its type, and does not forward. nil is null.
func Result(v any) Fault {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a result that is not JSON: %v", err))
	}
	return Fault{name: "result", replace: func(j *job) *answer { return &answer{ID: j.id, Result: text} }}
}

// Falsify forwards a call and gives the client what change makes of the node's result. An error of
// the node stays as it is.
func Falsify(name string, change func(result json.RawMessage) json.RawMessage) Fault {
	return Fault{name: name, edit: change}
}

// kind is what a client gets instead of the node's answer.
type kind int

const (
	raw    kind = iota // body as it is, HTTP status 200
	silent             // nothing
	closed             // the end of the connection
	status             // an HTTP status
	stream             // a result of so many bytes; below zero without end
)

type outcome struct {
	kind     kind
	body     []byte
	status   int
	location string
	bytes    int64
}

// When restricts a Rule.
type When func(*Rule)

// If has the rule met only by calls with such params. The function must not call the
// Proxy.
func If(fits func(params json.RawMessage) bool) When { return func(r *Rule) { r.when = fits } }

// Rule is a fault in force. Its methods may be called from any goroutine.
type Rule struct {
	p      *Proxy
	method string
	fault  Fault
	when   func(json.RawMessage) bool // nil: always

	// Guarded by p.mu.
	met int
}

// On has calls of a method (or Upgrade, or All) meet a fault from now on. Where several
// rules fit, the newest is met, and one alone.
func (p *Proxy) On(method string, fault Fault, when ...When) *Rule {
	r := &Rule{p: p, method: method, fault: fault}
	for _, w := range when {
		w(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Clear ends all rules.
func (p *Proxy) Clear() {
	p.mu.Lock()
	rules := slices.Clone(p.rules)
	p.mu.Unlock()
	for _, r := range rules {
		r.End()
	}
}

// End has no further call meet the rule. It may be called twice.
func (r *Rule) End() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.rules = slices.DeleteFunc(r.p.rules, func(other *Rule) bool { return other == r })
}

// Met is how many calls have met the rule. One that is forwarded has when the node has
// answered it.
func (r *Rule) Met() int {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.met
}

// Await waits until so many calls have met the rule.
func (r *Rule) Await(n int) {
	r.p.t.Helper()
	r.p.await(fmt.Sprintf("%d calls of %s that meet %q", n, r.method, r.fault), func() int { return r.met }, n)
}

// meet counts a call that is where the fault has it.
func (r *Rule) meet() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.met++
	r.p.tellLocked()
}

// match counts a call and finds the rule it meets, nil for none.
func (p *Proxy) match(method string, params json.RawMessage) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[method]++
	for i := len(p.rules) - 1; i >= 0; i-- {
		r := p.rules[i]
		if r.fitsLocked(method, params) {
			return r
		}
	}
	return nil
}

func (r *Rule) fitsLocked(method string, params json.RawMessage) bool {
	if r.when != nil && !r.when(params) {
		return false
	}
	return r.method == method || r.method == All && method != Upgrade
}
