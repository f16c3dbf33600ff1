package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"noncegate/chain"
	"noncegate/internal/access"
	"noncegate/internal/events"
	"noncegate/internal/relay"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
	"noncegate/ws"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// patience is the safety net of every wait for something that must happen.
const patience = wait.Patience

var must, check = inprocess.Must, inprocess.Check

// setup is what a test may change before the gateway starts.
type setup struct {
	inprocess.Config
	endpoint Config
	bounds   relay.Config
	ws       ws.Config
	chain    chain.Config
}

func defaults() setup {
	s := setup{
		Config: inprocess.Defaults(),
		endpoint: Config{Take: true, OrderWait: patience, OfferAgain: time.Millisecond, ReceiptEvery: time.Millisecond,
			NodesWait: time.Nanosecond},
		bounds: relay.Config{MaxWaitingBytes: 16 << 20, RoomConfig: ws.RoomConfig{
			Bounds: ws.Bounds{MaxInflight: 64, MaxInflightTotal: 256, MaxMessageBytes: 64 << 10}, MaxAnswerBytes: 1 << 20,
		}},
		ws: ws.Config{
			Bounds:         ws.Bounds{MaxInflight: 64, MaxInflightTotal: 256, MaxMessageBytes: 64 << 10},
			MaxConnections: 100, MaxBatch: 10, MaxSubscriptions: 4,
			MinHold: time.Second, MaxHold: 10 * time.Minute, PingInterval: time.Minute,
			Info:   func() wire.InfoResult { return wire.InfoResult{} },
			Writer: inprocess.Writer(),
		},
	}
	s.Service.Rules.MaxLive = 64
	return s
}

// gateway is a server on a real socket, with the real service on a store in memory, the
// real tracker of the chain, and nodes that say what the test says.
type gateway struct {
	*inprocess.Core
	nodes    *fakeNodes
	srv      *ws.Server
	endpoint *Endpoint
	offerer  *Offerer
	address  string
}

func startGateway(t testing.TB, changes ...func(*setup)) *gateway {
	t.Helper()
	s := defaults()
	for _, change := range changes {
		change(&s)
	}
	s.Metrics = prometheus.NewRegistry()
	g := &gateway{nodes: newNodes(t)}
	chains := chain.NewChains([]*chain.Tracker{chain.New(g.nodes, s.chain, s.Metrics, slog.New(s.Log))}, chain.ChainsConfig{Wait: patience}, slog.New(s.Log))
	s.Service.Chain = chains
	g.Core = inprocess.Start(t, s.Config)
	chains.Serve(g.Service, g.Hub)
	var err error
	g.srv, err = ws.New(g.Service, g.Hub, g.Encode, s.ws, g.Set, g.Metrics, g.Logger)
	must(t, err)
	g.endpoint, err = New(g.nodes, chains, Events{Sink: g.Hub, WorkerIndex: g.Service.WorkerIndex}, g.Store, s.endpoint, g.Metrics, g.Logger)
	must(t, err)
	handler, err := Handler(g.srv, s.bounds, g.endpoint)
	must(t, err)
	follow, stopFollowing := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { chains.Run(follow) })
	g.offerer = NewOfferer(g.Service, g.Store, g.Logger, g.endpoint)
	following.Go(func() { g.offerer.Run(follow) })
	mux := http.NewServeMux()
	mux.Handle("/ws", g.srv)
	mux.Handle(Prefix, handler)
	address, stopHTTP := inprocess.Serve(t, &http.Server{
		Handler: mux, ConnState: g.srv.ConnState, ConnContext: g.srv.ConnContext, ReadTimeout: patience, WriteTimeout: patience,
	})
	g.address = address
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		g.Store.SetHooks(memstore.Hooks{})
		stopHTTP()
		check(t, g.srv.Stop(ctx))
		stopFollowing()
		following.Wait()
		g.Stop(ctx)
		fs := &g.endpoint.feeds
		fs.mu.Lock()
		defer fs.mu.Unlock()
		if len(fs.byKey) != 0 || fs.bytes != 0 || len(fs.usages) != 0 {
			t.Errorf("left behind: %d subscriptions at nodes, filters of %d bytes, what %d principals hold", len(fs.byKey), fs.bytes, len(fs.usages))
		}
		g.WantNoSlots()
	})
	return g
}

// row is what the store has of a nonce.
func (g *gateway) row(signer string, n int64) nonce.Row {
	g.Helper()
	page, err := g.Store.List(context.Background(), nonce.ListQuery{Signer: signer, From: n, Limit: 1})
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

// do runs a request beside the endpoint.
func (g *gateway) do(q *nonce.Request) error {
	_, err := g.Service.Do(g.Context(), q)
	return err
}

// allocate hands out the next nonce to a principal, beside the endpoint.
func (g *gateway) allocate(signer, principal string) int64 {
	g.Helper()
	for began := time.Now(); ; {
		got, err := g.Service.Do(g.Context(), &nonce.Request{Kind: nonce.KindAllocate, Signer: signer, Count: 1,
			Principal: nonce.PrincipalOf(principal)})
		if err == nil {
			return got.Nonces[0]
		}
		if !errors.Is(err, nonce.ErrChainUnknown) || time.Since(began) > patience {
			g.Fatal(err)
		}
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

// said is what the data of an error says.
func (r *reply) said() (data wire.ErrorData) {
	if r.Error != nil {
		_ = json.Unmarshal(r.Error.Data, &data)
	}
	return data
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

// wantHashOf fails unless the result is the hash of a transaction.
func (r *reply) wantHashOf(t testing.TB, raw string) {
	t.Helper()
	r.wantResult(t, `"`+hashOf(raw).String()+`"`)
}

const everyRight = inprocess.EveryRight &^ access.RightRepair

// letIn is a gateway for such people.
func letIn(rights map[string]access.Right) func(*setup) {
	return func(s *setup) { s.ws.Auth = who(rights) }
}

// who knows people by their rights on all signers.
func who(rights map[string]access.Right) *inprocess.People {
	p := new(inprocess.People)
	for name, r := range rights {
		p.Grant(name, "*", r)
	}
	return p
}

// watcher is a subscriber to the gateway's own events.
type watcher chan wire.Event

// Take implements events.Subscriber.
func (w watcher) Take(event *events.Event, _ int64) bool {
	var e wire.Event
	_ = json.Unmarshal(event.JSON(), &e)
	w <- e
	return true
}

// watch returns the events of a signer.
func (g *gateway) watch(signer string) <-chan wire.Event {
	g.Helper()
	w := make(watcher, 100)
	s := g.Hub.Subscribe(w, []string{signer})
	s.Announce()
	s.Start()
	g.Cleanup(func() { s.Close() })
	return w
}
