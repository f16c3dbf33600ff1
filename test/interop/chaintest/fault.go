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

// Fault is what becomes of a call that meets a Rule; ask has the node answer it. One of which there is no result to show (Lost, Cut, Page,
// Big, and each After the node has answered) takes the place of the answer to a whole batch.
type Fault func(ask func() (json.RawMessage, error)) (any, error)

var (
	// Lost neither forwards a call nor answers it.
	Lost = instead(fakenode.ErrSilent)
	// Cut closes the connection and does not forward.
	Cut = instead(&fakenode.Instead{})
	// NoAnswer forwards a call and never answers it: sent, and nobody was told. CutAfter closes the connection instead.
	NoAnswer, CutAfter = After(Lost), After(Cut)
	// NotJSON answers with a page of a proxy, status 200, and does not forward.
	NotJSON = Page(http.StatusOK, nil, "<html><body>Bad gateway</body></html>")
	// RateLimited is the JSON-RPC error of a provider whose limit is exceeded; the HTTP form is Status(429).
	RateLimited = RPCError(-32005, "daily request count exceeded, request rate limited")
)

func instead(err error) Fault {
	return func(func() (json.RawMessage, error)) (any, error) { return nil, err }
}

// After has the node answer first, of which the client is not told.
func After(f Fault) Fault {
	return func(ask func() (json.RawMessage, error)) (any, error) {
		_, _ = ask()
		return f(ask)
	}
}

// Delay forwards a call after a time, on the real clock.
func Delay(d time.Duration) Fault {
	return func(ask func() (json.RawMessage, error)) (any, error) {
		time.Sleep(d)
		return ask()
	}
}

// Page answers as what stands before a node does, with an HTTP status, and does not forward. On an open WebSocket there is no status: the
// connection is closed.
func Page(status int, header http.Header, text string) Fault {
	return instead(&fakenode.Instead{Status: status, Header: header, Body: func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}})
}

// Status is an empty Page.
func Status(code int) Fault { return Page(code, nil, "") }

// Big answers with a JSON-RPC result, a string, that makes the answer so many bytes long, and does not forward.
func Big(size int64) Fault {
	return instead(&fakenode.Instead{Status: http.StatusOK, Body: func(w io.Writer) error {
		const begin, end = `{"jsonrpc":"2.0","id":1,"result":"0x`, `"}`
		chunk := bytes.Repeat([]byte("0"), 64<<10)
		_, err := io.WriteString(w, begin)
		for left := size - int64(len(begin)+len(end)); err == nil && left > 0; left -= int64(len(chunk)) {
			_, err = w.Write(chunk[:min(int64(len(chunk)), left)])
		}
		if err == nil {
			_, err = io.WriteString(w, end)
		}
		return err
	}})
}

// RPCError answers with a JSON-RPC error and does not forward.
func RPCError(code int, message string) Fault {
	return instead(&fakenode.Error{Code: code, Message: message})
}

// Result answers with this result, whatever its type, and does not forward. nil is null.
func Result(v any) Fault {
	return func(func() (json.RawMessage, error)) (any, error) { return v, nil }
}

// Falsify forwards a call and gives the client what change makes of the node's result. An error of the node, null, and what is no V stay.
func Falsify[V any](change func(result V) any) Fault {
	return func(ask func() (json.RawMessage, error)) (any, error) {
		result, err := ask()
		var v *V
		if err != nil || json.Unmarshal(result, &v) != nil || v == nil {
			return result, err
		}
		return change(*v), nil
	}
}

// When restricts a Rule.
type When func(*Rule)

// If has the rule met only by calls with such params. The function must not call the Proxy.
func If(fits func(params []json.RawMessage) bool) When { return func(r *Rule) { r.when = fits } }

// Once has the rule end with the first call that meets it.
func Once(r *Rule) { r.once = true }

// Rule is a fault in force. Its methods may be called from any goroutine.
type Rule struct {
	p      *Proxy
	method string
	fault  Fault
	when   func([]json.RawMessage) bool // nil: always
	once   bool

	met int // guarded by p.mu
}

// On has calls of a method (or All) meet a fault from now on. Where several rules fit, the newest is met, and one alone.
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
	r.endLocked()
}

func (r *Rule) endLocked() {
	r.p.rules = slices.DeleteFunc(r.p.rules, func(other *Rule) bool { return other == r })
}

// Met is how many calls have met the rule. One that is forwarded has when the node has answered it.
func (r *Rule) Met() int {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return r.met
}

// Await waits until so many calls have met the rule.
func (r *Rule) Await(n int) {
	r.p.t.Helper()
	poll(r.p.t, fmt.Sprintf("%d calls of %s meet a fault", n, r.method), func() bool { return r.Met() >= n })
}

func (p *Proxy) match(method string, params []json.RawMessage) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Backward(p.rules) {
		if (r.method == method || r.method == All) && (r.when == nil || r.when(params)) {
			if r.once {
				r.endLocked()
			}
			return r
		}
	}
	return nil
}
