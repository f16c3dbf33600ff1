package nonce_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/fasttest"
)

// The settings of nodes with a performance engine: short, so that a run of seconds
// sees leases, grants, holds and doubts end.
const (
	testGrant  = 2 * time.Second
	testHold   = 3 * time.Second // the longest
	testMargin = 100 * time.Millisecond
	testRedis  = 50 * time.Millisecond // the timeout of Redis
)

// control is what a node's service asks about the cluster.
type control struct {
	goal     atomic.Int32
	gone     atomic.Bool
	late     atomic.Bool
	mu       sync.Mutex // guards troubles
	troubles map[nonce.Trouble]int
}

func (c *control) Goal() nonce.Goal      { return nonce.Goal(c.goal.Load()) }
func (c *control) RedisGone() bool       { return c.gone.Load() }
func (c *control) FlushLate(string) bool { return c.late.Load() }
func (c *control) Trouble(t nonce.Trouble, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.troubles == nil {
		c.troubles = map[nonce.Trouble]int{}
	}
	c.troubles[t]++
}

func (c *control) trouble(t nonce.Trouble) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.troubles[t]
}

// fastFigures counts what the performance engine measures.
type fastFigures struct {
	scripts, mirrored, lost, entered, left, waiting atomic.Int64
}

func (f *fastFigures) Scripts(time.Duration, int)     { f.scripts.Add(1) }
func (f *fastFigures) Mirrored(time.Duration)         { f.mirrored.Add(1) }
func (f *fastFigures) Lost(n int)                     { f.lost.Add(int64(n)) }
func (f *fastFigures) GrantLeft(int64, time.Duration) {}
func (f *fastFigures) Waiting(n int)                  { f.waiting.Store(int64(n)) }
func (f *fastFigures) Moved(to nonce.Engine, n int) {
	if to == nonce.Performance {
		f.entered.Add(int64(n))
	} else {
		f.left.Add(int64(n))
	}
}

// engine is what a node of the performance engine has beside its service.
type engine struct {
	*control
	client *fasttest.Client
	fast   *fastFigures
}

func newEngine(s *fasttest.Server) *engine {
	return &engine{control: &control{}, client: fasttest.NewClient(s), fast: &fastFigures{}}
}

// with makes a service have the engine.
func (e *engine) with(ledger nonce.EngineLedger) func(*nonce.Config) {
	return func(c *nonce.Config) {
		c.LeaseTTL, c.StoreTimeout, c.LockWait = time.Second, 500*time.Millisecond, 300*time.Millisecond
		c.DefaultHold, c.MaxHold, c.SweepInterval = 2*time.Second, testHold, 200*time.Millisecond
		c.Fast = &nonce.FastConfig{
			Redis: e.client, Ledger: ledger, Control: e.control, Figures: e.fast,
			Grant: testGrant, BlockMin: 4, BlockMax: 32, Timeout: testRedis, LossMargin: testMargin, MirrorQueue: 16,
		}
	}
}

// member is one node of a world.
type member struct {
	*node
	*engine
	name  string
	basic bool
	store *flaky

	cut    atomic.Bool  // it cannot reach Redis
	away   atomic.Bool  // it cannot reach the store
	frozen atomic.Int64 // unix nanoseconds until which the whole process stands still
}

// world is a cluster under faults.
type world struct {
	t     *testing.T
	disk  *disk
	nodes []*member
	noise int // how often calls break: one in so many; 0: never
	calm  atomic.Bool
	// caused is set where something happened that may make a signer be lost.
	caused atomic.Bool
	// meddled counts tries to mark holds of others, and refused those that were refused
	// for that.
	meddled, refused atomic.Int64
	judge            judge
	late             sync.WaitGroup // what lands when nobody waits for it any more

	mu     sync.Mutex // guards all below
	rng    *rand.Rand
	server *fasttest.Server // the one that new connections reach
	all    []*fasttest.Server
	kept   []*fasttest.Backup // of server, older ones first
	lives  int
	names  int // of requests and hashes
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, disk: newDisk(), rng: rand.New(rand.NewPCG(seed, 5)), lives: 1}
	w.server = fasttest.NewServer(1)
	w.all = []*fasttest.Server{w.server}
	w.disk.Accept(w.server.Identity())
	t.Cleanup(w.late.Wait) // after the nodes have stopped
	w.noise = []int{0, 100, 30, 12}[w.rng.IntN(4)]
	return w
}

// chance is true one time in n, and never with 0.
func (w *world) chance(n int) bool { return n > 0 && w.intn(n) == 0 }

func (w *world) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// between is a time from a to b.
func (w *world) between(a, b time.Duration) time.Duration {
	return a + time.Duration(w.intn(int(b-a)+1))
}

func (w *world) name(what string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names++
	return fmt.Sprintf("%s%d", what, w.names)
}

// add starts a node.
func (w *world) add(name string, change ...func(*nonce.Config)) *member {
	m := &member{name: name, engine: newEngine(w.server)}
	m.basic = slices.ContainsFunc(change, func(c func(*nonce.Config)) bool { cfg := settings(); c(&cfg); return cfg.Mode == nonce.Basic })
	m.store = &flaky{Store: w.disk.Store, fate: func() fate { return w.storeFate(m) }, late: &w.late}
	m.client.SetHooks(fasttest.Hooks{Before: func(c fasttest.Call) fasttest.Fault { return w.redisFault(m, c) }, After: func(fasttest.Call) bool { return w.redisReply(m) }})
	h, err := w.disk.Register(w.t.Context(), lease.Presence{Node: name, URL: "ws://" + name})
	if err != nil {
		w.t.Fatal(err)
	}
	m.node = startAs(w.t, w.disk, m.store, h, append([]func(*nonce.Config){m.with(m.store)}, change...)...)
	w.nodes = append(w.nodes, m)
	return m
}

// stand waits while the node stands still.
func (m *member) stand() {
	if d := time.Until(time.Unix(0, m.frozen.Load())); d > 0 {
		time.Sleep(d)
	}
}

// storeFate is the fate of one call of the store.
func (w *world) storeFate(m *member) fate {
	if !m.basic {
		m.stand()
	}
	f := fate{before: w.between(0, 3*time.Millisecond), after: w.between(0, 3*time.Millisecond)}
	if w.calm.Load() {
		return f
	}
	if m.away.Load() {
		f.notSent, f.dropped = w.chance(2), true
		return f
	}
	if w.chance(w.noise) {
		switch w.intn(5) {
		case 0:
			f.notSent = true
		case 1:
			f.dropped = true
		case 2:
			f.lostReply = true
		case 3:
			f.before = w.between(0, 2*time.Second)
		case 4:
			f.after = w.between(0, 2*time.Second)
		}
	}
	return f
}

// redisFault is the fate of one call of Redis on the way there.
func (w *world) redisFault(m *member, c fasttest.Call) fasttest.Fault {
	m.stand()
	time.Sleep(w.between(0, time.Millisecond))
	switch {
	case w.calm.Load():
		return fasttest.Fault{}
	case m.cut.Load() && w.chance(2):
		return fasttest.NothingSent
	case m.cut.Load():
		return fasttest.Dropped
	case !w.chance(w.noise):
		return fasttest.Fault{}
	}
	switch w.intn(5) {
	case 0:
		return fasttest.NothingSent
	case 1:
		return fasttest.Dropped
	case 2:
		return fasttest.LostReply
	case 3:
		ran := w.intn(c.Scripts + 1)
		return fasttest.Fault{Broken: true, Ran: ran, Replied: w.intn(ran + 1)}
	}
	late := w.between(0, 2*time.Second)
	w.late.Go(func() {
		time.Sleep(late)
		for i := range c.Scripts {
			c.Run(i)
		}
	})
	time.Sleep(testRedis)
	return fasttest.Dropped
}

// redisReply is the way back: a reply may be late, as long as the process stood still.
func (w *world) redisReply(m *member) (lost bool) {
	time.Sleep(w.between(0, time.Millisecond))
	if !w.calm.Load() && w.chance(4*w.noise) {
		time.Sleep(w.between(0, testGrant+testHold))
		return w.chance(2)
	}
	m.stand()
	return false
}

// client is one of the world's: it runs ops as long as ctx lives.
func (w *world) client(ctx context.Context, signers []string) {
	var holds []held
	who := nonce.Principal(w.intn(6)) // 0: everybody
	late := w.chance(4)               // it marks when its holds have ended
	at := w.nodes[w.intn(len(w.nodes))]
	for ctx.Err() == nil {
		if w.chance(8) {
			at = w.nodes[w.intn(len(w.nodes))]
		}
		switch k := w.intn(100); {
		case len(holds) > 0 && k < 50:
			i := w.intn(len(holds))
			if late {
				time.Sleep(time.Until(holds[i].until))
			}
			if w.chance(8) {
				w.meddle(at, holds[i])
			}
			if at, ok := w.end(at, holds[i]); ok {
				holds = append(holds[:i], holds[i+1:]...)
			} else if at != nil {
				w.end(at, holds[i])
			}
		case k < 92:
			got, next := w.allocate(at, signers[w.intn(len(signers))], who)
			holds, at = append(holds, got...), next
		case k < 93:
			w.run(at, &nonce.Op{Kind: nonce.KindSetFloor, Signer: signers[0], Floor: int64(w.intn(200))})
		case k < 96:
			w.run(at, &nonce.Op{Kind: nonce.KindList, Signer: signers[0], List: nonce.ListQuery{Limit: 1 + w.intn(50)}})
		default:
			w.run(at, &nonce.Op{Kind: nonce.KindStatus, Signer: signers[w.intn(len(signers))]})
		}
		time.Sleep(w.between(0, 40*time.Millisecond))
	}
}

// held is a nonce that a client was given.
type held struct {
	handOut
	who   nonce.Principal
	hash  nonce.TxHash
	until time.Time
}

// run runs an op at a node and lets the judge hear what was said.
func (w *world) run(m *member, op *nonce.Op) said {
	s := said{op: op, node: m.name, sent: time.Now()}
	s.result = m.do(op)
	s.heard = time.Now()
	w.judge.hear(s)
	return s
}

// other is the node that a refusal names, or another one.
func (w *world) other(m *member, s said) *member {
	for _, o := range w.nodes {
		if s.result == "not_owner "+o.name+" ws://"+o.name {
			return o
		}
	}
	if s.op.Err == nil {
		return m
	}
	return w.nodes[w.intn(len(w.nodes))]
}

// allocate asks until it is told, at most a few times, and with the same id.
func (w *world) allocate(m *member, signer string, who nonce.Principal) (holds []held, at *member) {
	op := nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1 + w.intn(3), Hold: w.between(time.Second, testHold), Principal: who}
	if w.chance(2) {
		op.RequestID = w.name("r")
	}
	for range 1 + w.intn(5) {
		o := op
		s := w.run(m, &o)
		m = w.other(m, s)
		if o.Err == nil {
			for i, n := range o.Nonces {
				h := held{handOut: handOut{signer, n, o.Attempts[i]}, who: who, until: s.sent.Add(o.HoldLeft)}
				copy(h.hash[:], w.name("hash"))
				holds = append(holds, h)
			}
			if !w.chance(6) {
				return holds, m
			}
			holds = nil // it is asked again, as if the answer had not come
		}
		if op.RequestID == "" {
			return holds, m
		}
	}
	return holds, m
}

// end marks a hold, or leaves it to its deadline. ok is false where it is to be
// marked again, at another node.
func (w *world) end(m *member, h held) (at *member, ok bool) {
	op := &nonce.Op{Kind: nonce.KindMarkUsed, Signer: h.signer, Nonce: h.nonce, Attempt: h.attempt, TxHash: h.hash, Principal: h.who}
	switch k := w.intn(10); {
	case k < 3:
		op = &nonce.Op{Kind: nonce.KindMarkRecyclable, Signer: h.signer, Nonce: h.nonce, Attempt: h.attempt, Principal: h.who}
	case k < 4:
		return m, true
	}
	s := w.run(m, op)
	if s.result == "not_holder" && !w.caused.Load() {
		w.t.Errorf("the holder, %d, is told that it is not: %v", h.who, s)
	}
	if s.result == "not_found" && !w.caused.Load() {
		w.t.Errorf("the holder, %d, is told that there is no such nonce: %v", h.who, s)
	}
	return w.other(m, s), op.Err == nil || op.Kind == nonce.KindMarkRecyclable
}

// meddle marks a hold of somebody else. Where Redis was lost it may be one of which
// nobody knows any more whose it was.
func (w *world) meddle(m *member, h held) {
	op := &nonce.Op{Kind: nonce.KindMarkUsed, Signer: h.signer, Nonce: h.nonce, Attempt: h.attempt, TxHash: h.hash, Principal: h.who + 100}
	if w.chance(2) {
		op = &nonce.Op{Kind: nonce.KindMarkRecyclable, Signer: h.signer, Nonce: h.nonce, Attempt: h.attempt, Principal: h.who + 100}
	}
	if h.who == 0 || w.caused.Load() {
		return
	}
	got := m.do(op)
	w.t.Logf("meddler %v %d#%d of %s at %s by %d: %s", op.Kind, h.nonce, h.attempt, h.signer, clockTime(time.Now()), op.Principal, got)
	if op.Err == nil && !w.caused.Load() {
		w.t.Errorf("%d marked nonce %d#%d of %s, a hold of %d, and was told %s", op.Principal, h.nonce, h.attempt, h.signer, h.who, got)
	}
	w.meddled.Add(1)
	if errors.Is(op.Err, nonce.ErrNotHolder) {
		w.refused.Add(1)
	}
}
