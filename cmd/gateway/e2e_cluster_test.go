//go:build unix

package main

import (
	"bufio"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"noncegate/wire"
)

// fleet is gateways over one database, by node id. Its methods are of the test's
// goroutine.
type fleet struct {
	testing.TB
	db    string
	args  []string // of every node
	nodes map[string]*process
	names []string // in order of their start
}

// serveEach starts a gateway for each of names, with --node-id and args, and
// returns once they are linked. A name that ends in "=basic" is of that mode.
func serveEach(t testing.TB, names string, args ...string) *fleet {
	t.Helper()
	f := &fleet{TB: t, db: database(t), args: args, nodes: make(map[string]*process)}
	for name := range strings.FieldsSeq(names) {
		name, mode, _ := strings.Cut(name, "=")
		f.begin(name, modeArgs(mode)...)
	}
	for _, p := range f.nodes {
		p.serves()
	}
	f.linked()
	return f
}

func modeArgs(mode string) []string {
	if mode == "" {
		return nil
	}
	return []string{"--mode=" + mode}
}

// begin starts a node, or one of the same name again. args come after those of all.
func (f *fleet) begin(name string, args ...string) *process {
	f.Helper()
	all := slices.Concat([]string{"--store=" + f.db, "--node-id=" + name, "--lease-ttl=1s", "--max-holds=4096"}, f.args, args)
	p := begin(f.TB, all...)
	if f.nodes[name] == nil {
		f.names = append(f.names, name)
	}
	f.nodes[name] = p
	return p
}

// launch starts a node and returns once it serves.
func (f *fleet) launch(name string, args ...string) *process {
	f.Helper()
	p := f.begin(name, args...)
	p.serves()
	return p
}

// drop forgets a node that has ended, or that is not to be counted on.
func (f *fleet) drop(name string) {
	delete(f.nodes, name)
	f.names = slices.DeleteFunc(f.names, func(n string) bool { return n == name })
}

// linked waits until every node knows all others, and has a link to each that owns
// signers if it forwards; and until each has its shards.
func (f *fleet) linked() {
	f.Helper()
	owners := len(f.owning())
	for name, p := range f.nodes {
		p.await(name+" to know all nodes", func() bool { return p.value("noncegate_nodes_live") == float64(len(f.nodes)) })
		if !p.basic() {
			p.await(name+" to have its links", func() bool { return p.value("noncegate_peers_linked") >= float64(owners-1) })
		}
	}
	f.settled()
}

// owning are the nodes that own signers, or shards of them.
func (f *fleet) owning() (names []string) {
	for name, p := range f.nodes {
		if !p.basic() {
			names = append(names, name)
		}
	}
	return names
}

// settled waits until each node has the shards that it should have.
func (f *fleet) settled() {
	f.Helper()
	settled(f.TB, f.db, f.owning()...)
}

func (p *process) basic() bool { return slices.Contains(p.cmd.Args, "--mode=basic") }

// value is that of a line of /metrics; 0 when it is not there.
func (p *process) value(name string) float64 {
	p.Helper()
	_, text := p.get("/metrics")
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if number, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(number, 64)
			if err != nil {
				p.Fatal(err)
			}
			return v
		}
	}
	return 0
}

// sum adds up a metric of all nodes.
func (f *fleet) sum(name string) (total float64) {
	f.Helper()
	for _, p := range f.nodes {
		total += p.value(name)
	}
	return total
}

// connectEach opens a connection to every node.
func (f *fleet) connectEach() map[string]*peer {
	f.Helper()
	conns := make(map[string]*peer)
	for name, p := range f.nodes {
		conns[name] = p.connect()
	}
	return conns
}

// named is n signers: name-0 and so on.
func named(name string, n int) []string {
	signers := make([]string, n)
	for i := range signers {
		signers[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return signers
}

func statusOf(c *peer, signer string) wire.StatusResult {
	c.Helper()
	return decode[wire.StatusResult](c, c.want("ok", wire.MethodStatus, allocation(signer, "")))
}

// owners allocates once for each signer over c, and returns which node owns each
// right afterwards.
func owners(c *peer, signers []string) map[string]string {
	c.Helper()
	owner := make(map[string]string)
	for _, s := range signers {
		c.allocate(s, "")
		if owner[s] = statusOf(c, s).Owner; owner[s] == "" {
			c.Fatalf("nobody owns %s", s)
		}
	}
	return owner
}

// of is the signers that a node owns, sorted.
func of(owner map[string]string, node string) []string {
	var signers []string
	for _, s := range slices.Sorted(maps.Keys(owner)) {
		if owner[s] == node {
			signers = append(signers, s)
		}
	}
	return signers
}

// crowd starts n clients, spread over the nodes, that stop as those of
// process.crowd do.
func (f *fleet) crowd(stop <-chan struct{}, n int) *crowd {
	f.Helper()
	c := &crowd{process: f.nodes[f.names[0]], given: make(map[string]string), said: make(map[string]int)}
	for i := range n {
		conn := f.nodes[f.names[i%len(f.names)]].connect()
		c.all.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
				}
				if !c.one(conn, fmt.Sprintf("signer-%d", (i+j)%crowdSigners), fmt.Sprintf("r-%d-%d", i, j)) {
					return
				}
			}
		})
	}
	return c
}

// mark is the params of nonce_markUsed.
func mark(signer string, nonce int64) string {
	return fmt.Sprintf(`{"signer":%q,"nonce":%d,"txHash":%q}`, signer, nonce, hash)
}

func TestLongARequestAtAnyNodeIsServedByTheOneThatOwnsItsSigner(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b c", "--lease-ttl=10s")
	conns := f.connectEach()
	signers := named("signer", 12)
	acquired := func() float64 { return f.sum(`noncegate_lease_acquire_total{result="acquired"}`) }
	before := acquired()
	// Whoever is asked first, a signer settles where it belongs.
	owner := owners(conns["a"], signers)
	for _, name := range f.names {
		if len(of(owner, name)) == 0 {
			t.Errorf("%s owns none of %d signers: %v", name, len(signers), owner)
		}
	}
	at := func(i int) *peer { return conns[f.names[i%len(f.names)]] }
	for i, s := range signers {
		first := at(i).allocate(s, "once")
		if again := at(i+1).allocate(s, "once"); first.Nonce != 1 || again.Nonce != 1 || again.Attempt != 1 || again.FencingToken != first.FencingToken {
			t.Errorf("%s: %+v, and repeated at another node %+v", s, first, again)
		}
		at(i+2).want("conflict", wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"requestId":"once","count":2}`, s))
		at(i+1).want("ok", wire.MethodMarkUsed, mark(s, 1))
		at(i+2).want("ok", wire.MethodMarkUsed, mark(s, 1)) // told the same
		at(i).want("conflict", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":1}`, s))
		at(i).want("conflict", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":0,"txHash":%q,"attempt":7}`, s, hash))
		at(i+1).want("not_found", wire.MethodMarkUsed, mark(s, 99))
		at(i+2).want("ok", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":0}`, s))
		if got := at(i+1).allocate(s, ""); got.Nonce != 0 || got.Attempt != 2 {
			t.Errorf("%s: the released nonce came back as %+v", s, got)
		}
		floor := decode[wire.FloorResult](t, at(i+2).want("ok", wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":10}`, s)))
		several := decode[wire.AllocateResult](t, at(i).want("ok", wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"count":3}`, s)))
		if floor.Next != 10 || several.Nonce != 10 || len(several.Nonces) != 3 {
			t.Errorf("%s: floor %+v, then %+v", s, floor, several)
		}
		for name, c := range conns {
			if st := statusOf(c, s); st.Owner != owner[s] || st.OwnerURL != f.nodes[owner[s]].url || st.Next != 13 {
				t.Errorf("%s shows %s as %+v, want the owner %s", name, s, st, owner[s])
			}
		}
	}
	// Shards have been acquired before.
	if got := acquired() - before; got != 0 {
		t.Errorf("leases were acquired %v times for %d signers", got, len(signers))
	}
	if f.sum(`noncegate_forwarded_total{result="answered"}`) == 0 || f.sum(`noncegate_forwarded_total{result="doubtful"}`) != 0 {
		t.Error("nothing was forwarded, or in doubt")
	}
	consistent(t, f.db)
}

func TestABatchForManySignersIsAnsweredAtAnyNode(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b")
	signers := named("signer", 8)
	for name, c := range f.connectEach() {
		var batch []string
		for i, s := range signers {
			batch = append(batch, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"nonce_allocate","params":{"signer":%q}}`, 2*i, s),
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"nonce_status","params":{"signer":%q}}`, 2*i+1, s))
		}
		if err := c.ws.WriteMessage(1, []byte("["+strings.Join(batch, ",")+"]")); err != nil {
			t.Fatal(err)
		}
		_ = c.ws.SetReadDeadline(time.Now().Add(patience))
		_, data, err := c.ws.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var replies []reply
		if err := wire.Unmarshal(data, &replies); err != nil || len(replies) != len(batch) {
			t.Fatalf("%s: %d replies, %v: %s", name, len(replies), err, data)
		}
		for _, r := range replies {
			if r.Error != nil {
				t.Errorf("%s: %d: %v", name, r.ID, r.Error)
				continue
			}
			// A status sees what came before it in the same batch.
			if r.ID%2 == 1 {
				got := decode[wire.StatusResult](t, &r)
				if want := decode[wire.AllocateResult](t, &replies[slices.IndexFunc(replies, func(o reply) bool { return o.ID == r.ID-1 })]); got.Next != want.Nonce+1 {
					t.Errorf("%s: next %d after nonce %d", got.Signer, got.Next, want.Nonce)
				}
			}
		}
	}
	consistent(t, f.db)
}

// TestOrderIsKeptAcrossNodesAlsoWhileTheOwnerDrains: each allocate gets the next
// nonce and each mark is of a nonce that the request before it was given, so every
// answer is right only if all before it were done, in order.
func TestOrderIsKeptAcrossNodesAlsoWhileTheOwnerDrains(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b c")
	c := f.nodes["a"].connect()
	far := of(owners(c, named("signer", 12)), "b")
	if len(far) == 0 {
		t.Fatal("b owns nothing")
	}
	const rounds, window = 200, 200
	half, room := make(chan struct{}), make(chan struct{}, window)
	first := c.last + 1
	var ends sync.WaitGroup
	ends.Go(func() {
		for i := range rounds {
			if i == rounds/2 {
				close(half)
			}
			for j := range 2 * len(far) {
				s := far[j/2]
				method, params := wire.MethodAllocate, allocation(s, "")
				if j%2 == 1 {
					method, params = wire.MethodMarkUsed, mark(s, int64(i+1))
				}
				room <- struct{}{}
				if err := c.trySend(first+int64(i*2*len(far)+j), method, params); err != nil {
					t.Error(err)
				}
			}
		}
	})
	ends.Go(func() {
		for range rounds * 2 * len(far) {
			r, err := c.read()
			if <-room; err != nil {
				t.Error(err)
				continue
			}
			n := int(r.ID - first)
			if r.Error != nil {
				t.Errorf("request %d was refused: %v", n, r.Error)
			} else if got := decode[wire.MarkResult](t, r); got.Nonce != int64(n/(2*len(far))+1) {
				t.Errorf("request %d for %s was about nonce %d", n, got.Signer, got.Nonce)
			}
		}
	})
	<-half
	f.nodes["b"].signal(syscall.SIGTERM)
	ends.Wait()
	if code := f.nodes["b"].exit(); code != exitOK {
		t.Errorf("b ended with %d", code)
	}
	consistent(t, f.db)
}
