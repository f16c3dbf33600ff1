package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/fakenode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLate = errors.New("late")

// rig is one fake node and a Node for it, which runs until the test ends.
type rig struct {
	Node
	fake    *fakenode.Node
	e       *Endpoint
	changes chan error // of a WebSocket
	stop    func()
}

// newRig opens a node at an address. Before it is dialled, each of before sees the fake one.
func newRig(t *testing.T, address string, before ...func(*fakenode.Node)) *rig {
	t.Helper()
	network := fakenode.NewNet()
	e, err := ParseEndpoint(address)
	expect.Must(t, err)
	r := &rig{e: e, changes: make(chan error, 100)}
	r.fake = fakenode.New(t, network, e.Host(), fakenode.NewChain(time.Now(), time.Second), 1)
	for _, f := range before {
		f(r.fake)
	}
	r.Node = Open(e, Config{
		Dial: network.Dial, MaxInflight: 4, MaxAnswer: 4 << 20, Timeout: 5 * time.Second, MaxPause: 10 * time.Second,
		Changed: func(err error) { r.changes <- err },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { r.Run(ctx) })
	r.stop = func() { cancel(); run.Wait() }
	t.Cleanup(r.stop)
	return r
}

// withRig does a test in a bubble, with a rig.
func withRig(t *testing.T, address string, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t, address)) })
}

// do makes one request of the methods given, within ten seconds.
func (r *rig) do(t *testing.T, limit int64, methods ...string) []*Call {
	t.Helper()
	calls := make([]*Call, len(methods))
	for i, m := range methods {
		calls[i] = NewCall(m)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errLate)
	defer cancel()
	r.Do(ctx, 0, calls, limit)
	return calls
}

// body answers every HTTP request with a status and a text.
func (r *rig) body(status int, text string, header ...string) {
	r.fake.OnHTTP(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprint(w, text)
		return true
	})
}

const small = 64 << 10

func TestWhatANodeAnswersOverHTTPIsAnAnswerOrAFailureWithItsKind(t *testing.T) {
	ok := `{"jsonrpc":"2.0","id":1,"result":"0x1"}`
	for _, test := range []struct {
		name, body string
		status     int
		header     []string
		is         error  // of Fail
		says       string // Fail or Err
	}{
		{name: "no JSON", body: "<html>", is: ErrNonsense},
		{name: "nothing", body: "", is: ErrNonsense},
		{name: "neither result nor error", body: `{"jsonrpc":"2.0","id":1}`, is: ErrNonsense},
		{name: "another id", body: strings.Replace(ok, "1,", "7,", 1), is: ErrNonsense, says: "not made"},
		{name: "id as a string", body: strings.Replace(ok, `"id":1`, `"id":"1"`, 1), is: ErrNonsense},
		{name: "an empty array", body: "[]", is: ErrNonsense, says: "1 of 1 requests are not answered"},
		{name: "two answers", body: "[" + ok + "," + ok + "]", is: ErrNonsense},
		{name: "cut off", body: ok[:20], is: ErrNonsense},
		{name: "more behind it", body: ok + ok, is: ErrNonsense},
		{name: "names given twice", body: `{"id":1,"result":1,"result":2}`, is: ErrNonsense},
		{name: "a refusal without id", body: `{"id":null,"error":{"code":-32700,"message":"parse error"}}`, says: "parse error (-32700)"},
		{name: "a refusal that is a string", body: `{"id":1,"error":"go away"}`, says: "go away (0)"},
		{name: "a refusal with strange members", body: `{"id":1,"error":{"code":"x","message":{"a":1}}}`, says: `{"a":1} (0)`},
		{name: "a status", body: "bad gateway\nmore", status: 502, says: "HTTP status 502: bad gateway"},
		{name: "a redirect", status: 302, header: []string{"Location", "http://elsewhere/"}, says: "a redirect, which is not followed"},
		{name: "a status with an answer", body: `{"id":1,"error":{"code":-32602,"message":"no"}}`, status: 400, says: "no (-32602)"},
		{name: "too many requests", body: `{"id":1,"error":{"code":-32005,"message":"no"}}`, status: 429, says: "HTTP status 429"},
		{name: "cut off within its length", body: ok, header: []string{"Content-Length", "100"}, says: "EOF"},
		{name: "more answers than requests", body: "[" + strings.Repeat("{},", 1000) + "{}]", is: ErrNonsense},
		{name: "no key", body: "no", status: 401, says: "HTTP status 401"},
		{name: "too large", body: ok + strings.Repeat(" ", small), is: ErrTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			withRig(t, "http://node:80", func(t *testing.T, r *rig) {
				r.body(max(test.status, 200), test.body, test.header...)
				got := r.do(t, small, "eth_chainId")[0]
				if got.Result != nil || (got.Fail == nil) == (got.Err == nil) {
					t.Fatalf("result %s, refusal %v, failure %v: want one of the last two", got.Result, got.Err, got.Fail)
				}
				if test.is != nil && !errors.Is(got.Fail, test.is) {
					t.Errorf("failure %v, want %v", got.Fail, test.is)
				}
				text := fmt.Sprint(got.Fail)
				if got.Err != nil {
					text = got.Err.Error()
				}
				if !strings.Contains(text, test.says) {
					t.Errorf("says %q, want %q", text, test.says)
				}
				if errors.Is(got.Fail, ErrNotSent) {
					t.Errorf("%v: it was sent", got.Fail)
				}
			})
		})
	}
}

func TestABatchThatIsRefusedAsAWholeIsTold(t *testing.T) {
	for name, body := range map[string]string{
		"under the first id":  `[{"id":1,"error":{"code":-32600,"message":"batch too large"}}]`,
		"as one object":       `{"id":1,"error":{"code":-32600,"message":"no batches"}}`,
		"without an id":       `{"id":null,"error":{"code":-32600,"message":"no batches"}}`,
		"without an id, list": `[{"id":null,"error":{"code":-32600,"message":"no batches"}}]`,
	} {
		withRig(t, "http://node:80", func(t *testing.T, r *rig) {
			r.body(200, body)
			for _, c := range r.do(t, small, "eth_chainId", "eth_blockNumber") {
				if _, ok := errors.AsType[*BatchError](c.Fail); !ok || c.Err != nil || c.Result != nil {
					t.Errorf("%s: failure %v, refusal %v; want a BatchError", name, c.Fail, c.Err)
				}
			}
		})
	}
}

func TestABatchOfWhichAnAnswerIsMissingKeepsTheOthers(t *testing.T) {
	withRig(t, "http://node:80", func(t *testing.T, r *rig) {
		r.body(200, `[{"id":2,"result":"0x2"}]`)
		got := r.do(t, small, "eth_chainId", "eth_blockNumber")
		if !errors.Is(got[0].Fail, ErrNonsense) || string(got[1].Result) != `"0x2"` {
			t.Errorf("got %v and %s, want nonsense and 0x2", got[0].Fail, got[1].Result)
		}
	})
}

func TestWhatCannotHaveReachedTheNodeIsNotSent(t *testing.T) {
	for _, address := range []string{"http://node:80", "ws://node:80"} {
		withRig(t, address, func(t *testing.T, r *rig) {
			nobody := &rig{Node: Open(r.e, Config{Dial: fakenode.NewNet().Dial})}
			if got := nobody.do(t, small, "eth_chainId")[0]; !errors.Is(got.Fail, ErrNotSent) {
				t.Errorf("%s: %v, want ErrNotSent", address, got.Fail)
			}
			call := &Call{Method: "eth_call", Params: json.RawMessage("[")}
			r.Do(t.Context(), 0, []*Call{call}, small)
			if !errors.Is(call.Fail, ErrNotSent) {
				t.Errorf("%s: parameters that are no JSON: %v, want ErrNotSent", address, call.Fail)
			}
		})
	}
}

func TestARequestThatIsNotAnsweredInTimeMayHaveBeenCarriedOut(t *testing.T) {
	for _, address := range []string{"http://node:80", "ws://node:80"} {
		withRig(t, address, func(t *testing.T, r *rig) {
			synctest.Wait()
			block := make(chan struct{})
			defer close(block)
			r.fake.On("eth_slow", func([]json.RawMessage) (any, error) { <-block; return nil, nil })
			begin := time.Now()
			got := r.do(t, small, "eth_slow")[0]
			if got.Fail == nil || errors.Is(got.Fail, ErrNotSent) || time.Since(begin) != 10*time.Second {
				t.Errorf("%s: %v after %v, want a failure that is not ErrNotSent after 10s", address, got.Fail, time.Since(begin))
			}
		})
	}
}

func TestManyLargeAnswersDoNotFillTheMemory(t *testing.T) {
	withRig(t, "http://node:80", func(t *testing.T, r *rig) {
		var mu sync.Mutex
		reading, peak := 0, 0
		full := make(chan struct{}) // closed when as many are read as may; none goes on before
		chunk := []byte(strings.Repeat(" ", 64<<10))
		r.fake.OnHTTP(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			for written := 0; written < 100<<20; written += len(chunk) {
				if _, err := w.Write(chunk); err != nil {
					return true
				}
				if written == smallAnswer+4*len(chunk) { // it is read beyond the small part
					mu.Lock()
					reading++
					if reading > peak {
						peak = reading
						if peak == largeAnswers {
							close(full)
						}
					}
					mu.Unlock()
					<-full
				}
				if written == 3<<20 {
					mu.Lock()
					reading--
					mu.Unlock()
				}
			}
			t.Error("100 MB were read")
			return true
		})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if got := r.do(t, 4<<20, "eth_big")[0]; got.Fail == nil {
					t.Error("an answer of 100 MB is no failure")
				}
			})
		}
		all.Wait()
		if peak != largeAnswers {
			t.Errorf("%d large answers were read at a time, want %d", peak, largeAnswers)
		}
	})
}

func TestCredentialsAreSentAndNeverShown(t *testing.T) {
	const password, key = "p/w%40secret", "0123456789abcdef0123"
	for _, scheme := range []string{"http", "ws"} {
		address := scheme + "://user:" + strings.ReplaceAll(password, "/", "%2F") + "@node:80/v3/" + key + "?apikey=topsecretvalue"
		withRig(t, address, func(t *testing.T, r *rig) {
			synctest.Wait()
			r.fake.On("eth_tell", func([]json.RawMessage) (any, error) {
				return nil, errors.New("no access for " + key + " with topsecretvalue or user:p/w@secret, dXNlcjpwL3dAc2VjcmV0")
			})
			got := r.do(t, small, "eth_tell")[0]
			texts := []string{fmt.Sprint(r.e), got.Err.Error()}
			r.fake.OnHTTP(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
				http.Error(w, "bad key "+key, http.StatusForbidden)
				return true
			})
			r.fake.CloseSockets()
			time.Sleep(time.Minute) // of the bubble: it is dialled again and refused
			texts = append(texts, fmt.Sprint(r.do(t, small, "eth_tell")[0].Fail))
			for _, text := range texts {
				for _, secret := range []string{"secret", key, "dXNlcjpwL3dAc2VjcmV0"} {
					if strings.Contains(text, secret) {
						t.Errorf("%s: %q shows %q", scheme, text, secret)
					}
				}
			}
			if auth := r.fake.Auth(); auth[0] != "Basic dXNlcjpwL3dAc2VjcmV0" {
				t.Errorf("%s: authorization %q", scheme, auth[0])
			}
		})
	}
}

func TestAnAddressThatCannotBeUsedIsRefusedWithoutShowingIt(t *testing.T) {
	for raw, want := range map[string]string{
		"":                            "must begin with ws://",
		"node:8545":                   "must begin with ws://",
		"ftp://node":                  "must begin with ws://",
		"http://":                     "must have a host",
		"ws://:8545":                  "must have a host",
		"http://node/#part":           "must have no fragment",
		"http://user:sec/ret@node":    "percent-encoded",
		"http://user:sec ret@node":    "percent-encoded",
		"http://user:secret@node:x/":  "percent-encoded",
		"http://no de":                "percent-encoded",
		"http://user:secret@/v3":      "must have a host",
		"http:secret@node":            "must have a host",
		"wss://user:secret@node#frag": "must have no fragment",
	} {
		_, err := ParseEndpoint(raw)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%q: error %v, want %q and no secret", raw, err, want)
		}
	}
}
