package ethereum

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"noncegate/chain"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/fakenode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var must = expect.Must

const blockTime = 12 * time.Second

// world is a chain, its nodes and a Client, in a bubble of synctest.
type world struct {
	*Client
	t      *testing.T
	net    *fakenode.Net
	chain  *fakenode.Chain
	nodes  []*fakenode.Node // at the hosts a, b, c, …
	reg    *prometheus.Registry
	log    *expect.Buffer
	heads  chan chain.Head
	taken  chain.Head // by take, which alone uses it
	agreed atomic.Pointer[chain.Block]
	stop   func() // ends Run and waits for it
}

// worldStart is the number of the newest block when a world begins.
const worldStart = 200

// worldOf is what run and prepare make a world of.
type worldOf struct {
	nodes  int
	change []func(*Config)
}

func withNodes(nodes int, change ...func(*Config)) worldOf { return worldOf{nodes, change} }

// prepare does a test in a bubble, with a world that does not run yet.
func (s worldOf) prepare(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, s.nodes, s.change...)) })
}

// run does a test in a bubble, with a world that runs.
func (s worldOf) run(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	s.prepare(t, func(t *testing.T, w *world) { test(t, w.run()) })
}

// newWorld makes a world with as many nodes over HTTP, or over WebSocket where ws is
// named, that all have the same newest block. It does not run.
func newWorld(t *testing.T, nodes int, change ...func(*Config)) *world {
	t.Helper()
	w := &world{
		t: t, net: fakenode.NewNet(), reg: prometheus.NewPedanticRegistry(), log: new(expect.Buffer),
		chain: fakenode.NewChain(time.Now().Add(-worldStart*blockTime), blockTime),
		heads: make(chan chain.Head, 1000),
	}
	cfg := Config{ID: "eip155:1", Dial: w.net.Dial}
	head := w.chain.ExtendBy(w.chain.First(), worldStart)
	for i := range nodes {
		host := string(rune('a' + i))
		n := fakenode.New(t, w.net, host+":80", w.chain, 1)
		n.SetHead(head)
		n.SetFinal(below(head, 64))
		w.nodes = append(w.nodes, n)
		cfg.Nodes = append(cfg.Nodes, "http://"+host+":80")
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	w.Client, err = New(cfg, w.reg, slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	must(t, err)
	return w
}

// overWebSocket has all nodes be reached over a WebSocket.
func overWebSocket(cfg *Config) {
	for i, u := range cfg.Nodes {
		cfg.Nodes[i] = strings.Replace(u, "http:", "ws:", 1)
	}
}

// run starts the Client and waits until it knows the newest block.
func (w *world) run() *world {
	w.t.Helper()
	w.start()
	w.settle()
	if h := w.next(); !h.Skipped || h.Latest.Number != w.nodes[0].Head().Number {
		w.t.Fatalf("the first head is %+v", h)
	}
	for len(w.heads) > 0 { // of nodes that answered one after the other
		<-w.heads
	}
	return w
}

func (w *world) start() {
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx, w.take) })
	w.stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(w.stop)
}

// take keeps a head without the block on which nodes agree, of which agreed tells. One that has
// nothing else that is new is left out.
func (w *world) take(h chain.Head) {
	w.agreed.Store(&h.Agreed)
	h.Agreed = chain.Block{}
	same := h.Latest == w.taken.Latest && h.Final == w.taken.Final && h.Reorg == nil && len(h.Uses) == 0 && !h.FinalFell && !h.FinalStands
	w.taken = h
	if !same {
		w.heads <- h
	}
}

// settle lets the nodes be polled, for less than a block's time.
func (w *world) settle() {
	time.Sleep(blockTime - time.Second)
	synctest.Wait()
}

// next returns the next head, which must be there.
func (w *world) next() chain.Head {
	w.t.Helper()
	select {
	case h := <-w.heads:
		return h
	default:
		w.t.Fatal("there is no new head")
		return chain.Head{}
	}
}

// wantHead fails unless b is the newest block of the next head.
func (w *world) wantHead(b *fakenode.Block) {
	w.t.Helper()
	if h := w.next(); h.Latest != blockOf(b) {
		w.t.Errorf("head %+v, want block %d", h, b.Number)
	}
}

// last returns the newest of several heads.
func (w *world) last() chain.Head {
	w.t.Helper()
	h := w.next()
	for len(w.heads) > 0 {
		h = <-w.heads
	}
	return h
}

// to makes b the newest block of all nodes.
func (w *world) to(b *fakenode.Block) {
	for _, n := range w.nodes {
		n.SetHead(b)
	}
}

// reach makes b the newest block of all nodes, which are polled then.
func (w *world) reach(b *fakenode.Block) {
	w.t.Helper()
	w.to(b)
	w.settle()
}

// mine adds a block to the one that the first node has, at all nodes, when its time has
// come, and returns it once the Client had the time to see it.
func (w *world) mine(txs ...fakenode.Tx) *fakenode.Block {
	b := w.chain.Extend(w.nodes[0].Head(), txs...)
	time.Sleep(time.Second)
	w.reach(b)
	return b
}

// below returns the block so many below b.
func below(b *fakenode.Block, n int) *fakenode.Block {
	for range n {
		b = b.Parent
	}
	return b
}

func blockOf(b *fakenode.Block) chain.Block {
	c := chain.Block{Number: b.Number, Hash: chain.Hash(b.Hash), Time: time.Unix(b.Time.Unix(), 0)}
	if b.Parent != nil {
		c.Parent = chain.Hash(b.Parent.Hash)
	}
	return c
}

// fakeAccounts are the accounts 0 to n-1.
func fakeAccounts(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fakenode.Account(i)
	}
	return all
}

// transfer is a transaction of an account.
func transfer(account int, nonce int64) fakenode.Tx {
	return fakenode.Tx{Type: 2, From: fakenode.Account(account), Nonce: nonce, Hash: fakenode.TxHash(account*1000 + int(nonce))}
}

func useOf(t fakenode.Tx) chain.Use {
	return chain.Use{Account: t.From, Nonce: t.Nonce, Tx: chain.Hash(t.Hash)}
}

// nodeStatus returns what is known of a node.
func (w *world) nodeStatus(i int) NodeStatus { return w.Status().Nodes[i] }

// status has a node answer every request with an HTTP status.
func status(code int) func(http.ResponseWriter, *http.Request, []byte) bool {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		http.Error(w, "gone", code)
		return true
	}
}

// figure is the value of a series, as expect.Metric has it.
func (w *world) figure(series string) float64 { w.t.Helper(); return expect.Metric(w.t, w.reg, series) }

func (w *world) wantFigure(series string, want float64) {
	w.t.Helper()
	expect.Metrics(w.t, w.reg, map[string]float64{series: want})
}

// logged is how often the log has a text.
func (w *world) logged(text string) int { return strings.Count(w.log.String(), text) }
