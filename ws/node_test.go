package ws

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/internal/metrics"
	"noncegate/nonce"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

func TestANodeComesInWithTheSecretWhenItMeansThisNode(t *testing.T) {
	var log bytes.Buffer
	g := startGateway(t, func(s *setup) {
		s.ws.Nodes.Secret = "open sesame"
		s.ws.Nodes.Store = func() string { return "here" }
		s.Log = slog.NewJSONHandler(&log, nil)
	})
	refused := map[string]float64{}
	for _, c := range []struct {
		name     string
		from, to string
		store    string
		secret   []string
		status   int
		reason   string
	}{
		{"right", "n2", "n1", "here", []string{"open sesame"}, http.StatusSwitchingProtocols, ""},
		{"wrong secret", "n2", "n1", "here", []string{"open sesam"}, http.StatusForbidden, "node_secret"},
		{"no secret, though from loopback", "n2", "n1", "here", nil, http.StatusForbidden, "node_secret"},
		{"an empty secret", "n2", "n1", "here", []string{""}, http.StatusForbidden, "node_secret"},
		{"no secret and another node", "n2", "n3", "here", nil, http.StatusForbidden, "node_secret"}, // strangers learn nothing
		{"another node", "n2", "n3", "here", []string{"open sesame"}, http.StatusMisdirectedRequest, "misdirected"},
		{"no node", "n2", "", "here", []string{"open sesame"}, http.StatusMisdirectedRequest, "misdirected"},
		{"itself", "n1", "n1", "here", []string{"open sesame"}, http.StatusMisdirectedRequest, "misdirected"},
		{"another store", "n2", "n1", "there", []string{"open sesame"}, http.StatusMisdirectedRequest, "misdirected"},
		{"any store", "n2", "n1", "", []string{"open sesame"}, http.StatusMisdirectedRequest, "misdirected"},
		{"nobody", "", "n1", "here", []string{"open sesame"}, http.StatusMisdirectedRequest, "misdirected"},
	} {
		h := http.Header{wire.HeaderNode: {c.from}, wire.HeaderNodeTo: {c.to}, wire.HeaderNodeStore: {c.store}, wire.HeaderNodeSecret: c.secret}
		if response, _ := g.knock(h); response.StatusCode != c.status {
			t.Fatalf("%s: got %v, want %d", c.name, response, c.status)
		}
		if c.reason != "" {
			refused["upgrade_refused_total{"+c.reason+"}"]++
			g.WantMetrics(refused)
		}
	}
	wait.For(t, g.srv.conns.whenEmpty(), "the end of the one that came in")
	said := log.String()
	for _, want := range []string{"another node has connected", "the node secret is missing", "not the node that was meant"} {
		if !strings.Contains(said, want) {
			t.Errorf("the log does not say %q: %s", want, said)
		}
	}
	if strings.Contains(said, "sesam") {
		t.Errorf("a secret is in the log: %s", said)
	}
}

func TestWithoutASecretNodesComeInOverLoopbackOnlyAndThroughNoProxy(t *testing.T) {
	for address, in := range map[string]bool{
		"127.0.0.1:7": true, "127.8.9.1:7": true, "[::1]:7": true, "[::ffff:127.0.0.1]:7": true,
		"10.0.0.1:7": false, "[fe80::1%eth0]:7": false, "[2001:db8::1]:7": false, "0.0.0.0:7": false, "localhost:7": false, "": false,
	} {
		for _, proxy := range []string{"", "X-Forwarded-For", "Forwarded", "Via"} {
			r := &http.Request{RemoteAddr: address, Header: http.Header{proxy: {"127.0.0.1"}}}
			if why := (&NodeConfig{ID: "n1"}).refusal(r); (why == "") != (in && proxy == "") {
				t.Errorf("from %q, header %q: %q", address, proxy, why)
			}
			if why := (&NodeConfig{ID: "n1", Secret: "s"}).refusal(r); why == "" {
				t.Errorf("from %q without the secret that there is", address)
			}
			if r.Header.Set(wire.HeaderNodeSecret, "s"); (&NodeConfig{ID: "n1", Secret: "s"}).refusal(r) != "" {
				t.Errorf("from %q, header %q, with the secret: refused", address, proxy)
			}
		}
	}
}

// A program on the same host has no credential for being there.
func TestWhereClientsMustSayWhoTheyAreNoNodeComesInWithoutASecret(t *testing.T) {
	p := new(inprocess.People)
	g := guardedGateway(t, p)
	response, says := g.wantRefused(asNode("n2"), http.StatusForbidden)
	if !strings.Contains(says, "--node-secret") || !response.Close {
		t.Errorf("it says %q, and its socket is closed: %v", says, response.Close)
	}
	g.WantMetrics(map[string]float64{"upgrade_refused_total{node_secret}": 1, "connections_opened_total": 0})

	known := guardedGateway(t, p, func(s *setup) { s.ws.Nodes.Secret = "open sesame" })
	h := asNode("n2")
	h.Set(wire.HeaderNodeSecret, "open sesame")
	node := known.dialWith(h)
	node.ask("1", "nonce_allocate", `["a"]`)
}

func TestAGatewayWithoutANodeIDLetsNoNodeIn(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.ws.Nodes = NodeConfig{} })
	for _, to := range []string{"", "n1"} {
		g.wantRefused(http.Header{wire.HeaderNode: {"n2"}, wire.HeaderNodeTo: {to}}, http.StatusMisdirectedRequest)
	}
	g.dial().settle()
}

func TestRefusedNodesAreLoggedOnceASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		pool, err := encodepool.New(defaults().Encode, slog.New(slog.DiscardHandler))
		must(t, err)
		reg := prometheus.NewRegistry()
		s, err := New(nil, nil, pool, defaults().ws, metrics.New(reg), reg, slog.New(slog.NewTextHandler(&log, nil)))
		must(t, err)
		for range 35 { // 3.5 seconds
			s.refuseNode(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/ws", nil), http.StatusForbidden, upgradeNodeSecret, "no")
			time.Sleep(100 * time.Millisecond)
		}
		must(t, s.Stop(t.Context()))
		must(t, pool.Stop(t.Context()))
		if got := strings.Count(log.String(), "refused a node's connection"); got != 4 {
			t.Errorf("%d lines in 3.5 seconds, want 4", got)
		}
	})
}

// onPath sends a request with the number of a path.
func (c *client) onPath(path int, id, method, params string) {
	c.Helper()
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":%s,"path":%d}`, id, method, params, path))
}

func TestWhatOneNodeHasUnderWayUnderOneNumberIsOnOnePath(t *testing.T) {
	g := startGateway(t)
	ops := g.ops()
	waiting, release := g.holdWrites()
	node, other, own := g.dialWith(asNode("n2")), g.dialWith(asNode("n2")), g.dial()
	ask := func(c *client, path int, method, signer string) *nonce.Path {
		t.Helper()
		c.onPath(path, "1", method, `["`+signer+`"]`)
		return wait.For(t, ops, "the op").path
	}
	first := ask(node, 7, "nonce_allocate", "a")
	wait.For(t, waiting, "the first commit")
	second, read := ask(node, 7, "nonce_allocate", "a"), ask(node, 7, "nonce_status", "a")
	next, others, clients := ask(node, 8, "nonce_allocate", "a"), ask(other, 7, "nonce_allocate", "a"), ask(own, 7, "nonce_allocate", "a")
	none, noneAgain := ask(node, 0, "nonce_allocate", "a"), ask(node, 0, "nonce_allocate", "a")
	switch {
	case first == nil || first != second:
		t.Error("two writes under one number are on two paths")
	case read != nil || clients != nil:
		t.Error("a read, or a client's op, has a path")
	case next == nil || next == first:
		t.Error("two numbers are on one path")
	case others == nil || others == first:
		t.Error("two connections are on one path")
	case none == nil || none == first || none == noneAgain:
		t.Error("ops without a number are on one path")
	}
	release()
	for range 6 {
		node.reply()
	}
	other.reply()
	own.reply()
	for _, c := range g.srv.conns.all() {
		if c.peer != nil && len(c.peer.streams) != 0 {
			t.Errorf("%d streams are left", len(c.peer.streams))
		}
	}
}

func TestBrokenPathsAreForgottenAfterAWhileAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer("n2")
		for i := range uint64(3) {
			w := p.enter(i + 1)
			w.path.Break(nonce.ErrFenced)
			p.leave(w)
		}
		time.Sleep(BrokenStreamTTL)
		p.forgetLocked(time.Now())
		if len(p.streams) != 0 || len(p.broken) != 0 {
			t.Errorf("%d streams and %d broken ones are left", len(p.streams), len(p.broken))
		}
		for i := range uint64(maxBroken + 10) {
			w := p.enter(i + 1)
			w.path.Break(nonce.ErrFenced)
			p.leave(w)
		}
		if len(p.streams) != maxBroken || len(p.broken) != maxBroken {
			t.Errorf("%d streams and %d broken ones, want %d", len(p.streams), len(p.broken), maxBroken)
		}
	})
}

func TestWhatNodesBringHasPlacesOfItsOwn(t *testing.T) {
	g := startGateway(t, func(s *setup) {
		s.ws.MaxInflight, s.ws.MaxBatch, s.ws.MaxInflightTotal, s.ws.MaxConnections = 8, 8, 8, 1
	})
	rejected := g.rejections()
	waiting, release := g.holdWrites()
	own, node, second := g.dial(), g.dialWith(asNode("n2")), g.dialWith(asNode("n3")) // beyond MaxConnections
	for i := range 8 {
		own.request(fmt.Sprint(i), "nonce_allocate", `["a"]`)
	}
	wait.For(t, waiting, "the commit")
	g.awaitInflight(8)
	for i := range 2 { // a quarter
		node.request(fmt.Sprint(i), "nonce_allocate", `["a"]`)
	}
	wait.Until(g, "the node's requests in flight", func() bool { used, _ := g.srv.nodes.used(); return used == 2 })
	node.request("more", "nonce_allocate", `["a"]`)
	if stage := wait.For(t, rejected, "the refusal"); stage != wire.StageConnection {
		t.Errorf("a node's share is full, and the stage is %s", stage)
	}
	if data := node.wantError("more", "server_busy"); data["stage"] != wire.StageConnection {
		t.Errorf("got %v", data)
	}
	second.request("1", "nonce_allocate", `["a"]`)
	release()
	second.wantResult("1")
	for i := range 8 {
		own.wantResult(fmt.Sprint(i))
	}
	g.wantUnavailable() // a client more
}

func TestTheConnectionsOfNodesAreBounded(t *testing.T) {
	g := startGateway(t)
	for range MaxNodeConnections {
		g.dialWith(asNode("n2"))
	}
	g.wantRefused(asNode("n2"), http.StatusServiceUnavailable)
	g.dial().settle() // which takes no client's slot
}

func TestANodeIsNeverASlowClient(t *testing.T) {
	g := startGateway(t)
	marks := g.srv.nodes.writer.Marks
	must(t, marks.Validate())
	if answers := int64(g.srv.nodes.maxInflight) * (smallReplyBytes + maxIDBytes); marks.Max < answers {
		t.Errorf("%d bytes at most, the answers in flight may need %d", marks.Max, answers)
	}
	var level backpressure.Level
	if d := level.Update(&marks, marks.Max, 0, time.Hour); d.Pause || d.Kick != "" || d.CheckIn != 0 || !d.Drop {
		t.Errorf("full to the cap: %+v, want only events left out", d)
	}
	if d := level.Update(&marks, marks.Max, 0, 2*time.Hour); d.Pause || d.Kick != "" {
		t.Errorf("an hour later: %+v", d)
	}
	if d := level.Update(&marks, marks.Max+1, 0, 2*time.Hour); d.Kick == "" {
		t.Error("there is no cap")
	}
}

func TestARefusalForWantOfAPlaceAtAnotherNodeIsCounted(t *testing.T) {
	g := startGateway(t)
	rejected := g.rejections()
	g.onSubmit(func(s *submission) {
		s.slot.Cancel()
		s.res.Err = nonce.ErrForwardBusy
		s.done.Done(s.res).Wake()
	})
	c := g.dial()
	if data := c.askRefused("1", "nonce_allocate", `["a"]`, "server_busy"); data["stage"] != wire.StageForward {
		t.Errorf("got %v", data)
	}
	if stage := wait.For(t, rejected, "the count"); stage != wire.StageForward {
		t.Errorf("counted at %s", stage)
	}
}

// That a client may not say it is in the transcript bad_between_nodes.
func TestWhoAsksIsSaidByNodes(t *testing.T) {
	g := startGateway(t)
	ops := g.ops()
	node := g.dialWith(asNode("n2"))
	const hash = "0x00000000000000000000000000000000000000000000000000000000000000ff"
	for _, c := range []struct {
		method, params string
		principal      nonce.Principal
		markAny        bool
	}{
		{"nonce_allocate", `{"signer":"a","principal":"00000000000000ab"}`, 0xab, false},
		{"nonce_allocate", `{"signer":"b"}`, 0, false},
		{"nonce_markUsed", `{"signer":"a","nonce":0,"txHash":"` + hash + `","principal":"8000000000000000","markAny":true}`, 1 << 63, true},
		{"nonce_markRecyclable", `{"signer":"a","nonce":1,"markAny":true}`, 0, true},
		{"nonce_extend", `{"signer":"b","nonce":0,"holdMs":1000,"principal":"00000000000000ab","markAny":true}`, 0xab, true},
		{"nonce_markSigned", `{"signer":"b","nonce":0,"txHash":"` + hash + `","principal":"00000000000000ab"}`, 0xab, false},
		{"nonce_repair", `{"signer":"b","nonce":0,"principal":"00000000000000ab"}`, 0xab, false},
		{"nonce_setFloor", `{"signer":"a","floor":1,"principal":"00000000000000ab"}`, 0xab, false},
	} {
		node.call("1", c.method, c.params)
		if got := wait.For(t, ops, "the op"); got.Principal != c.principal || got.MarkAny != c.markAny {
			t.Errorf("%s %s: the op is %v's and may mark any: %t", c.method, c.params, got.Principal, got.MarkAny)
		}
	}
	if data := node.askRefused("bad", "nonce_allocate", `{"signer":"a","principal":"AB"}`, "invalid_params"); data["field"] != "principal" {
		t.Errorf("got %v", data)
	}
}

// TestWhatComesOverALinkThatWasGivenUpIsNotDone: a node that lost a connection sends again over the
// next one, and the network may bring late what it had sent over the first.
func TestWhatComesOverALinkThatWasGivenUpIsNotDone(t *testing.T) {
	g := startGateway(t)
	link := func(number string) *client {
		h := asNode("n2")
		h.Set(wire.HeaderNodeLink, number)
		c := g.dialWith(h)
		c.settle()
		return c
	}
	first := link("1")
	first.ask("1", "nonce_allocate", `["a"]`)
	release := g.hang(first, "2", "nonce_extend", `["a",0,600000]`)
	queued := g.ops()
	first.request("3", "nonce_extend", `["a",0,5000]`)
	<-queued
	second, other := link("2"), g.dialWith(asNode("n3"))
	release()
	first.wantClosed(websocket.CloseAbnormalClosure)
	if held := time.Until(second.heldUntil("4")); held < 500*time.Second {
		t.Errorf("what was sent over the link that was given up was done: the hold ends in %v", held)
	}
	late := link("1") // a lower number ends nothing
	second.settle()
	other.settle()
	for _, c := range g.srv.conns.all() {
		if c.peer.id == "n2" && c.peer.link == 1 { // its upgrade began first and ends last
			g.srv.endOlder(c, time.Time{})
		}
	}
	late.wantClosed(websocket.CloseAbnormalClosure)
	second.settle()
}

// heldUntil asks when the hold of nonce 0 of a ends.
func (c *client) heldUntil(id string) time.Time {
	c.Helper()
	rows := c.ask(id, "nonce_list", `["a"]`)["allocations"].([]any)
	at, err := time.Parse(time.RFC3339Nano, rows[0].(map[string]any)["heldUntil"].(string))
	must(c.TB, err)
	return at
}
