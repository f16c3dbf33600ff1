package chaintest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"noncegate/test/lab/fakenode"
)

// All is the name of every call for a Proxy's rules.
const All = "*"

// Fault is what becomes of a call that meets a Rule. In a batch, those that concern one
// answer change that one; those that concern the message (all that have no result to show:
// Lost, NoAnswer, Cut, CutAfter, Status, Redirect, NotJSON, Big, Endless) concern the
// whole batch, and what is said of forwarding is then true of the batch.
type Fault struct {
	name    string
	local   bool // not forwarded
	delay   time.Duration
	instead func(id json.RawMessage) *fakenode.Instead // of the whole message's answer
	reply   *reply                                     // instead of forwarding this call
	edit    func(result json.RawMessage) json.RawMessage
}

// String is the fault's name.
func (f Fault) String() string { return f.name }

var (
	silent = &fakenode.Instead{Silent: true}
	closed = &fakenode.Instead{}

	// Lost neither forwards a call nor answers it.
	Lost = Fault{name: "lost", local: true, instead: always(silent)}
	// NoAnswer forwards a call and never answers it: sent, and nobody was told.
	NoAnswer = Fault{name: "no answer", instead: always(silent)}
	// Cut closes the connection and does not forward.
	Cut = Fault{name: "cut", local: true, instead: always(closed)}
	// CutAfter forwards a call, waits for the node's answer and closes the connection
	// without giving it.
	CutAfter = Fault{name: "cut after", instead: always(closed)}
	// NotJSON answers with a page of a proxy, status 200, and does not forward.
	NotJSON = Fault{name: "not JSON", local: true, instead: always(&fakenode.Instead{Status: http.StatusOK, Body: page})}
	// Endless answers with a result that never ends, and does not forward.
	Endless = Big(-1)
	// RateLimited is the JSON-RPC error of a provider whose limit is exceeded; the HTTP
	// form is Status(429).
	RateLimited = RPCError(-32005, "daily request count exceeded, request rate limited")
)

func always(in *fakenode.Instead) func(json.RawMessage) *fakenode.Instead {
	return func(json.RawMessage) *fakenode.Instead { return in }
}

func page(w io.Writer) error {
	_, err := io.WriteString(w, "<html><body>Bad gateway</body></html>")
	return err
}

// Delay forwards a call after a time, on the real clock.
func Delay(d time.Duration) Fault { return Fault{name: "delay " + d.String(), delay: d} }

// Status answers with an HTTP status and does not forward. On an open WebSocket there is
// no status: the connection is closed.
func Status(code int) Fault {
	return Fault{name: fmt.Sprint("status ", code), local: true, instead: always(&fakenode.Instead{Status: code})}
}

// Redirect answers 302 with another address and does not forward; an open WebSocket is
// closed.
func Redirect(url string) Fault {
	return Fault{name: "redirect", local: true, instead: always(&fakenode.Instead{Status: http.StatusFound, Location: url})}
}

// Big answers with a JSON-RPC result, a string, that makes the answer so many bytes long,
// below zero without end, and does not forward.
func Big(size int64) Fault {
	return Fault{name: fmt.Sprintf("%d bytes", size), local: true, instead: func(id json.RawMessage) *fakenode.Instead {
		return &fakenode.Instead{Status: http.StatusOK, Body: func(w io.Writer) error { return zeros(w, id, size) }}
	}}
}

func zeros(w io.Writer, id json.RawMessage, size int64) error {
	begin, end, chunk := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"0x`, id), `"}`, bytes.Repeat([]byte("0"), 64<<10)
	_, err := io.WriteString(w, begin)
	for left := size - int64(len(begin)+len(end)); err == nil && (size < 0 || left > 0); left -= int64(len(chunk)) {
		if size >= 0 {
			chunk = chunk[:min(int64(len(chunk)), left)]
		}
		_, err = w.Write(chunk)
	}
	if err == nil {
		_, err = io.WriteString(w, end)
	}
	return err
}

// RPCError answers with a JSON-RPC error and does not forward.
func RPCError(code int, message string) Fault {
	return Fault{name: fmt.Sprint("error ", code), reply: &reply{err: &fakenode.Error{Code: code, Message: message}}}
}

// Result answers with this result, whatever its type, and does not forward. nil is null.
func Result(v any) Fault {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a result that is not JSON: %v", err))
	}
	return Fault{name: "result", reply: &reply{result: text}}
}

// Falsify forwards a call and gives the client what change makes of the node's result. An error of
// the node stays as it is.
func Falsify(name string, change func(result json.RawMessage) json.RawMessage) Fault {
	return Fault{name: name, edit: change}
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

	met int // guarded by p.mu
}

// On has calls of a method (or All) meet a fault from now on. Where several rules fit, the
// newest is met, and one alone.
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
	defer p.mu.Unlock()
	p.rules = nil
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
	timer := time.NewTimer(pollDeadline)
	defer timer.Stop()
	for {
		r.p.mu.Lock()
		met, changed := r.met, r.p.changed
		r.p.mu.Unlock()
		if met >= n {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			r.p.t.Fatalf("within %v %d calls of %s met %q, want %d", pollDeadline, met, r.method, r.fault, n)
		}
	}
}

// meet counts a call that is where the fault has it.
func (r *Rule) meet() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.met++
	close(r.p.changed)
	r.p.changed = make(chan struct{})
}

// match counts a call and finds the rule it meets; one without a fault where there is none.
func (p *Proxy) match(method string, params json.RawMessage) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[method]++
	for _, r := range slices.Backward(p.rules) {
		if (r.method == method || r.method == All) && (r.when == nil || r.when(params)) {
			return r
		}
	}
	return &Rule{p: p}
}
