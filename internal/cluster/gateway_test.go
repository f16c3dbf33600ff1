package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
	"noncegate/ws"
)

// patience is the safety net of every wait for something that must happen.
const patience = wait.Patience

// gateway is a real node on a real socket, with a store in memory.
type gateway struct {
	*httptest.Server
	ws   *ws.Server
	node lease.Node
}

func startGateway(t *testing.T, id, secret string) *gateway {
	t.Helper()
	cfg := inprocess.Defaults()
	cfg.Node, cfg.Service.Rules.MaxLive = id, 3
	core := inprocess.Start(t, cfg)
	srv, err := ws.New(core.Service, core.Hub, core.Encode, ws.Config{
		MaxConnections: 10, MaxInflight: 256, MaxInflightTotal: 10_000, MaxMessageBytes: 64 << 10, MaxBatch: 100, MaxSubscriptions: 4,
		MinHold: time.Second, MaxHold: 10 * time.Minute, PingInterval: time.Minute,
		Nodes:  ws.NodeConfig{ID: id, Secret: secret, MaxInflight: 1000},
		Info:   func() wire.InfoResult { return wire.InfoResult{} },
		Writer: inprocess.Writer(),
	}, core.Set, core.Metrics, core.Logger)
	inprocess.Must(t, err)
	g := &gateway{Server: httptest.NewServer(srv), ws: srv, node: node(id, 1)}
	g.node.URL = g.URL
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		inprocess.Check(t, srv.Stop(ctx))
		core.Stop(ctx)
		g.Close()
	})
	return g
}

// router makes one that knows the gateway as node.
func (g *gateway) router(t *testing.T, cfg Config, node lease.Node) (*Router, *service, *sink, *inprocess.Buffer) {
	t.Helper()
	svc, events, log := &service{back: make(chan back, 1000)}, &sink{heard: make(chan struct{}, 1000)}, new(inprocess.Buffer)
	cfg.Forward = true
	r, err := New("self", cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(log, nil)))
	inprocess.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		inprocess.Check(t, r.Stop(ctx))
	})
	r.Serve(1, events)
	r.Nodes([]lease.Node{node})
	return r, svc, events, log
}

// do forwards op to the gateway and waits for its end.
func do(t *testing.T, r *Router, svc *service, op *op) (nonce.Verdict, error) {
	t.Helper()
	expect.Must(t, forwardTo(r, svc, "b", "", op))
	b := wait.For(t, svc.back, "the op to come back")
	return b.verdict, b.op.Err
}

func TestARealGatewayServesWhatIsForwarded(t *testing.T) {
	g := startGateway(t, "b", "sesame")
	r, svc, events, _ := g.router(t, Config{Secret: "sesame"}, g.node)
	r.InterestChanged(func() (bool, []string) { return false, []string{"s"} })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r.Await(ctx)

	first := allocation("s")
	first.Count = 2
	if v, err := do(t, r, svc, first); v != nonce.Answered || err != nil || fmt.Sprint(first.Nonces, first.Attempts) != "[0 1] [1 1]" || first.Token == 0 {
		t.Fatalf("verdict %d, %v, %+v", v, err, first)
	}
	hash, _ := nonce.ParseTxHash("0x" + strings.Repeat("ab", 32))
	used := &op{Request: &nonce.Request{Kind: nonce.KindMarkUsed, Signer: "s", Nonce: 0, Attempt: 1, TxHash: hash}}
	if v, err := do(t, r, svc, used); v != nonce.Answered || err != nil || used.Status != nonce.Consumed {
		t.Errorf("used: verdict %d, %v, %v", v, err, used.Status)
	}
	release := &op{Request: &nonce.Request{Kind: nonce.KindMarkRecyclable, Signer: "s", Nonce: 0, Attempt: 1, Reason: "r"}}
	v, err := do(t, r, svc, release)
	if e, ok := errors.AsType[*nonce.ConflictError](err); v != nonce.Answered || !ok || e.Status != nonce.Consumed || e.TxHash != hash || e.Nonce != 0 {
		t.Errorf("conflict: verdict %d, %+v", v, err)
	}
	signed := &op{Request: &nonce.Request{Kind: nonce.KindMarkSigned, Signer: "s", Nonce: 1, TxHash: hash, Forwarded: true}}
	if v, err := do(t, r, svc, signed); v != nonce.Answered || err != nil || signed.Result.Attempt != 1 || signed.Status != nonce.Held || signed.Hashes.Len() != 1 {
		t.Errorf("signed: verdict %d, %v, %+v", v, err, signed)
	}
	extend := &op{Request: &nonce.Request{Kind: nonce.KindExtend, Signer: "s", Nonce: 1, Attempt: 1, Hold: 9 * time.Minute}}
	if v, err := do(t, r, svc, extend); v != nonce.Answered || err != nil || extend.HoldLeft != 9*time.Minute {
		t.Errorf("extend: verdict %d, %v, %+v", v, err, extend)
	}
	late := &op{Request: &nonce.Request{Kind: nonce.KindMarkUsed, Signer: "s", Nonce: 1, Attempt: 1}}
	if v, err := do(t, r, svc, late); v != nonce.Answered || err != nil || late.Status != nonce.Consumed || late.Hashes.Len() != 1 {
		t.Errorf("used without a hash: verdict %d, %v, %+v", v, err, late)
	}
	repair := &op{Request: &nonce.Request{Kind: nonce.KindRepair, Signer: "s", Nonce: 1}}
	if v, err := do(t, r, svc, repair); v != nonce.Answered || err != nil || fmt.Sprint(repair.Nonces, repair.Attempts) != "[1] [2]" || repair.Before == nil || repair.Before.Attempt != 1 {
		t.Errorf("repair: verdict %d, %v, %+v", v, err, repair)
	}
	again := &op{Request: &nonce.Request{Kind: nonce.KindRepair, Signer: "s", Nonce: 1, RequestID: repair.RequestID}}
	if v, err := do(t, r, svc, again); v != nonce.Answered || err != nil || fmt.Sprint(again.Nonces, again.Attempts) != "[1] [2]" || again.Before != nil {
		t.Errorf("repeated: verdict %d, %v, %+v", v, err, again)
	}
	v, err = do(t, r, svc, &op{Request: &nonce.Request{Kind: nonce.KindRepair, Signer: "s", Nonce: -1}})
	if e, ok := errors.AsType[*wire.Error](err); v != nonce.Answered || !ok || e.Code != wire.CodeInvalidParams || e.Data.Field != "nonce" {
		t.Errorf("repair without a chain: verdict %d, %v", v, err)
	}
	if v, err := do(t, r, svc, &op{Request: &nonce.Request{Kind: nonce.KindMarkUsed, Signer: "s", Nonce: 9, Attempt: 1, TxHash: hash}}); v != nonce.Answered || err != nonce.ErrNotFound {
		t.Errorf("not found: verdict %d, %v", v, err)
	}
	floor := &op{Request: &nonce.Request{Kind: nonce.KindSetFloor, Signer: "t", Floor: 50}}
	if v, err := do(t, r, svc, floor); v != nonce.Answered || err != nil || floor.Result.Floor != 50 || floor.Next != 50 {
		t.Errorf("floor: verdict %d, %v, %+v", v, err, floor)
	}
	last := allocation("s")
	last.Count = 3
	v, err = do(t, r, svc, last)
	if e, ok := errors.AsType[*nonce.HoldLimitError](err); v != nonce.Answered || !ok || e.Limit != 3 {
		t.Errorf("hold limit: verdict %d, %v", v, err)
	}
	for range 7 {
		wait.For(t, events.heard, "an event")
	}
	if got := events.got(); got != "s/0 s/1 s/0 s/1 s/1 s/1 s/1" || events.losses() != 0 {
		t.Errorf("events %s, %d losses", got, events.losses())
	}
}
