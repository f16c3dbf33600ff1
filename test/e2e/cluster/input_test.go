//go:build unix

package cluster

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
	"noncegate/test/e2e"
	"noncegate/wire"
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

// mingle allocates at every node at a time for the same signers, at each once a
// round, and fails the test when a refusal is none of reasons, or when anything was
// given twice. Nobody asks again: where nodes do not reach each other, the signers in
// use at one are refused at the others for as long as they are.
func mingle(f *e2e.Fleet, rounds int, reasons ...string) {
	f.Helper()
	c := &e2e.Crowd{Process: f.Nodes[f.Names[0]], Given: make(map[string]string), Said: make(map[string]int)}
	for name, conn := range f.ConnectEach() {
		c.All.Go(func() {
			for i := range rounds {
				for _, s := range e2e.Signers("signer", e2e.CrowdSigners) {
					take(c, conn.Call(wire.MethodAllocate, e2e.Allocation(s, fmt.Sprintf("r-%s-%d", name, i))), s, fmt.Sprintf("r-%s-%d", name, i))
				}
			}
		})
	}
	c.All.Wait()
	c.Only(append(reasons, "ok")...)
	if len(c.Given) == 0 {
		f.Error("nothing was served")
	}
	c.Kept(f.DB)
}

// take notes an answer.
func take(c *e2e.Crowd, r *e2e.Reply, signer, id string) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Said[r.Reason()]++
	if r.Error == nil {
		a := e2e.Decode[wire.AllocateResult](c, r)
		c.Give(fmt.Sprintf("%s %d %d", signer, a.Nonce, a.Attempt), id)
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
		"self":     {f.Nodes["a"].URL, "421"},
		"nowhere":  {"ws://" + freeAddr(t) + "/ws", "connection refused"},
		"web":      {web.URL, "404"},
		"hole":     {"ws://" + blackHole(t) + "/ws", "did not answer in time"},
		"stranger": {foreign.Nodes["twin"].URL, "421"},
		"twin":     {foreign.Nodes["twin"].URL, "421"},
	}
	for name, w := range wrong {
		f.Begin(name, "--advertise-url="+w.url)
	}
	for name := range wrong {
		f.Nodes[name].Serves()
	}
	// Leads to another node of the same store, which is none of these.
	f.Launch("other", "--advertise-url="+f.Nodes["web"].URL)
	wrong["other"] = struct{ url, why string }{"", "421"}

	a := f.Nodes["a"]
	for name, w := range wrong {
		a.Await("a to say why it does not reach "+name, func() bool {
			return a.Logged(`"node not reached"`, fmt.Sprintf(`"node":%q`, name), w.why)
		})
		f.Nodes[name].Await(name+" to reach a", func() bool { return f.Nodes[name].Logged(`"linked to node"`, `"node":"a"`) })
	}
	mingle(f, 40, "unavailable none")
	toA := a.Connect()
	for name := range wrong {
		asked := time.Now()
		if r := toA.Call(wire.MethodAllocate, e2e.Allocation("account-"+name, "")); r.Error != nil && r.Reason() != "unavailable none" {
			t.Errorf("a client of a was told %v", r.Error)
		}
		if took := time.Since(asked); took > 2*e2e.AtOnce {
			t.Errorf("an answer took %v", took)
		}
	}
	if got := e2e.Everything(t, foreign.DB); strings.TrimSpace(got) != "" {
		t.Errorf("requests went to a gateway of another database:\n%s", got)
	}
	if !foreign.Nodes["twin"].Logged("refused a node's connection") || !a.Metric(`noncegate_upgrade_refused_total{reason="node_secret"} 0`) {
		t.Error("the gateway of another database did not log whom it refused")
	}
}

// TestNodesWithEachOthersURLReachNobody: a request that went to the other would come
// back to the first, if it went at all.
func TestNodesWithEachOthersURLReachNobody(t *testing.T) {
	t.Parallel()
	f := &e2e.Fleet{TB: t, DB: e2e.Database(t), Nodes: make(map[string]*e2e.Process)}
	x, y := freeAddr(t), freeAddr(t)
	f.Begin("x", "--listen="+x, "--advertise-url=ws://"+y+"/ws")
	f.Begin("y", "--listen="+y, "--advertise-url=ws://"+x+"/ws")
	f.Nodes["x"].Serves()
	f.Nodes["y"].Serves()
	for name, other := range map[string]string{"x": "y", "y": "x"} {
		p := f.Nodes[name]
		p.Await(name+" to find itself", func() bool {
			return p.Logged(`"node not reached"`, fmt.Sprintf(`"node":%q`, other), "421") && p.Logged("refused a node's connection")
		})
	}
	mingle(f, 40, "unavailable none")
	if f.Sum(`noncegate_forwarded_total{result="answered"}`)+f.Sum(`noncegate_forwarded_total{result="doubtful"}`) != 0 {
		t.Error("something was forwarded")
	}
}

func TestWhatAnotherNodeSentIsNotSentOnByAProcess(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b", "--lease-ttl=1m")
	toA := f.Nodes["a"].Connect()
	far := e2e.OwnedBy(e2e.Owners(toA, e2e.Signers("account", 12)), "b")
	before := f.Nodes["a"].Value(`noncegate_forwarded_total{result="answered"}`)
	header := http.Header{wire.HeaderNode: {"ghost"}, wire.HeaderNodeTo: {"a"}, wire.HeaderNodeStore: {databaseID(t, f.DB)}}
	conn, res, err := websocket.DefaultDialer.DialContext(t.Context(), f.Nodes["a"].URL, header)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	t.Cleanup(func() { _ = conn.Close() })
	ghost := &e2e.Peer{TB: t, WS: conn, Got: make(map[int64]*e2e.Reply)}
	for _, s := range far {
		r := ghost.Want("not_owner", wire.MethodAllocate, e2e.Allocation(s, ""))
		if d := r.Error.Data; d.OwnerNode != "b" || d.OwnerURL != f.Nodes["b"].URL {
			t.Errorf("the owner is said to be %+v", d)
		}
	}
	if after := f.Nodes["a"].Value(`noncegate_forwarded_total{result="answered"}`); after != before {
		t.Errorf("%v requests were sent on", after-before)
	}
	if next := e2e.StatusOf(toA, far[0]).Next; next != 1 {
		t.Errorf("the next nonce is %d", next)
	}
}

// databaseID is what the nodes of a database show each other of it.
func databaseID(t testing.TB, url string) string {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, 0, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.DatabaseID()
}

// TestLongNodesWithoutTheSameSecretDoNotTalk: a and b have different secrets and c none.
// Who has none takes whoever comes over loopback, so a and b reach c. The Go client of
// a goes to b by itself for a signer in use there.
func TestLongNodesWithoutTheSameSecretDoNotTalk(t *testing.T) {
	t.Parallel()
	secrets := map[string]string{"a": "first-secret-of-the-cluster", "b": "other-secret-of-the-cluster"}
	f := &e2e.Fleet{TB: t, DB: e2e.Database(t), Nodes: make(map[string]*e2e.Process)}
	// b comes first and keeps the shards of a, which it does not reach.
	for _, name := range []string{"b", "a", "c"} {
		var args []string
		if secrets[name] != "" {
			args = append(args, "--node-secret="+secrets[name])
		}
		f.Launch(name, args...)
	}
	for name, others := range map[string]string{"a": "b", "b": "a", "c": "a b"} {
		p := f.Nodes[name]
		for other := range strings.FieldsSeq(others) {
			p.Await(name+" to say that "+other+" refused it", func() bool {
				return p.Logged(`"node not reached"`, fmt.Sprintf(`"node":%q`, other), "403", "--node-secret")
			})
			q := f.Nodes[other]
			q.Await(other+" to say that it refused "+name, func() bool {
				return q.Logged("refused a node's connection", "secret", fmt.Sprintf(`"from":%q`, name)) &&
					!q.Metric(`noncegate_upgrade_refused_total{reason="node_secret"} 0`)
			})
		}
	}
	mingle(f, 40, "unavailable none")
	followed(f, "a", "b")
	for name, p := range f.Nodes {
		for _, secret := range secrets {
			if strings.Contains(p.Printed(), secret) {
				t.Errorf("the log of %s has a secret", name)
			}
		}
	}
}

// followed fails the test unless a Go client of from is given a nonce of a signer that
// others keep in use at owner all the time.
func followed(f *e2e.Fleet, from, owner string) {
	f.Helper()
	toOwner := f.Nodes[owner].Connect()
	var signer string
	all30 := e2e.Signers("in-use", 30)
	if i := slices.IndexFunc(all30, func(s string) bool { return e2e.StatusOf(toOwner, s).Owner == owner }); i >= 0 {
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
				toOwner.Allocate(signer, "")
			}
		}
	})
	r := f.Nodes[from].Connect().Call(wire.MethodAllocate, e2e.Allocation(signer, ""))
	if d := r.Error; d == nil || d.Data.OwnerNode != owner || d.Data.OwnerURL != f.Nodes[owner].URL || !strings.Contains(d.Message, "is not reached from here") {
		f.Errorf("%s says of a signer in use at %s: %v", from, owner, r.Error)
	}
	if _, err := dial(f, from, false).Allocate(f.Context(), client.AllocateRequest{Signer: signer}); err != nil {
		f.Errorf("a Go client of %s for a signer in use at %s: %v", from, owner, err)
	}
}

func TestANodeOfAnotherSchemaDoesNotStartAndTheOthersServeOn(t *testing.T) {
	t.Parallel()
	f := serveEachUnlinked(t, "a")
	c := f.Nodes["a"].Connect()
	c.Allocate(e2e.Account, "")
	e2e.Execute(t, f.DB, `UPDATE noncegate_schema SET breaking_level = 99`)
	said := e2e.Refused(t, e2e.ExitFailure, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--node-id=b", "--store="+f.DB)
	if !strings.Contains(said, "99") || !strings.Contains(said, "upgrade the program") {
		t.Errorf("said %q", said)
	}
	if nodes := e2e.Query(t, f.DB, `SELECT node FROM nodes`); nodes != "(a)" {
		t.Errorf("registered: %s", nodes)
	}
	if got := c.Allocate(e2e.Account, ""); got.Nonce != 1 {
		t.Errorf("the node that runs gave %+v", got)
	}
}

// TestLongTheOthersFollowANodeThatIsStartedTwice: the first of two processes with one node
// id ends, and what the third node's clients ask for goes to the second.
func TestLongTheOthersFollowANodeThatIsStartedTwice(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b", "--lease-ttl=3s")
	first := f.Nodes["b"]
	toA, toFirst := f.Nodes["a"].Connect(), first.Connect()
	far := e2e.OwnedBy(e2e.Owners(toA, e2e.Signers("account", 12)), "b")
	second := f.Launch("b")
	e2e.Touch(second.Connect(), far)
	_ = toFirst.WS.Close()
	if code := first.Exit(); code != e2e.ExitFailure || !first.Logged("later start of the same node id") {
		t.Errorf("the first ended with %d", code)
	}
	began := time.Now()
	took, _ := e2e.ServeAgain(toA, far, began, "unavailable none")
	t.Logf("%v until a followed the node to its new address", took)
	f.Linked() // what a had taken from the first meanwhile is the second's again
	for _, s := range far {
		toA.Allocate(s, "") // an owner is shown while the lease runs
		if st := e2e.StatusOf(toA, s); st.Owner != "b" || st.OwnerURL != second.URL {
			t.Errorf("%s is at %s %s", s, st.Owner, st.OwnerURL)
		}
	}
	second.Signal(syscall.SIGTERM)
	second.Exit()
	e2e.Touch(toA, far)
	e2e.Consistent(t, f.DB)
}
