package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"noncegate/backpressure"
	"noncegate/chain"
	"noncegate/encodepool"
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/events"
	"noncegate/internal/metrics"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
	"noncegate/postdb"
	"noncegate/wire"
	"noncegate/writer"
	"noncegate/ws"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// patience is the safety net of every wait for something that must happen.
const patience = 20 * time.Second

// setup is what a test may change before the gateway starts.
type setup struct {
	endpoint Config
	bounds   ws.DialectConfig
	ws       ws.Config
	nonce    service.Config
	chain    chain.Config
	log      slog.Handler
}

func defaults() setup {
	return setup{
		log:      slog.DiscardHandler,
		endpoint: Config{Take: true, OrderWait: patience, ReceiptEvery: time.Millisecond, NodesWait: time.Nanosecond},
		bounds:   ws.DialectConfig{MaxInflight: 64, MaxInflightTotal: 256, MaxMessageBytes: 64 << 10, MaxAnswerBytes: 1 << 20, MaxWaitingBytes: 4 << 20},
		ws: ws.Config{
			MaxConnections: 100, MaxInflight: 64, MaxInflightTotal: 256, MaxMessageBytes: 64 << 10, MaxBatch: 10, MaxSubscriptions: 4,
			MinHold: time.Second, MaxHold: 10 * time.Minute, PingInterval: time.Minute,
			Info: func() wire.InfoResult { return wire.InfoResult{} },
			Writer: writer.Config{
				Marks:       backpressure.Marks{High: 64 << 10, Low: 16 << 10, Max: 1 << 20, SlowAfter: time.Minute, Pause: true, Drop: true, Kick: true},
				MaxMessages: 1024, Share: 512, WriteTimeout: patience, CloseTimeout: patience,
				KickCode: wire.CloseSlowConsumer, KickText: "slow_consumer",
			},
		},
		nonce: service.Config{
			Mode: nonce.WorkerQueue, Workers: 2, QueueCapacity: 1024, Reject: nonce.FailFast,
			LeaseTTL: 10 * time.Second, Rules: rules.Rules{DefaultHold: time.Minute, MaxLive: 64},
			MaxHold: 10 * time.Minute, SweepInterval: time.Hour,
		},
	}
}

// gateway is a server on a real socket, with the real service on a store in memory, the
// real tracker of the chain, and nodes that say what the test says.
type gateway struct {
	testing.TB
	nodes    *fakeNodes
	store    *memstore.Store
	service  *service.Service
	srv      *ws.Server
	hub      *events.Hub
	endpoint *Endpoint
	metrics  *prometheus.Registry
	address  string
	told     *told
}

// told is the sink of the endpoint's own events.
type told struct {
	nonce.EventSink
	mu     sync.Mutex // guards events
	events []nonce.Event
}

func (s *told) Watched(string) bool { return true }

func (s *told) Publish(worker int, placed bool, events []nonce.Event) {
	s.mu.Lock()
	s.events = append(s.events, events...)
	s.mu.Unlock()
	s.EventSink.Publish(worker, placed, events)
}

func startGateway(t testing.TB, changes ...func(*setup)) *gateway {
	t.Helper()
	s := defaults()
	for _, change := range changes {
		change(&s)
	}
	log := slog.New(s.log)
	g := &gateway{TB: t, nodes: newNodes(t), store: memstore.New(4, time.Now), metrics: prometheus.NewRegistry()}
	after, err := postdb.New(postdb.Config{Workers: 2, Queue: 1000, QueueShare: 500, Queues: s.nonce.Workers}, log)
	must(t, err)
	encode, err := encodepool.New(encodepool.Config{Workers: 2, Queue: 4096}, log)
	must(t, err)
	g.hub = events.New(after, func(int) {})
	holder, err := g.store.Register(t.Context(), lease.Presence{Node: "n1", Mode: "worker-queue"})
	must(t, err)
	tracker, err := chain.New(g.nodes, s.chain, g.metrics, log)
	must(t, err)
	chains := chain.NewChains([]*chain.Tracker{tracker})
	s.nonce.Chain = chains
	g.service, err = service.New(t.Context(), g.store, holder, noncetest.Unmeasured{}, g.hub, log, nil, s.nonce)
	must(t, err)
	chains.Serve(g.service, g.hub)
	g.srv, err = ws.New(g.service, g.hub, encode, metrics.New(g.metrics), log, s.ws)
	must(t, err)
	g.told = &told{EventSink: g.hub}
	g.endpoint, err = New(g.nodes, chains, Events{Sink: g.told, WorkerIndex: g.service.WorkerIndex}, s.endpoint, g.metrics, log)
	must(t, err)
	handler, err := Handler(g.srv, s.bounds, g.endpoint)
	must(t, err)
	follow, stopFollowing := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { chains.Run(follow) })
	stopHTTP := g.serve(handler)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		g.store.SetHooks(memstore.Hooks{})
		stopHTTP()
		check(t, g.srv.Stop(ctx))
		stopFollowing()
		following.Wait()
		g.service.Stop()
		check(t, after.Stop(ctx))
		check(t, encode.Stop(ctx))
		if n := g.endpoint.feeds.len(); n != 0 {
			t.Errorf("left behind: %d subscriptions at nodes", n)
		}
		if used := encode.Reserved(); used != 0 {
			t.Errorf("left behind: %d encode places", used)
		}
		g.wantMetrics(map[string]float64{"noncegate_undeclared_labels_total": 0})
	})
	return g
}

// serve listens and returns what stops listening.
func (g *gateway) serve(handler http.Handler) (stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(g.TB, err)
	g.address = l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/ws", g.srv)
	mux.Handle(Prefix, handler)
	web := &http.Server{Handler: mux, ConnState: g.srv.ConnState, ConnContext: g.srv.ConnContext, ReadTimeout: patience, WriteTimeout: patience}
	var served sync.WaitGroup
	served.Go(func() {
		if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			g.Error(err)
		}
	})
	return func() { check(g.TB, web.Close()); served.Wait() }
}

// wantMetrics fails unless the metrics have these values.
func (g *gateway) wantMetrics(want map[string]float64) {
	g.Helper()
	families, err := g.metrics.Gather()
	must(g.TB, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() != "chain" {
					name += "," + l.GetValue()
				}
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			g.Errorf("metric %s: got %v (%v), want %v", name, v, ok, value)
		}
	}
}

// row is what the store has of a nonce.
func (g *gateway) row(signer string, n int64) nonce.Row {
	g.Helper()
	page, err := g.store.List(context.Background(), nonce.ListQuery{Signer: signer, From: n, Limit: 1})
	must(g.TB, err)
	if len(page.Rows) == 0 || page.Rows[0].Nonce != n {
		return nonce.Row{}
	}
	return page.Rows[0]
}

// wantRow fails unless a nonce is in a state, with the transaction.
func (g *gateway) wantRow(signer string, n int64, status nonce.Status, tx chain.Hash) {
	g.Helper()
	if row := g.row(signer, n); row.Status != status || row.TxHash != tx {
		g.Errorf("nonce %d of %s is %v with %v (%s), want %v with %v", n, signer, row.Status, row.TxHash, row.Reason, status, tx)
	}
}

// allocate hands out the next nonce to a principal, beside the endpoint.
func (g *gateway) allocate(signer, principal string) int64 {
	g.Helper()
	op := &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1, Principal: nonce.PrincipalOf(principal)}
	for began := time.Now(); ; {
		err := g.service.Do(g.Context(), op)
		if err == nil {
			return op.Nonces[0]
		}
		if !errors.Is(err, nonce.ErrChainUnknown) || time.Since(began) > patience {
			g.Fatal(err)
		}
		op = &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1, Principal: nonce.PrincipalOf(principal)}
	}
}

// reply is an answer of JSON-RPC.
type reply struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Subscription string          `json:"subscription"`
		Result       json.RawMessage `json:"result"`
		Missed       int64           `json:"missed"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func (r *reply) reason() string {
	var data struct{ Reason string }
	if r.Error != nil {
		_ = json.Unmarshal(r.Error.Data, &data)
	}
	return data.Reason
}

func (r *reply) outcome() string {
	var data struct{ Outcome string }
	if r.Error != nil {
		_ = json.Unmarshal(r.Error.Data, &data)
	}
	return data.Outcome
}

func (r *reply) String() string {
	if r.Error != nil {
		return fmt.Sprintf("%s: error %d %s %s", r.ID, r.Error.Code, r.Error.Message, r.Error.Data)
	}
	return fmt.Sprintf("%s: %s", r.ID, r.Result)
}

// wantError fails unless the reply is an error with the code whose message has the words.
func (r *reply) wantError(t testing.TB, code int, words string) {
	t.Helper()
	if r.Error == nil || r.Error.Code != code || !strings.Contains(r.Error.Message, words) {
		t.Errorf("got %v, want error %d with %q", r, code, words)
	}
}

// wantResult fails unless the reply has the result.
func (r *reply) wantResult(t testing.TB, want string) {
	t.Helper()
	if r.Error != nil || string(r.Result) != want {
		t.Errorf("got %v, want %s", r, want)
	}
}

// people is an access.Authenticator whose credentials are names.
type people struct {
	mu     sync.Mutex
	rights map[string]map[string]access.Right // by name and by signer, or "*"
	quota  access.Quota
}

const everyRight = access.RightAllocate | access.RightMark | access.RightMarkAny | access.RightRead | access.RightSubscribe | access.RightAdmin

// who knows people by their rights on all signers.
func who(rights map[string]access.Right) *people {
	p := &people{rights: map[string]map[string]access.Right{}}
	for name, r := range rights {
		p.rights[name] = map[string]access.Right{"*": r}
	}
	return p
}

func (p *people) Authenticate(r *http.Request) (*access.Session, error) {
	name, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rights[name] == nil {
		return nil, access.ErrInvalid
	}
	may := func(right access.Right, signer string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return (p.rights[name][signer]|p.rights[name]["*"])&right != 0
	}
	s := access.NewSession(name, "key-of-"+name, time.Time{}, may, func(time.Time) error { return nil })
	return s.WithQuota(func() access.Quota { return p.quota }), nil
}

// audited collects what the audit says.
type audited struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (a *audited) Enabled(context.Context, slog.Level) bool { return true }
func (a *audited) WithAttrs([]slog.Attr) slog.Handler       { return a }
func (a *audited) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(attr slog.Attr) bool { line += " " + attr.String(); return true })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, line)
	return nil
}

func auditTo(t testing.TB, a *audited) *audit.Log {
	log, err := audit.New(a, audit.Config{Level: audit.All, Queue: 1000, LoginsRefused: 100, CallsRefused: 100})
	must(t, err)
	t.Cleanup(func() { check(t, log.Stop(context.Background())) })
	return log
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// await waits for a signal that must come.
func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("timed out waiting for " + what)
		panic("unreachable")
	}
}

// eventually returns when something is so that must become so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for began := time.Now(); !so(); runtime.Gosched() {
		if time.Since(began) > patience {
			t.Fatal("timed out waiting for " + what)
		}
	}
}
