package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/access/quota"
	"noncegate/internal/events"
	"noncegate/internal/wsconn"
	"noncegate/internal/wsconn/wspeer"
	"noncegate/nonce"
	"noncegate/postdb"
	"noncegate/test/lab/expect"
)

// owner is node "b" in fake time, to which the test opens links.
type owner struct {
	*Router
	t       *testing.T
	mu      sync.Mutex // guards all and refused
	net     *wspeer.Network
	hub     *events.Hub
	runs    chan *run
	all     []*run // also those that were taken
	refused []string
	log     *text
	pool    *postdb.Pool

	reserved, left atomic.Int64 // slots of workers that were given, and those that came back
}

// run is a request that the service was given.
type run struct {
	path *nonce.Path
	slot nonce.Slot
	q    *nonce.Request
	r    *nonce.Result
	done nonce.Completion

	ended bool
}

// finish ends it, and end wakes who waits for that.
func (r *run) finish(a nonce.Result) nonce.Waker {
	*r.r, r.ended = a, true
	return r.done.Done(r.r)
}

func (r *run) end(a nonce.Result) {
	if w := r.finish(a); w != nil {
		w.Wake()
	}
}

// Reserve, SubmitOf and WorkerIndex implement Service.
func (o *owner) Reserve(signer string, _ nonce.Principal) (nonce.Slot, bool) {
	if signer == "full" {
		return nonce.Slot{}, false
	}
	o.reserved.Add(1)
	return nonce.Slot{Queue: o, Held: true}, true
}

// Leave implements nonce.Queue.
func (o *owner) Leave(nonce.Principal) { o.left.Add(1) }

func (o *owner) SubmitOf(path *nonce.Path, slot *nonce.Slot, q *nonce.Request, r *nonce.Result, done nonce.Completion) {
	switch q.Signer {
	case "panics":
		panic("a mistake")
	case "slow": // as with --worker-reject-policy caller-runs
		time.Sleep(2 * o.cfg.Timeout)
	}
	n := &run{path: path, slot: *slot, q: q, r: r, done: done}
	o.mu.Lock()
	o.all = append(o.all, n)
	o.mu.Unlock()
	o.runs <- n
}

func (o *owner) WorkerIndex(string) int { return 0 }

// serving is a story about links that other nodes open to node "b".
func serving(t *testing.T, cfg Config, local Local, story func(t *testing.T, o *owner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &owner{t: t, net: wspeer.New(t, "b"), runs: make(chan *run, 10_000), log: new(text)}
		var err error
		o.pool, err = postdb.New(postdb.Config{Workers: 1, Queue: 100_000, Queues: 1, QueueShare: 100_000}, slog.New(slog.DiscardHandler))
		expect.Must(t, err)
		o.hub = events.New(o.pool, func(int) {})
		cfg.Refused = func(reason string) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.refused = append(o.refused, reason)
		}
		if cfg.Secret == "" {
			cfg.Secret = secret
		}
		o.Router, err = New("b", cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(o.log, nil)))
		expect.Must(t, err)
		local.Service, local.Hub, local.Events, local.Interest = o, o.hub, o.hub, o.hub.Interest
		local.Reason = func(err error) string { return "internal" }
		o.Serve(1, local)
		o.net.Host("b").Serve = o.Router
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			expect.Check(t, o.Stop(ctx))
			expect.Check(t, o.pool.Stop(ctx))
			for _, r := range o.all {
				if !r.ended {
					r.end(nonce.Result{Err: nonce.ErrGone})
				}
			}
			if n := o.door.inflight.Used(); n > 0 {
				t.Errorf("%d places are still taken", n)
			}
		})
		story(t, o)
	})
}

// caller is the other side of a link, by hand.
type caller struct {
	t   *testing.T
	ws  *websocket.Conn
	id  uint64
	in  []byte // of the message that is being read
	end error
}

// dial opens the connection of a link.
func (o *owner) dial() *websocket.Conn {
	o.t.Helper()
	ws, _, err := wsconn.Dial(o.t.Context(), websocket.Dialer{NetDialContext: o.net.Dial}, "ws://b/node", nil)
	expect.Must(o.t, err)
	o.t.Cleanup(func() { ws.Close() })
	return ws
}

// link opens a link as a node, with a number.
func (o *owner) link(node string, number int64) *caller {
	o.t.Helper()
	ws := o.dial()
	expect.Must(o.t, o.greeter(node, "b", number, secret, "").greet(ws, time.Now().Add(time.Minute)))
	synctest.Wait()
	return &caller{t: o.t, ws: ws}
}

// greeter is a peer that says hello.
func (o *owner) greeter(node, to string, number int64, secret, database string) *peer {
	r := &Router{self: node, cfg: Config{Secret: secret, Store: func() string { return database }}}
	r.links.Store(number - 1)
	return &peer{r: r, id: to}
}

func (c *caller) say(b []byte) {
	c.t.Helper()
	expect.Must(c.t, c.ws.WriteMessage(websocket.BinaryMessage, b))
}

// ask sends a request on a path, and returns its id.
func (c *caller) ask(path uint64, q nonce.Request) uint64 {
	c.t.Helper()
	c.id++
	c.say(nonce.AppendRequest(binary.AppendUvarint(binary.AppendUvarint([]byte{itRequest}, c.id), path), &q))
	synctest.Wait()
	return c.id
}

// next reads one item and says what it is.
func (c *caller) next() string {
	c.t.Helper()
	if len(c.in) == 0 {
		if _, c.in, c.end = c.ws.ReadMessage(); c.end != nil {
			return "the end: " + c.end.Error()
		}
	}
	f := &frame{b: c.in}
	said := ""
	switch f.tag() {
	case itResult:
		var a nonce.Result
		id := f.number()
		f.sum()
		if read(f, nonce.ReadResult, &a); a.Err != nil {
			said = fmt.Sprintf("#%d %v", id, a.Err)
		} else {
			said = fmt.Sprintf("#%d %v", id, a.Nonces)
		}
	case itEvent:
		var e nonce.Event
		missed := f.number()
		read(f, nonce.ReadEvent, &e)
		said = fmt.Sprintf("event %s/%d missed %d", e.Signer, e.Nonce, missed)
	case itHave:
		said = fmt.Sprint("have ", f.number())
	}
	if f.err != nil {
		c.t.Fatal(f.err)
	}
	c.in = f.b
	return said
}

func (c *caller) want(said ...string) {
	c.t.Helper()
	for _, s := range said {
		if got := c.next(); !strings.HasPrefix(got, s) {
			c.t.Errorf("got %s, want %s", got, s)
		}
	}
}

func allocate(signer string) nonce.Request {
	return nonce.Request{Kind: nonce.KindAllocate, Signer: signer, Count: 1}
}

func TestANodeComesInWhenItProvesTheSecretAndMeansThisNode(t *testing.T) {
	serving(t, Config{Store: func() string { return "here" }}, Local{}, func(t *testing.T, o *owner) {
		refused := 0
		for _, c := range []struct{ name, from, to, database, secret, says, reason string }{
			{"right", "a", "b", "here", secret, "", ""},
			{"wrong secret", "a", "b", "here", "open sesame", saySecret, RefusedSecret},
			{"no secret", "a", "b", "here", "", saySecret, RefusedSecret},
			{"no secret and another node", "a", "c", "there", "", saySecret, RefusedSecret}, // strangers learn nothing
			{"another node", "a", "c", "here", secret, sayNode, RefusedMisplaced},
			{"no node", "a", "", "here", secret, sayNode, RefusedMisplaced},
			{"itself", "b", "b", "here", secret, sayNode, RefusedMisplaced},
			{"nobody", "", "b", "here", secret, sayNode, RefusedMisplaced},
			{"another database", "a", "b", "there", secret, sayDatabase, RefusedMisplaced},
			{"any database", "a", "b", "", secret, sayDatabase, RefusedMisplaced},
		} {
			time.Sleep(2 * time.Second) // or the log leaves it out
			err := o.greeter(c.from, c.to, 1, c.secret, c.database).greet(o.dial(), time.Now().Add(time.Minute))
			e, _ := errors.AsType[*refusal](err)
			if c.reason != "" {
				refused++
			}
			switch {
			case (err == nil) != (c.says == ""), err != nil && (e == nil || e.sentence != c.says):
				t.Errorf("%s: %v", c.name, err)
			case len(o.refused) != refused || refused > 0 && o.refused[refused-1] != c.reason && c.reason != "":
				t.Errorf("%s: counted as %v", c.name, o.refused)
			case c.says != "" && !strings.Contains(o.log.String(), c.says):
				t.Errorf("%s: the log does not say so", c.name)
			}
		}
		if strings.Contains(o.log.String(), "sesame") {
			t.Error("a secret is in the log")
		}
	})
}

// TestTheOtherSideProvesTheSecretToo, or whoever sits at the address would be given requests.
func TestTheOtherSideProvesTheSecretToo(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		fake := wspeer.New(t, "f")
		fake.Host("f").Serve = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
			expect.Must(t, err)
			_, _, err = heed(ws, itHello)
			expect.Must(t, err)
			expect.Must(t, say(ws, appendRandom([]byte{itChallenge})))
			_, _, err = heed(ws, itProof)
			expect.Must(t, err)
			expect.Must(t, say(ws, append([]byte{itWelcome}, make([]byte, 32)...)))
		})
		ws, _, err := wsconn.Dial(t.Context(), websocket.Dialer{NetDialContext: fake.Dial}, "ws://f/node", nil)
		expect.Must(t, err)
		err = o.greeter("a", "f", 1, secret, "").greet(ws, time.Now().Add(time.Minute))
		if err == nil || !strings.Contains(err.Error(), "not proved") {
			t.Errorf("it was believed: %v", err)
		}
	})
}

// TestWhatAnUnprovenServerSaysIsLoggedShortAndSeldom, however it changes.
func TestWhatAnUnprovenServerSaysIsLoggedShortAndSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, status := newWorld(t, Config{}, "a"), 499
		w.net.Host("a").Serve = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			ws, err := new(websocket.Upgrader).Upgrade(rw, r, nil)
			expect.Must(t, err)
			_, _, err = heed(ws, itHello)
			expect.Must(t, err)
			status++
			_ = say(ws, (&refusal{status: status, sentence: strings.Repeat("no ", 10_000)}).append([]byte{itRefusal}))
			ws.Close()
		})
		w.Nodes(w.nodes())
		time.Sleep(time.Minute)
		if n := w.logged("node not reached"); n != maxComplaints || w.logged("no no") == 0 || len(w.log.String()) > 10_000 {
			t.Errorf("%d lines, %d bytes", n, len(w.log.String()))
		}
	})
}

// TestAHandshakeIsOfNoUseAgain: what one side said is taken once, and neither side's proof is the
// other's.
func TestAHandshakeIsOfNoUseAgain(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		shake := func(hello, proofOf []byte) (said [2][]byte, answer []byte) {
			ws := o.dial()
			said[0] = hello
			expect.Must(t, say(ws, hello))
			challenge, _, err := heed(ws, itChallenge)
			expect.Must(t, err)
			if said[1] = proofOf; proofOf == nil {
				said[1] = append(appendText([]byte{itProof}, ""), proof(secret, itProof, hello, challenge, "")...)
			}
			expect.Must(t, say(ws, said[1]))
			_, answer, err = ws.ReadMessage()
			expect.Must(t, err)
			return said, answer
		}
		hello := appendRandom(binary.AppendUvarint([]byte{itHello}, nonce.CodecVersion))
		hello = binary.AppendVarint(appendText(appendText(hello, "a"), "b"), 1)
		said, welcome := shake(hello, nil)
		if welcome[0] != itWelcome {
			t.Fatalf("the handshake was refused: %q", welcome)
		}
		if _, answer := shake(said[0], said[1]); answer[0] != itRefusal {
			t.Error("a handshake was taken twice")
		}
		if _, answer := shake(hello, append(appendText([]byte{itProof}, ""), welcome[1:]...)); answer[0] != itRefusal {
			t.Error("the proof of one side was taken for that of the other")
		}
	})
}

func TestWhatIsNoHandshakeOfThisVersionOpensNoLink(t *testing.T) {
	hello := func(version uint64) []byte {
		return appendRandom(binary.AppendUvarint([]byte{itHello}, version))
	}
	for name, message := range map[string][]byte{
		"nothing": {}, "an item": {itHave, 1}, "half a hello": hello(nonce.CodecVersion), "a later version": hello(nonce.CodecVersion + 1),
		"too long": append(hello(nonce.CodecVersion), bytes.Repeat([]byte("x"), 5000)...),
	} {
		serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
			ws := o.dial()
			expect.Must(t, say(ws, message))
			_, answer, err := ws.ReadMessage()
			told := err == nil && answer[0] == itRefusal && strings.Contains(string(answer), "have version 1, and not 2")
			if told != (name == "a later version") {
				t.Errorf("%s is answered %q, %v", name, answer, err)
			}
		})
	}
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) { // nor who says nothing
		_, _, err := o.dial().ReadMessage()
		synctest.Wait()
		o.door.mu.Lock()
		defer o.door.mu.Unlock()
		if err == nil || o.door.greetings != 0 {
			t.Errorf("it ended with %v, and %d handshakes are under way", err, o.door.greetings)
		}
	})
}

func TestWithoutASecretNodesComeInOverLoopbackOnlyAndThroughNoProxy(t *testing.T) {
	for address, in := range map[string]bool{
		"127.0.0.1:7": true, "127.8.9.1:7": true, "[::1]:7": true, "[::ffff:127.0.0.1]:7": true,
		"10.0.0.1:7": false, "[fe80::1%eth0]:7": false, "[2001:db8::1]:7": false, "0.0.0.0:7": false, "localhost:7": false, "": false,
	} {
		for _, proxy := range []string{"", "X-Forwarded-For", "Forwarded", "Via"} {
			req := &http.Request{RemoteAddr: address, Header: http.Header{proxy: {"127.0.0.1"}}}
			for secret, want := range map[string]bool{"": in && proxy == "", "s": true} {
				if why := (&Router{cfg: Config{Secret: secret}}).stranger(req); (why == "") != want {
					t.Errorf("from %q, header %q, secret %q: %q", address, proxy, secret, why)
				}
			}
			if why := (&Router{cfg: Config{Known: true}}).stranger(req); why == "" { // a program on the same host has no credential for being there
				t.Errorf("from %q without a secret, where clients say who they are", address)
			}
		}
	}
}

func TestRefusedNodesAreLoggedOnceASecondAtMost(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		for range 35 { // 3.5 seconds
			o.Router.refused(&refusal{reason: RefusedSecret, sentence: "no"}, "there", greeted{})
			time.Sleep(100 * time.Millisecond)
		}
		if got := strings.Count(o.log.String(), "refused a node's connection"); got != 4 || len(o.refused) != 35 {
			t.Errorf("%d lines in 3.5 seconds, want 4; %d counted", got, len(o.refused))
		}
	})
}

func TestTheLinksOfOtherNodesAreBounded(t *testing.T) {
	serving(t, Config{}, Local{}, func(t *testing.T, o *owner) {
		knock := func(origin ...string) int {
			_, resp, err := wsconn.Dial(t.Context(), websocket.Dialer{NetDialContext: o.net.Dial}, "ws://b/node", http.Header{"Origin": origin})
			if err != nil && resp == nil {
				t.Fatal(err)
			}
			return resp.StatusCode
		}
		if status := knock("http://b"); status != http.StatusForbidden {
			t.Errorf("a browser gets %d", status)
		}
		o.door.mu.Lock()
		for range maxLinks {
			o.door.links[new(inbound)] = struct{}{}
		}
		o.door.mu.Unlock()
		for key, want := range map[string]int{secret: http.StatusServiceUnavailable, "guessed": http.StatusForbidden} {
			err := o.greeter("a", "b", 1, key, "").greet(o.dial(), time.Now().Add(time.Minute))
			if e, _ := errors.AsType[*refusal](err); e == nil || e.status != want {
				t.Errorf("one link more, with the secret %q: %v", key, err)
			}
		}
		synctest.Wait()
		clear(o.door.links)
		for range maxGreeting { // they say nothing
			if status := knock(); status != http.StatusSwitchingProtocols {
				t.Fatal(status)
			}
		}
		if status := knock(); status != http.StatusServiceUnavailable {
			t.Errorf("one handshake more of a network: %d", status)
		}
		time.Sleep(2 * o.cfg.dialTimeout())
		o.link("a", 1)
		if len(o.door.links) != 1 || o.door.greetings != 0 || len(o.door.greeting) != 0 {
			t.Errorf("%d links, %d handshakes, of %v", len(o.door.links), o.door.greetings, o.door.greeting)
		}
	})
}

func TestHandshakesAreBoundedByNetworkAndInAll(t *testing.T) {
	var d door
	d.init(&Config{MaxTotal: 1})
	enter := func(from string, i int) string { return d.enter(quota.NetworkOf(fmt.Sprintf(from, i))) }
	for i := range maxGreeting + 1 {
		if why := enter("[2001:db8::%x]:7", i); (why != "") != (i == maxGreeting) {
			t.Errorf("handshake %d of an IPv6 network: %q", i, why)
		}
	}
	for i := range maxGreetings - maxGreeting + 1 {
		if why := enter("10.0.0.%d:7", i); (why != "") != (i == maxGreetings-maxGreeting) {
			t.Errorf("handshake %d of other networks: %q", i, why)
		}
	}
}
