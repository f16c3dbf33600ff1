//go:build unix

package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/client"
	"noncegate/nonce/postgres"
	"noncegate/wire"
	"noncegate/ws"
)

// blackHole is an address that takes connections and says nothing.
func blackHole(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // the kernel takes connections; nobody accepts them
	return l.Addr().String()
}

// logged reports whether a line of the gateway's log has all these words.
func (p *process) logged(words ...string) bool {
	for line := range strings.Lines(p.log.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

// mingle allocates at every node at a time for the same signers, at each once a
// round, and fails the test when a refusal is none of reasons, or when anything was
// given twice. Nobody asks again: where nodes do not reach each other, the signers in
// use at one are refused at the others for as long as they are.
func (f *fleet) mingle(rounds int, reasons ...string) {
	f.Helper()
	c := &crowd{process: f.nodes[f.names[0]], given: make(map[string]string), said: make(map[string]int)}
	for name, conn := range f.connectEach() {
		c.all.Go(func() {
			for i := range rounds {
				for _, s := range named("signer", crowdSigners) {
					c.take(conn.call(wire.MethodAllocate, allocation(s, fmt.Sprintf("r-%s-%d", name, i))), s, fmt.Sprintf("r-%s-%d", name, i))
				}
			}
		})
	}
	c.all.Wait()
	c.only(append(reasons, "ok")...)
	if len(c.given) == 0 {
		f.Error("nothing was served")
	}
	kept(f.TB, f.db, c)
}

// take notes an answer.
func (c *crowd) take(r *reply, signer, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said[r.reason()]++
	if r.Error == nil {
		a := decode[wire.AllocateResult](c, r)
		c.give(fmt.Sprintf("%s %d %d", signer, a.Nonce, a.Attempt), id)
	}
}

// TestLongANodeThatAdvertisesAWrongURLIsNotReachedAndHarmsNobody: each of these nodes can
// be used by its own clients, and reaches a; what leads back to it is wrong.
func TestLongANodeThatAdvertisesAWrongURLIsNotReachedAndHarmsNobody(t *testing.T) {
	t.Parallel()
	f := serveEachUnlinked(t, "a", "--forward-timeout=1s")
	foreign := serveEachUnlinked(t, "twin")
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	wrong := map[string]struct{ url, why string }{
		"self":     {f.nodes["a"].url, "421"},
		"nowhere":  {"ws://" + freeAddr(t) + "/ws", "connection refused"},
		"web":      {web.URL, "404"},
		"hole":     {"ws://" + blackHole(t) + "/ws", "did not answer in time"},
		"stranger": {foreign.nodes["twin"].url, "421"},
		"twin":     {foreign.nodes["twin"].url, "421"},
	}
	for name, w := range wrong {
		f.begin(name, "--advertise-url="+w.url)
	}
	for name := range wrong {
		f.nodes[name].serves()
	}
	// Leads to another node of the same store, which is none of these.
	f.launch("other", "--advertise-url="+f.nodes["web"].url)
	wrong["other"] = struct{ url, why string }{"", "421"}

	a := f.nodes["a"]
	for name, w := range wrong {
		a.await("a to say why it does not reach "+name, func() bool {
			return a.logged(`"node not reached"`, fmt.Sprintf(`"node":%q`, name), w.why)
		})
		f.nodes[name].await(name+" to reach a", func() bool { return f.nodes[name].logged(`"linked to node"`, `"node":"a"`) })
	}
	f.mingle(40, "unavailable none")
	toA := a.connect()
	for name := range wrong {
		asked := time.Now()
		if r := toA.call(wire.MethodAllocate, allocation("account-"+name, "")); r.Error != nil && r.reason() != "unavailable none" {
			t.Errorf("a client of a was told %v", r.Error)
		}
		if took := time.Since(asked); took > 2*atOnce {
			t.Errorf("an answer took %v", took)
		}
	}
	if got := everything(t, foreign.db); strings.TrimSpace(got) != "" {
		t.Errorf("requests went to a gateway of another database:\n%s", got)
	}
	if !foreign.nodes["twin"].logged("refused a node's connection") || !a.metric(`noncegate_upgrade_refused_total{reason="node_secret"} 0`) {
		t.Error("the gateway of another database did not log whom it refused")
	}
}

// TestNodesWithEachOthersURLReachNobody: a request that went to the other would come
// back to the first, if it went at all.
func TestNodesWithEachOthersURLReachNobody(t *testing.T) {
	t.Parallel()
	f := &fleet{TB: t, db: database(t), nodes: make(map[string]*process)}
	x, y := freeAddr(t), freeAddr(t)
	f.begin("x", "--listen="+x, "--advertise-url=ws://"+y+"/ws")
	f.begin("y", "--listen="+y, "--advertise-url=ws://"+x+"/ws")
	f.nodes["x"].serves()
	f.nodes["y"].serves()
	for name, other := range map[string]string{"x": "y", "y": "x"} {
		p := f.nodes[name]
		p.await(name+" to find itself", func() bool {
			return p.logged(`"node not reached"`, fmt.Sprintf(`"node":%q`, other), "421") && p.logged("refused a node's connection")
		})
	}
	f.mingle(40, "unavailable none")
	if f.sum(`noncegate_forwarded_total{result="answered"}`)+f.sum(`noncegate_forwarded_total{result="doubtful"}`) != 0 {
		t.Error("something was forwarded")
	}
}

func TestWhatAnotherNodeSentIsNotSentOnByAProcess(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b", "--lease-ttl=1m")
	toA := f.nodes["a"].connect()
	far := of(owners(toA, named("account", 12)), "b")
	before := f.nodes["a"].value(`noncegate_forwarded_total{result="answered"}`)
	header := http.Header{ws.HeaderNode: {"ghost"}, ws.HeaderNodeTo: {"a"}, ws.HeaderNodeStore: {storePlace(t, f.db)}}
	conn, res, err := websocket.DefaultDialer.DialContext(t.Context(), f.nodes["a"].url, header)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	t.Cleanup(func() { _ = conn.Close() })
	ghost := &peer{TB: t, ws: conn, got: make(map[int64]*reply)}
	for _, s := range far {
		r := ghost.want("not_owner", wire.MethodAllocate, allocation(s, ""))
		if d := r.Error.Data; d.OwnerNode != "b" || d.OwnerURL != f.nodes["b"].url {
			t.Errorf("the owner is said to be %+v", d)
		}
	}
	if after := f.nodes["a"].value(`noncegate_forwarded_total{result="answered"}`); after != before {
		t.Errorf("%v requests were sent on", after-before)
	}
	if next := statusOf(toA, far[0]).Next; next != 1 {
		t.Errorf("the next nonce is %d", next)
	}
}

// storePlace is what the nodes of a database show each other of it.
func storePlace(t testing.TB, url string) string {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, 0, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Place()
}

// TestLongNodesWithoutTheSameSecretDoNotTalk: a and b have different secrets and c none.
// Who has none takes whoever comes over loopback, so a and b reach c. The Go client of
// a goes to b by itself for a signer in use there.
func TestLongNodesWithoutTheSameSecretDoNotTalk(t *testing.T) {
	t.Parallel()
	secrets := map[string]string{"a": "first-secret-of-the-cluster", "b": "other-secret-of-the-cluster"}
	f := &fleet{TB: t, db: database(t), nodes: make(map[string]*process)}
	// b comes first and keeps the shards of a, which it does not reach.
	for _, name := range []string{"b", "a", "c"} {
		var args []string
		if secrets[name] != "" {
			args = append(args, "--node-secret="+secrets[name])
		}
		f.launch(name, args...)
	}
	for name, others := range map[string]string{"a": "b", "b": "a", "c": "a b"} {
		p := f.nodes[name]
		for other := range strings.FieldsSeq(others) {
			p.await(name+" to say that "+other+" refused it", func() bool {
				return p.logged(`"node not reached"`, fmt.Sprintf(`"node":%q`, other), "403", "--node-secret")
			})
			q := f.nodes[other]
			q.await(other+" to say that it refused "+name, func() bool {
				return q.logged("refused a node's connection", "secret", fmt.Sprintf(`"from":%q`, name)) &&
					!q.metric(`noncegate_upgrade_refused_total{reason="node_secret"} 0`)
			})
		}
	}
	f.mingle(40, "unavailable none")
	f.followed("a", "b")
	for name, p := range f.nodes {
		for _, secret := range secrets {
			if strings.Contains(p.log.String(), secret) {
				t.Errorf("the log of %s has a secret", name)
			}
		}
	}
}

// followed fails the test unless a Go client of from is given a nonce of a signer that
// others keep in use at owner all the time.
func (f *fleet) followed(from, owner string) {
	f.Helper()
	toOwner := f.nodes[owner].connect()
	var signer string
	all30 := named("in-use", 30)
	if i := slices.IndexFunc(all30, func(s string) bool { return statusOf(toOwner, s).Owner == owner }); i >= 0 {
		signer = all30[i]
	}
	var all sync.WaitGroup
	defer all.Wait()
	done := make(chan struct{})
	defer close(done)
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				toOwner.allocate(signer, "")
			}
		}
	})
	r := f.nodes[from].connect().call(wire.MethodAllocate, allocation(signer, ""))
	if d := r.Error; d == nil || d.Data.OwnerNode != owner || d.Data.OwnerURL != f.nodes[owner].url || !strings.Contains(d.Message, "is not reached from here") {
		f.Errorf("%s says of a signer in use at %s: %v", from, owner, r.Error)
	}
	if _, err := f.dial(from, false).Allocate(f.Context(), client.AllocateRequest{Signer: signer}); err != nil {
		f.Errorf("a Go client of %s for a signer in use at %s: %v", from, owner, err)
	}
}

func TestANodeOfAnotherSchemaDoesNotStartAndTheOthersServeOn(t *testing.T) {
	t.Parallel()
	f := serveEachUnlinked(t, "a")
	c := f.nodes["a"].connect()
	c.allocate(account, "")
	execute(t, f.db, `UPDATE noncegate_schema SET breaking_level = 99`)
	said := refused(t, exitFailure, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--node-id=b", "--store="+f.db)
	if !strings.Contains(said, "99") || !strings.Contains(said, "upgrade the program") {
		t.Errorf("said %q", said)
	}
	if nodes := query(t, f.db, `SELECT node FROM nodes`); nodes != "(a)" {
		t.Errorf("registered: %s", nodes)
	}
	if got := c.allocate(account, ""); got.Nonce != 1 {
		t.Errorf("the node that runs gave %+v", got)
	}
}

// TestLongTheOthersFollowANodeThatIsStartedTwice: the first of two processes with one node
// id ends, and what the third node's clients ask for goes to the second.
func TestLongTheOthersFollowANodeThatIsStartedTwice(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b", "--lease-ttl=3s")
	first := f.nodes["b"]
	toA, toFirst := f.nodes["a"].connect(), first.connect()
	far := of(owners(toA, named("account", 12)), "b")
	second := f.launch("b")
	touch(second.connect(), far)
	_ = toFirst.ws.Close()
	if code := first.exit(); code != exitFailure || !first.logged("later start of the same node id") {
		t.Errorf("the first ended with %d", code)
	}
	began := time.Now()
	took, _ := serveAgain(toA, far, began, "unavailable none")
	t.Logf("%v until a followed the node to its new address", took)
	f.linked() // what a had taken from the first meanwhile is the second's again
	for _, s := range far {
		toA.allocate(s, "") // an owner is shown while the lease runs
		if st := statusOf(toA, s); st.Owner != "b" || st.OwnerURL != second.url {
			t.Errorf("%s is at %s %s", s, st.Owner, st.OwnerURL)
		}
	}
	second.signal(syscall.SIGTERM)
	second.exit()
	touch(toA, far)
	consistent(t, f.db)
}
