//go:build unix

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/history"
)

// Fleet is gateways over one database, by node id. Its methods are of the test's goroutine.
type Fleet struct {
	testing.TB
	DB    string
	Args  []string // of every node
	Nodes map[string]*Process
	Names []string // in order of their start
}

// ServeEach starts a gateway for each of names, with --node-id and args, and
// returns once they are linked. A name that ends in "=basic" is of that mode.
func ServeEach(t testing.TB, names string, args ...string) *Fleet {
	t.Helper()
	f := &Fleet{TB: t, DB: Database(t), Args: args, Nodes: make(map[string]*Process)}
	for name := range strings.FieldsSeq(names) {
		name, mode, _ := strings.Cut(name, "=")
		f.Begin(name, "--mode="+cmp.Or(mode, "worker-queue"))
	}
	for _, p := range f.Nodes {
		p.Serves()
	}
	f.Linked()
	return f
}

// Begin starts a node, or one of the same name again. args come after those of all.
func (f *Fleet) Begin(name string, args ...string) *Process {
	f.Helper()
	all := slices.Concat([]string{"--store=" + f.DB, "--node-id=" + name, "--lease-ttl=1s", "--max-holds=4096"}, f.Args, args)
	p := Begin(f.TB, all...)
	if f.Nodes[name] == nil {
		f.Names = append(f.Names, name)
	}
	f.Nodes[name] = p
	return p
}

// Launch starts a node and returns once it serves.
func (f *Fleet) Launch(name string, args ...string) *Process {
	f.Helper()
	p := f.Begin(name, args...)
	p.Serves()
	return p
}

// Drop forgets a node that has ended, or that is not to be counted on.
func (f *Fleet) Drop(name string) {
	delete(f.Nodes, name)
	f.Names = slices.DeleteFunc(f.Names, func(n string) bool { return n == name })
}

// Linked waits until every node knows all others, and has a link to each that owns
// signers if it forwards; and until each has its shards.
func (f *Fleet) Linked() {
	f.Helper()
	owners := len(f.owning())
	for name, p := range f.Nodes {
		p.Await(name+" to know all nodes", func() bool { return p.Value("noncegate_nodes_live") == float64(len(f.Nodes)) })
		if !p.basic() {
			p.Await(name+" to have its links", func() bool { return p.Value("noncegate_peers_linked") >= float64(owners-1) })
		}
	}
	f.Settled()
}

// owning are the nodes that own signers, or shards of them.
func (f *Fleet) owning() (names []string) {
	for name, p := range f.Nodes {
		if !p.basic() {
			names = append(names, name)
		}
	}
	return names
}

func (p *Process) basic() bool { return slices.Contains(p.args, "--mode=basic") }

// Settled waits until each node has the shards that it should have.
func (f *Fleet) Settled() {
	f.Helper()
	Settled(f.TB, f.DB, f.owning()...)
}

// Sum adds up a metric of all nodes.
func (f *Fleet) Sum(name string) (total float64) {
	f.Helper()
	for _, p := range f.Nodes {
		total += p.Value(name)
	}
	return total
}

// ConnectEach opens a connection to every node.
func (f *Fleet) ConnectEach() map[string]*Peer {
	f.Helper()
	conns := make(map[string]*Peer)
	for name, p := range f.Nodes {
		conns[name] = p.Connect()
	}
	return conns
}

// ShardsOf are the tokens of the shards that a node owns.
func (f *Fleet) ShardsOf(node string) map[int]int64 {
	f.Helper()
	conn := Dial(f, f.DB)
	defer conn.Close(f.Context())
	rows, err := conn.Query(f.Context(), `SELECT shard_id, fencing_token FROM shard WHERE owner_node = $1`, node)
	expect.Must(f, err)
	tokens := make(map[int]int64)
	var shard int
	var token int64
	if _, err := pgx.ForEachRow(rows, []any{&shard, &token}, func() error { tokens[shard] = token; return nil }); err != nil {
		f.Fatal(err)
	}
	return tokens
}

// Signers is n signers: name-0 and so on.
func Signers(name string, n int) []string {
	signers := make([]string, n)
	for i := range signers {
		signers[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return signers
}

// Owners allocates once for each signer over c, and returns which node owns each right afterwards.
func Owners(c *Peer, signers []string) map[string]string {
	c.Helper()
	owner := make(map[string]string)
	for _, s := range signers {
		c.Allocate(s, "")
		if owner[s] = StatusOf(c, s).Owner; owner[s] == "" {
			c.Fatalf("nobody owns %s", s)
		}
	}
	return owner
}

// OwnedBy is the signers that a node owns, sorted.
func OwnedBy(owner map[string]string, node string) []string {
	var signers []string
	for _, s := range slices.Sorted(maps.Keys(owner)) {
		if owner[s] == node {
			signers = append(signers, s)
		}
	}
	return signers
}

// crowdSigners is how many signers a crowd works on.
const crowdSigners = 48

// Crowd is clients that allocate one after the other, each with a request id of its own, and repeat what they were not told.
type Crowd struct {
	*Process
	began time.Time
	told  atomic.Int64 // allocations answered

	Mu    sync.Mutex // guards what follows
	Calls []history.Call
	Said  map[string]int // answers by reason
	Ended []error        // how connections ended
	All   sync.WaitGroup
}

// Crowd starts n clients that stop when ctx ends, or at the first connection that ends.
func (p *Process) Crowd(ctx context.Context, n int) *Crowd {
	p.Helper()
	return newCrowd(ctx.Done(), n, p)
}

// Crowd starts n clients, spread over the nodes, that stop as those of [Process.Crowd] do.
func (f *Fleet) Crowd(stop <-chan struct{}, n int) *Crowd {
	f.Helper()
	var all []*Process
	for _, name := range f.Names {
		all = append(all, f.Nodes[name])
	}
	return newCrowd(stop, n, all...)
}

func newCrowd(stop <-chan struct{}, n int, at ...*Process) *Crowd {
	crowd := begun.Add(1)
	c := &Crowd{Process: at[0], began: time.Now(), Said: make(map[string]int)}
	for i := range n {
		conn := at[i%len(at)].Connect()
		c.All.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
				}
				if !c.one(conn, history.Call{Client: i, Signer: fmt.Sprintf("signer-%d", (i+j)%crowdSigners), RequestID: fmt.Sprintf("r%d-%d-%d", crowd, i, j)}) {
					return
				}
			}
		})
	}
	return c
}

// one allocates until it is told a nonce. false: the connection has ended.
func (c *Crowd) one(conn *Peer, call history.Call) bool {
	for {
		conn.Last++
		call.Kind, call.Count, call.HoldMs, call.Start = history.Allocate, 1, time.Minute.Milliseconds(), time.Since(c.began)
		call.Outcome, call.Reason = history.Unknown, "connection closed"
		_ = conn.Conn.Send(conn.Last, &call) // a connection that was closed says why to whoever reads it
		r, err := conn.Read()
		this := call
		this.End = time.Since(c.began)
		c.Mu.Lock()
		if err != nil {
			c.Ended = append(c.Ended, err)
		} else {
			r.Settle(&this)
			c.Said[r.Reason()]++
		}
		c.Calls = append(c.Calls, this)
		c.Mu.Unlock()
		if err != nil {
			return false
		}
		if r.Error == nil {
			c.told.Add(1)
			return true
		}
	}
}

// Reach waits until so many allocations more were answered.
func (c *Crowd) Reach(more int64) {
	c.Helper()
	want := c.told.Load() + more
	c.Await("answers", func() bool { return c.told.Load() >= want })
}

// Only fails the test when something was said that may not be.
func (c *Crowd) Only(reasons ...string) {
	c.Helper()
	for reason, times := range c.Said {
		if !strings.Contains(" "+strings.Join(reasons, "; ")+";", " "+reason+";") {
			c.Errorf("%s was said %d times", reason, times)
		}
	}
}

// Kept has what was answered judged by what is stored.
func (c *Crowd) Kept(final *history.Final, err error) {
	c.Helper()
	expect.Must(c, err)
	h := &history.History{BeganAt: c.began.UnixMilli(), Calls: c.Calls, Final: final}
	for _, v := range history.Check(h, history.Limits{MaxOverdue: time.Hour}).Violations {
		c.Error(v)
	}
}
