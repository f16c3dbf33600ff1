package service_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// cluster is nodes over one disk, each with a router whose links are goroutines. All shards
// are pinned to the first.
type cluster struct {
	t     *testing.T
	disk  *disk
	nodes map[string]*node
	wire  sync.WaitGroup

	mu     sync.Mutex      // guards what follows
	away   map[string]bool // nodes that nobody reaches
	lose   func() bool     // the answer is lost
	before func()
	sent   []string // nodes and kind of each op sent
}

// inCluster runs test in a bubble of fake time with nodes that know one another.
func inCluster(t *testing.T, names []string, test func(t *testing.T, c *cluster), change ...func(*service.Config)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, newDisk(), names, change...)
		pass(time.Second)
		test(t, c)
	})
}

var (
	two   = []string{"a", "b"}
	three = []string{"a", "b", "c"}
)

func newCluster(t *testing.T, d *disk, names []string, change ...func(*service.Config)) *cluster {
	c := &cluster{t: t, disk: d, nodes: map[string]*node{}, away: map[string]bool{}}
	c.pin(names[0])
	for _, name := range names {
		r := &links{cluster: c, self: name, to: map[string]chan sent{}}
		for _, other := range names {
			if other != name {
				r.to[other] = make(chan sent, 1024)
			}
		}
		c.nodes[name] = start(t, c.disk, name, append([]func(*service.Config){looking, func(cfg *service.Config) { cfg.Router = r }}, change...)...)
		for other, queue := range r.to {
			c.wire.Go(func() { r.carry(other, queue) })
		}
		t.Cleanup(func() { // before the nodes stop
			for _, queue := range r.to {
				close(queue)
			}
		})
	}
	t.Cleanup(c.settle)
	return c
}

// pin pins every shard to a node.
func (c *cluster) pin(node string) {
	for shard := range shards {
		if err := c.disk.Pin(c.t.Context(), shard, node); err != nil {
			c.t.Fatal(err)
		}
	}
}

// settle waits until nothing is under way, so that links may end.
func (c *cluster) settle() {
	for _, n := range c.nodes {
		for _, op := range n.send(parse(c.t, "status")) {
			op.wait()
		}
	}
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *cluster) took() (sent string) {
	c.set(func() { sent, c.sent = strings.Join(c.sent, ", "), nil })
	return sent
}

func (c *cluster) owner(name string) string { return c.disk.summary(c.t, name).Lease.Holder.Node }

// links is the router of one node.
type links struct {
	*cluster
	self string
	to   map[string]chan sent
}

func (r *links) Reaches(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.to[node] != nil && !r.away[node]
}

func (r *links) Forward(node, _ string, q *nonce.Request, path uint64, of nonce.Forwarded) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	queue, ok := r.to[node]
	switch {
	case r.away[node] || !ok:
		return nonce.ErrPeerAway
	case len(queue) == cap(queue):
		return nonce.ErrForwardBusy
	}
	r.sent = append(r.sent, fmt.Sprintf("%s>%s %v", r.self, node, q.Kind))
	queue <- sent{q, path, of}
	return nil
}

// carry is the link to one node: it submits there what comes, in order, and brings
// back the answers.
func (r *links) carry(to string, queue <-chan sent) {
	paths := map[uint64]*nonce.Path{}
	var answers sync.WaitGroup
	defer answers.Wait()
	for s := range queue {
		r.mu.Lock()
		before, lose := r.before, r.lose
		r.mu.Unlock()
		if before != nil {
			before()
		}
		if paths[s.path] == nil {
			paths[s.path] = new(nonce.Path)
		}
		answers.Add(1)
		p := newPending(&noncetest.Op{Request: *s.Request})
		p.path = paths[s.path]
		p.then = func() {
			defer answers.Done()
			back(s, &p.op.Result, lose != nil && lose())
		}
		slot, ok := r.nodes[to].Reserve(s.Signer, s.Principal)
		if !ok {
			p.op.Err = nonce.ErrBusy
			p.Done(nil)
			continue
		}
		r.nodes[to].submit(slot, p)
	}
}

// back returns a request with the answer of the other node.
func back(s sent, r *nonce.Result, lost bool) {
	v, word := nonce.Answered, ""
	if r.Err != nil {
		word, _, _ = strings.Cut(refusal(r.Err), " ")
	}
	switch {
	case lost:
		v = nonce.Doubtful
	case word == "not_owner", word == "fenced", word == "draining":
		v = nonce.Bounced
	}
	s.back(r, v)
}

// looking is how nodes look that are to see one another come and go.
func looking(c *service.Config) { c.WatchEvery = 500 * time.Millisecond }
