package ws

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/perf"
	"noncegate/wire"
)

var (
	widestTime   = time.Date(2026, 12, 31, 23, 59, 59, 999e6, time.UTC)
	widestKey    = strings.Repeat(`"`, nonce.MaxKeyBytes)
	widestReason = strings.Repeat(`"`, nonce.MaxReasonBytes)
	widestHash   = nonce.TxHash{1}
	hostile      = strings.Repeat("\x01\"\xff", 1000) // somebody else's text
)

const widest = math.MaxInt64

// widestOps are ops whose results have every field as wide as it can be.
func widestOps() []*nonce.Op {
	mark := nonce.Op{Signer: widestKey, Nonce: widest, Attempt: widest, TxHash: widestHash, Status: nonce.Consumed}
	used, recyclable := mark, mark
	used.Kind, recyclable.Kind = nonce.KindMarkUsed, nonce.KindMarkRecyclable
	list := &nonce.Op{Kind: nonce.KindList, Signer: widestKey, List: nonce.ListQuery{Limit: wire.MaxListLimit}}
	for range list.List.Limit {
		list.Page.Rows = append(list.Page.Rows, nonce.Row{
			Nonce: widest, Status: nonce.Held, Attempt: widest, TxHash: widestHash, Reason: widestReason,
			HeldUntil: widestTime, RequestID: widestKey, UpdatedAt: widestTime,
		})
	}
	list.Page.NextFrom = widest
	ops := []*nonce.Op{
		&used, &recyclable, list,
		{Kind: nonce.KindSetFloor, Signer: widestKey, Floor: widest, Next: widest},
		{Kind: nonce.KindStatus, Signer: widestKey, Summary: nonce.Summary{
			Exists: true, Next: widest, Floor: widest, Version: widest, Pruned: widest, Held: widest, Released: widest, Consumed: widest, LowestHeld: widest,
			Lease: lease.Grant{Holder: lease.Holder{Node: hostile}, URL: hostile, Token: widest, ExpiresAt: widestTime}, Now: time.Unix(0, 0),
		}},
	}
	for _, count := range []int{1, 2, nonce.MaxCount} {
		op := &nonce.Op{
			Kind: nonce.KindAllocate, Signer: widestKey, Count: count, Token: widest,
			HeldUntil: widestTime, HoldLeft: widest,
		}
		for range count {
			op.Nonces, op.Attempts = append(op.Nonces, widest), append(op.Attempts, widest)
		}
		ops = append(ops, op)
	}
	return ops
}

func widestErrors() []error {
	conflict := &nonce.ConflictError{Sentence: hostile, Nonce: widest, Status: nonce.Consumed, Attempt: widest, TxHash: widestHash, HeldUntil: widestTime}
	for range nonce.MaxCount {
		conflict.Holds = append(conflict.Holds, nonce.HoldState{Nonce: widest, Attempt: widest, Status: nonce.Consumed})
	}
	of := wire.ErrorData{Reason: hostile, Field: hostile, Stage: hostile, Outcome: hostile, OwnerNode: hostile, OwnerURL: hostile, Right: hostile,
		Signer: hostile, Status: hostile, TxHash: hostile, RetryAfterMs: widest, Limit: widest, Nonces: make([]wire.HoldState, 1000)}
	return []error{
		&wire.Error{Code: math.MinInt32, Message: hostile, Data: &of}, &wire.Error{Message: hostile},
		fmt.Errorf("%s %w", hostile, nonce.ErrPeerAway), &nonce.UnavailableError{Err: fmt.Errorf("%s %w", hostile, nonce.ErrPeerAway)}, nonce.ErrForwardBusy,
		conflict, &nonce.NotOwnerError{Node: hostile, URL: hostile},
		&nonce.UnavailableError{Outcome: nonce.Unknown, Err: errors.New(hostile)}, &nonce.HoldLimitError{Limit: widest},
		nonce.ErrBusy, nonce.ErrFenced, nonce.ErrNotFound, nonce.ErrDraining, nonce.ErrInternal, errors.New(hostile),
	}
}

func wantWithin(t *testing.T, what string, reply []byte, reserved int64) {
	t.Helper()
	if int64(len(reply)) > reserved {
		t.Errorf("%s: %d bytes, %d were reserved: %.300s", what, len(reply), reserved, reply)
	}
}

func TestNoReplyExceedsItsReservation(t *testing.T) {
	id := []byte(`"` + strings.Repeat("i", maxIDBytes-2) + `"`)
	c := &conn{srv: &Server{figures: perf.New(prometheus.NewRegistry()), rejected: func(string, int) {}}} // which counts the refusals
	for _, op := range widestOps() {
		r := &request{op: *op, id: id, conn: c}
		reserved := opBytes(op) + int64(len(id))
		reply, err := r.Append(nil)
		must(t, err)
		wantWithin(t, op.Kind.String(), reply, reserved)
		wantWithin(t, "an apology", r.apology(), reserved)
		for _, err := range widestErrors() {
			r.op.Err = err
			reply, _ := r.Append(nil)
			wantWithin(t, op.Kind.String()+": "+err.Error()[:4], reply, reserved)
		}
	}
}

func TestEveryRequestFitsTheDefaultCap(t *testing.T) {
	most := defaults().ws.Writer.Marks.Max
	for _, op := range widestOps() {
		if reserved := opBytes(op) + maxIDBytes; reserved > most {
			t.Errorf("%s reserves %d bytes of %d", op.Kind, reserved, most)
		}
	}
}

func TestNoRefusalExceedsItsReservation(t *testing.T) {
	g := startGateway(t)
	c := g.dial()
	conn := g.anyConn()
	name := strings.Repeat(`\u0001`, 500)
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"` + name + `"}`,
		`{"jsonrpc":"2.0","id":1,"method":"nonce_status","params":{"` + name + `":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"nonce_subscribe","params":{"signers":["` + name + `"]}}`,
		`{"jsonrpc":"2.0","id":1,"` + name + `":1,"` + name + `":2}`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 5000) + `","method":"gateway_info"}`,
	} {
		var f wire.Frame
		if err := f.Decode([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		r := conn.newRequest(&f.Calls[0])
		reply, err := r.Append(nil)
		must(t, err)
		if r.err == nil {
			t.Errorf("%.60s was not refused", frame)
		}
		wantWithin(t, frame[:60], reply, r.bytes)
	}
	must(t, c.conn.Close())
}

// anyConn returns the server's side of a connection, which is there a moment after
// the client's.
func (g *gateway) anyConn() *conn {
	g.Helper()
	for began := time.Now(); time.Since(began) < patience; runtime.Gosched() {
		for _, c := range g.srv.conns.all() {
			return c
		}
	}
	g.Fatal("no connection")
	return nil
}

func TestFiguresAndDescriptionFitTheirReservation(t *testing.T) {
	wide := wire.Figure{Count: widest, P50: math.MaxFloat64, P95: math.MaxFloat64, P99: math.MaxFloat64, Max: -math.MaxFloat64}
	stats := wire.StatsResult{
		IntervalMs: widest, Connections: widest, EncodeQueueMs: wide, EncodeMs: wide, PostDBQueueMs: wide, WriteQueueMs: wide,
		WorkerQueueMs: wide, CommitMs: wide, CommitBatchSize: wide, BusyReject: widest, DropUnwritable: widest, KickSlow: widest,
		Engine: &wire.EngineStats{State: "DRAIN_AND_SYNC", Generation: widest, Signers: widest, InDoubt: widest, Unflushed: widest, OldestMs: widest},
	}
	reply, err := wire.AppendResult(nil, nil, &stats)
	must(t, err)
	wantWithin(t, "stats", reply, statsBytes)
	host := strings.Repeat("h", 253) + ":65535"
	info := wire.InfoResult{Node: host, Incarnation: widest, Version: strings.Repeat("v", 200), Engine: "performance", Mode: "worker-queue",
		Redis: "cluster", EngineState: "DRAIN_AND_SYNC", Generation: widest,
		Limits: wire.Limits{MaxCount: widest, MaxBatch: widest, MaxMessageBytes: widest, MaxInflight: widest, MaxHolds: widest,
			MinHoldMs: widest, MaxHoldMs: widest, DefaultHoldMs: widest, MaxListLimit: widest}}
	reply, err = wire.AppendResult(nil, nil, &info)
	must(t, err)
	wantWithin(t, "info", reply, infoBytes)

	for range 2 * wire.MaxNodes {
		info.Nodes = append(info.Nodes, wire.NodeInfo{Node: hostile, URL: widestKey + hostile, Mode: hostile, State: hostile,
			Incarnation: widest, Signers: widest, StartedAt: wire.Time(widestTime), SeenAt: wire.Time(widestTime)})
	}
	info.NodeCount = widest
	for _, nodes := range []int{1, wire.MaxNodes, 2 * wire.MaxNodes} {
		some := info
		some.Nodes = info.Nodes[:nodes]
		c := &conn{srv: &Server{cfg: Config{Info: func() wire.InfoResult { return some }}}}
		var r request
		if refusal := c.info(&r, nil); refusal != nil {
			t.Fatal(refusal)
		}
		answer, refusal := r.act()
		if refusal != nil {
			t.Fatal(refusal)
		}
		reply, err := wire.AppendResult(nil, nil, answer)
		must(t, err)
		wantWithin(t, "info with nodes", reply, r.bytes)
		if most := defaults().ws.Writer.Marks.High; r.bytes > most {
			t.Errorf("%d nodes reserve %d bytes, above the mark of slow clients, %d", nodes, r.bytes, most)
		}
	}
}

func TestNoNotificationExceedsItsSize(t *testing.T) {
	event, err := wire.AppendEvent(nil, &wire.Event{Type: wire.EventAllocated, Signer: widestKey, Reason: widestReason, At: wire.Time(widestTime)})
	must(t, err)
	n := &notification{
		subscription: &subscription{id: "0x" + strings.Repeat("f", 32), method: wire.MethodSubscription},
		event:        event, missed: widest,
	}
	got, err := n.Append(nil)
	must(t, err)
	wantWithin(t, "notification", got, n.size())
}
