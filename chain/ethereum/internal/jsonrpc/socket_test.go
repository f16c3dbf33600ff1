package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/rpcconn"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/fakenode"
)

// withSocket does a test in a bubble, with a rig over a WebSocket that is connected.
func withSocket(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	withRig(t, "ws://node:80", func(t *testing.T, r *rig) {
		if err := <-r.changes; err != nil {
			t.Fatalf("not connected: %v", err)
		}
		synctest.Wait() // the fake node knows of the connection, too
		test(t, r)
	})
}

// heard is a subscription to new heads, and what it has brought.
type heard struct {
	*Subscription
	events chan string
	ended  chan error
}

func (r *rig) subscribe(t *testing.T) *heard {
	t.Helper()
	h := &heard{events: make(chan string, 100), ended: make(chan error, 100)}
	var refusal *Error
	var err error
	h.Subscription, refusal, err = r.Subscribe(t.Context(), 0, json.RawMessage(`["newHeads"]`),
		func(raw json.RawMessage) { h.events <- string(raw) }, func(err error) { h.ended <- err })
	if err != nil || refusal != nil {
		t.Fatalf("not subscribed: %v, %v", err, refusal)
	}
	return h
}

func TestASubscriptionThatNobodyWaitsForAnyMoreIsEndedAtTheNode(t *testing.T) {
	withSocket(t, func(t *testing.T, r *rig) {
		let := make(chan struct{})
		r.fake.On("eth_wait", func([]json.RawMessage) (any, error) { <-let; return 1, nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go r.Do(t.Context(), 0, []*Call{NewCall("eth_wait")}, small) // the fake node answers one by one
		synctest.Wait()
		if _, _, err := r.Subscribe(ctx, 0, json.RawMessage(`["newHeads"]`), func(json.RawMessage) {}, func(error) {}); err == nil {
			t.Fatal("subscribed although the node did not answer")
		}
		close(let)
		synctest.Wait()
		r.fake.Emit("newHeads", "one")
		synctest.Wait()
		if n := r.fake.Subscribed("newHeads"); n != 0 {
			t.Errorf("%d subscriptions are open at the node, want none", n)
		}
	})
}

func TestALostConnectionIsMadeAnewAndEndsWhatWasOnIt(t *testing.T) {
	withSocket(t, func(t *testing.T, r *rig) {
		h := r.subscribe(t)
		first := r.Session()
		block := make(chan struct{})
		r.fake.On("eth_slow", func([]json.RawMessage) (any, error) { <-block; return nil, nil })
		waiting := make(chan *Call)
		go func() { waiting <- r.do(t, small, "eth_slow")[0] }()
		synctest.Wait()
		r.fake.CloseSockets()
		close(block)
		if got := <-waiting; got.Fail == nil || errors.Is(got.Fail, ErrNotSent) {
			t.Errorf("the request under way: %v, want a failure that is not ErrNotSent", got.Fail)
		}
		if err := <-h.ended; err == nil {
			t.Error("the subscription ended without a reason")
		}
		if err := <-r.changes; err == nil || r.Session() != 0 {
			t.Errorf("told %v in session %d, want an error and none", err, r.Session())
		}
		if got := r.do(t, small, "eth_chainId")[0]; !errors.Is(got.Fail, ErrNotSent) {
			t.Errorf("without a connection: %v, want ErrNotSent", got.Fail)
		}
		if err := <-r.changes; err != nil || r.Session() == first {
			t.Errorf("told %v in session %d, want another than %d", err, r.Session(), first)
		}
		call := NewCall("eth_chainId")
		r.Do(t.Context(), first, []*Call{call}, small)
		if !errors.Is(call.Fail, ErrNotSent) {
			t.Errorf("a request for the session before: %v, want ErrNotSent", call.Fail)
		}
		if got := r.do(t, small, "eth_chainId")[0]; string(got.Result) != `"0x1"` {
			t.Errorf("in the new session: %s, %v", got.Result, got.Fail)
		}
	})
}

func TestCallsOfOthersHoldUpNoneOfTheGatewaysOwn(t *testing.T) {
	withSocket(t, func(t *testing.T, r *rig) {
		session := r.Session()
		ask := func(ctx context.Context, method string) error {
			call := NewCall(method)
			r.Do(ctx, session, []*Call{call}, small)
			return call.Fail
		}
		others := ForOthers(t.Context())
		if err := ask(others, "eth_chainId"); err != nil {
			t.Fatalf("a call before there is a connection for it: %v", err)
		}
		synctest.Wait()
		let, answered := make(chan struct{}), make(chan error, 1)
		r.fake.On("eth_wait", func([]json.RawMessage) (any, error) { <-let; return 1, nil })
		go func() { answered <- ask(others, "eth_wait") }()
		synctest.Wait()
		p := r.Node.(*socket)
		if !idle(t, p.own) || idle(t, p.others) || r.Dials() != 1 {
			t.Errorf("the gateway's own connection is idle: %v, that of others: %v, which was made %d times; want true, false, 1",
				idle(t, p.own), idle(t, p.others), r.Dials())
		}
		if err := ask(t.Context(), "eth_chainId"); err != nil {
			t.Errorf("beside a call of others: %v", err)
		}
		if close(let); <-answered != nil {
			t.Error("the call of others failed")
		}
		c, err := p.others.Live(0)
		expect.Must(t, err)
		c.Close(errLate)
		synctest.Wait()
		if err := ask(others, "eth_chainId"); err != nil || r.Session() != session || len(r.changes) != 0 {
			t.Errorf("without a connection for others: %v, in session %d", err, r.Session())
		}
		time.Sleep(time.Second)
		if r.Dials() != 2 {
			t.Errorf("it was connected %d times, want 2", r.Dials())
		}
	})
}

// idle reports whether no call waits for an answer on the connection there is.
func idle(t *testing.T, k *rpcconn.Kept) bool {
	t.Helper()
	c, err := k.Live(0)
	expect.Must(t, err)
	return c.Idle()
}

func TestReconnectEndsOnlyTheSessionThatIsMeant(t *testing.T) {
	withSocket(t, func(t *testing.T, r *rig) {
		r.Reconnect(r.Session()+1, errLate)
		synctest.Wait()
		if len(r.changes) != 0 {
			t.Error("the connection of another session was ended")
		}
		r.Reconnect(r.Session(), errLate)
		if err := <-r.changes; !errors.Is(err, errLate) {
			t.Errorf("ended with %v, want the reason given", err)
		}
	})
}

// upgradeAndSleep takes a WebSocket and does not even answer pings, until the other side
// goes.
func upgradeAndSleep(t *testing.T, w http.ResponseWriter, q *http.Request) bool {
	up := websocket.Upgrader{}
	ws, err := up.Upgrade(w, q, nil)
	if err != nil {
		t.Error(err)
		return true
	}
	defer ws.Close()
	ws.SetPingHandler(func(string) error { return nil })
	for {
		if _, _, err := ws.ReadMessage(); err != nil {
			return true
		}
	}
}

func TestANodeThatIsSilentForAMinuteIsConnectedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "ws://node:80", func(n *fakenode.Node) {
			n.OnHTTP(func(w http.ResponseWriter, q *http.Request, _ []byte) bool { return upgradeAndSleep(t, w, q) })
		})
		<-r.changes
		begin := time.Now()
		if err := <-r.changes; err == nil || time.Since(begin) != silentFor {
			t.Errorf("told %v after %v, want an error after %v", err, time.Since(begin), silentFor)
		}
	})
}

func TestWhatANodeSendsOverAWebSocketEndsTheConnectionIfItIsNonsense(t *testing.T) {
	for _, test := range []struct {
		name, sent string
		lost       bool
	}{
		{"no JSON", "<html>", true},
		{"an answer to nothing", `{"id":99,"result":1}`, true},
		{"too large, and of nobody", strings.Repeat(" ", 5<<20), true},
		{"too large, and too late", `{"id":0,"result":"` + strings.Repeat("x", 5<<20) + `"}`, false},
		{"much too large", `{"id":0,"result":"` + strings.Repeat("x", 70<<20) + `"}`, true},
		{"an answer that is late", `{"id":0,"result":1}`, false},
		{"an error about nothing", `{"id":null,"error":{"code":-32700,"message":"what"}}`, false},
		{"a request", `{"id":5,"method":"eth_chainId"}`, true},
		{"another notification", `{"method":"eth_news","params":{}}`, false},
		{"an event of no subscription", `{"method":"eth_subscription","params":{"subscription":"0x9","result":1}}`, false},
		{"a strange event", `{"method":"eth_subscription","params":[1]}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			withSocket(t, func(t *testing.T, r *rig) {
				r.fake.Write(test.sent)
				synctest.Wait()
				if lost := len(r.changes) > 0; lost != test.lost {
					t.Errorf("connection lost: %v, want %v", lost, test.lost)
				}
			})
		})
	}
}

func TestAnAnswerThatIsTooLargeFailsItsOwnRequestAlone(t *testing.T) {
	for _, form := range []string{
		`{"jsonrpc":"2.0","id":2,"result":"%s"}`, `{"jsonrpc":"2.0","result":"%s","id":2}`, `[{"result":"%s","id":2}]`,
	} {
		withSocket(t, func(t *testing.T, r *rig) {
			r.fake.On("eth_slow", func([]json.RawMessage) (any, error) { return nil, fakenode.ErrSilent })
			first, second := make(chan *Call), make(chan *Call)
			go func() { first <- r.do(t, small, "eth_slow")[0] }()
			synctest.Wait()
			go func() { second <- r.do(t, small, "eth_slow")[0] }()
			synctest.Wait()
			r.fake.Write(fmt.Sprintf(form, strings.Repeat("x", 5<<20)))
			if got := <-second; !errors.Is(got.Fail, ErrTooLarge) {
				t.Errorf("%.30s: %v, want ErrTooLarge", form, got.Fail)
			}
			r.fake.Write(`{"id":1,"result":"0x7"}`)
			if got := <-first; string(got.Result) != `"0x7"` || len(r.changes) != 0 {
				t.Errorf("%.30s: the other request: %s, %v", form, got.Result, got.Fail)
			}
		})
	}
}

func TestAnErrorWithoutIDIsThatOfTheOnlyRequestUnderWay(t *testing.T) {
	withSocket(t, func(t *testing.T, r *rig) {
		block := make(chan struct{})
		defer close(block)
		r.fake.On("eth_slow", func([]json.RawMessage) (any, error) { <-block; return nil, nil })
		for _, methods := range [][]string{{"eth_slow"}, {"eth_slow", "eth_slow"}} {
			waiting := make(chan []*Call)
			go func() { waiting <- r.do(t, small, methods...) }()
			synctest.Wait()
			r.fake.Write(`{"id":null,"error":{"code":-32600,"message":"cannot read that"}}`)
			for _, c := range <-waiting {
				_, batch := errors.AsType[*BatchError](c.Fail)
				if batch != (len(methods) > 1) || (c.Err == nil) != batch {
					t.Errorf("%d calls: refusal %v, failure %v", len(methods), c.Err, c.Fail)
				}
			}
		}
	})
}

func TestAttemptsToConnectBecomeRarerAndHonourTheNode(t *testing.T) {
	withRig(t, "ws://node:80", func(t *testing.T, r *rig) {
		r.fake.OnHTTP(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Retry-After", "120")
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return true
		})
		<-r.changes // the first may have been connected before OnHTTP
		r.fake.CloseSockets()
		time.Sleep(20 * time.Minute)
		tries := 0
		for len(r.changes) > 0 {
			err := <-r.changes
			tries++
			if err != nil && strings.Contains(err.Error(), "503") && !strings.Contains(err.Error(), "not now") {
				t.Errorf("error %v does not say why", err)
			}
		}
		if tries < 9 || tries > 12 {
			t.Errorf("%d tries in 20 minutes at a node that wants two minutes between them", tries)
		}
	})
}
