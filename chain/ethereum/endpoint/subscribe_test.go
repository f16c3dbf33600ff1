package endpoint

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/chain/ethereum"
	"noncegate/internal/access"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

const heads = `["newHeads"]`

// subscribe returns the id of a new subscription.
func (c *client) subscribe(params string) string {
	c.Helper()
	r := c.call(methodSubscribe, params)
	var id string
	if r.Error != nil || json.Unmarshal(r.Result, &id) != nil || !strings.HasPrefix(id, "0x") {
		c.Fatalf("subscribe %s: %v", params, r)
	}
	return id
}

// awaitMembers returns when so many subscriptions share one at the nodes.
func (g *gateway) awaitMembers(params string, n int) {
	g.Helper()
	fs := &g.endpoint.feeds
	wait.Until(g.TB, fmt.Sprint("members: ", n), func() bool {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		return len(fs.byKey[sha256.Sum256([]byte(params))].members) == n
	})
}

func TestEventsOfANodeArePassedOn(t *testing.T) {
	g, c := connect(t)
	id := c.subscribe(heads)
	g.nodes.upstreamOf(heads).on(json.RawMessage(`{"number":"0x1"}`))
	n := c.notification()
	if n.Method != notification || n.Params.Subscription != id || string(n.Params.Result) != `{"number":"0x1"}` || n.Params.Missed != 0 {
		t.Errorf("got %+v", n)
	}
	c.call(methodUnsubscribe, `["`+id+`"]`).wantResult(t, "true")
	wait.For(t, g.nodes.upstreamOf(heads).left, "the end at the node")
	g.nodes.upstreamOf(heads).on(json.RawMessage(`{"number":"0x2"}`))
	c.call(methodUnsubscribe, `["`+id+`"]`).wantError(t, wire.CodeNotFound, "this connection has no such subscription")
	c.call(methodChainID, "[]")
	if len(c.notifications) != 0 {
		t.Errorf("events after the end: %v", c.notifications)
	}
}

func TestTheFirstEventComesAfterTheReply(t *testing.T) {
	_, c := connect(t)
	c.write(call("1", methodSubscribe, `["logs", {"address":"early"}]`))
	must(t, c.read())
	if len(c.notifications) != 0 {
		t.Fatal("an event came before the reply that names its subscription")
	}
	c.end("1")
	if n := c.notification(); string(n.Params.Result) != `"early"` {
		t.Errorf("got %+v", n)
	}
}

func TestClientsThatWantTheSameShareOneSubscription(t *testing.T) {
	g := startGateway(t)
	a, b, other := g.dial(), g.dial(), g.dial()
	idA, idB := a.subscribe(heads), b.subscribe(`[ "newHeads" ]`)
	other.subscribe(`["newPendingTransactions", true]`)
	if len(g.nodes.subs) != 2 || idA == idB {
		t.Errorf("%d subscriptions at the nodes, ids %s and %s", len(g.nodes.subs), idA, idB)
	}
	g.WantMetrics(map[string]float64{"eth_upstream_subscriptions": 2})
	u := g.nodes.upstreamOf(heads)
	u.on(json.RawMessage(`1`))
	a.notification()
	b.notification()
	must(t, a.conn.Close())
	g.awaitMembers(heads, 1)
	u.on(json.RawMessage(`2`))
	if n := b.notification(); string(n.Params.Result) != "2" {
		t.Errorf("got %+v", n)
	}
	must(t, b.conn.Close())
	wait.For(t, u.left, "the end at the node with the last client")
}

func TestLostEventsEndTheConnection(t *testing.T) {
	g := startGateway(t)
	a, b, bystander := g.dial(), g.dial(), g.dial()
	a.subscribe(`["logs",{}]`)
	b.subscribe(`["logs",{}]`)
	bystander.subscribe(heads)
	g.nodes.upstreamOf(`["logs",{}]`).ended(errors.New("the node's connection was lost, " +
		"and events of the subscription with it: read tcp: a long story that does not fit"))
	for _, c := range []*client{a, b} {
		const want = "events of a subscription are lost: the node's connection was lost"
		if code, text := c.closedWith(); code != wire.CloseSubscriptionLost || !strings.HasPrefix(text, want) {
			t.Errorf("closed with %d %s", code, text)
		}
	}
	bystander.call(methodChainID, "[]").wantResult(t, `"0x1"`)
	again := g.dial()
	again.subscribe(`["logs",{}]`)
	wait.Until(t, "both ends to be counted", func() bool { return g.Metric("connections_closed_total{events_lost}") == 2 })
}

func TestAFilterIsKeptOnce(t *testing.T) {
	const filters, bytes = 6, 1 << 19
	g := startGateway(t, func(s *setup) {
		s.ws.MaxSubscriptions, s.bounds.MaxMessageBytes = filters, 2*bytes
	})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // pools keep what they have for one more
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	c := g.dial()
	before := heap()
	for i := range filters {
		c.subscribe(logsOf(i, bytes))
	}
	if kept := heap() - before; kept > filters*bytes*3/2 {
		t.Errorf("%d bytes are kept of filters of %d", kept, filters*bytes)
	}
}

// logsOf are the params of a filter of so many bytes that is like no other.
func logsOf(i, bytes int) string {
	const around = `["logs",{"address":""}]`
	return fmt.Sprintf(`["logs",{"address":"%0*d"}]`, bytes-len(around), i)
}

func TestAPrincipalHasAShareOfTheSubscriptionsAtTheNodes(t *testing.T) {
	for name, change := range map[string]struct {
		bounds func(*Config)
		words  string
	}{
		"their number": {func(c *Config) { c.MaxFeeds = 8 },
			"this principal has 2 subscriptions at the nodes of the chain, as many as it may have; end one"},
		"bytes of filters": {func(c *Config) { c.MaxFilterBytes = 4 * 2000 },
			"the filters of this principal's subscriptions would be longer than the 2000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, func(s *setup) {
				s.ws.Auth = who(map[string]access.Right{"alice": everyRight, "bob": everyRight})
				change.bounds(&s.endpoint)
			})
			alice, more, bob := g.dialAs("alice"), g.dialAs("alice"), g.dialAs("bob")
			first := alice.subscribe(logsOf(1, 1000))
			alice.subscribe(logsOf(1, 1000)) // what is shared counts once
			more.subscribe(strings.ReplaceAll(logsOf(2, 1000), ",", strings.Repeat(" ", 2000)+","))
			more.subscribe(logsOf(1, 1000))
			r := more.call(methodSubscribe, logsOf(3, 1000))
			r.wantError(t, wire.CodeServerBusy, change.words)
			if r.Error == nil || !strings.Contains(string(r.Error.Data), `"stage":"quota","retryAfterMs":1000`) {
				t.Errorf("got %v", r)
			}
			bob.subscribe(logsOf(3, 1000)) // it is the others' share that is used up
			alice.call(methodUnsubscribe, `["`+first+`"]`)
			more.call(methodSubscribe, logsOf(3, 1000)).wantError(t, wire.CodeServerBusy, change.words)
			must(t, alice.conn.Close())
			must(t, more.conn.Close())
			alice = g.dialAs("alice")
			for i := range 2 { // each connection had one
				wait.Until(t, "the share of the connections that ended", func() bool {
					return alice.call(methodSubscribe, logsOf(4+i, 1000)).Error == nil
				})
			}
			g.nodes.refuse = &ethereum.RPCError{Code: -32602, Message: "invalid address"}
			g.dialAs("bob").call(methodSubscribe, logsOf(6, 1000)).wantError(t, -32602, "invalid address")
			g.nodes.refuse = nil
			bob.subscribe(logsOf(7, 1000)) // what a node refused counts no more
		})
	}
}

func TestTheFiltersOfAllClientsAreBounded(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.endpoint.MaxFilterBytes = 2000 })
	a, b := g.dial(), g.dial()
	a.subscribe(logsOf(1, 1000))
	id := b.subscribe(logsOf(2, 1000)) // without authentication nobody has a share
	b.subscribe(logsOf(1, 1000))
	b.call(methodSubscribe, heads).wantError(t, wire.CodeServerBusy, "longer than the 2000 bytes that they may have together")
	b.call(methodUnsubscribe, `["`+id+`"]`).wantResult(t, "true")
	b.subscribe(heads)
}

func TestAMistakeOfOursWhileASubscriptionIsOpenedIsToldToAllWhoWantIt(t *testing.T) {
	g := startGateway(t)
	entered, let := make(chan struct{}), make(chan struct{})
	g.nodes.opening = func() { close(entered); <-let; panic("boom") }
	a, b := g.dial(), g.dial()
	idA := a.begin(methodSubscribe, heads)
	wait.For(t, entered, "the first at the nodes")
	idB := b.begin(methodSubscribe, heads)
	g.awaitMembers(heads, 2)
	close(let)
	a.end(idA).wantError(t, wire.CodeInternal, "the gateway met an error of its own")
	b.end(idB).wantError(t, wire.CodeUnavailable, "nothing happened")
	g.nodes.locked(func() { g.nodes.opening = nil })
	b.subscribe(heads)
}

// Who does not read misses events, is told how many, and costs no memory; a reply is not
// held up by them.
func TestAClientThatDoesNotReadMissesEvents(t *testing.T) {
	g := startGateway(t, func(s *setup) {
		s.ws.SendBuffer = 4 << 10
		s.bounds.MaxAnswerBytes, s.bounds.MaxWaitingBytes = 64<<10, 64<<10
		s.ws.Writer.Marks.High, s.ws.Writer.Marks.Low, s.ws.Writer.Marks.Max = 32<<10, 16<<10, 64<<10
	})
	c := g.dial()
	c.subscribe(heads)
	u, event := g.nodes.upstreamOf(heads), json.RawMessage(`"`+strings.Repeat("x", 8<<10)+`"`)
	for range 2000 {
		u.on(event)
	}
	read := make(chan struct{})
	var source sync.WaitGroup
	source.Go(func() { // the first for which there is room again says what was missed
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
				u.on(event)
			case <-read:
				tick.Stop()
				return
			}
		}
	})
	got, missed := 0, int64(0)
	for missed < 100 {
		n := c.notification()
		got++
		missed += n.Params.Missed
	}
	close(read)
	if source.Wait(); got < 2 {
		t.Errorf("%d events came before %d were missed", got, missed)
	}
}
