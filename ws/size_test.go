package ws

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/socket"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/test/lab/wait"
	"noncegate/wire"
	"noncegate/writer"
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
func widestOps() []*op {
	earlier := []*nonce.Earlier{{Attempt: widest, Reason: nonce.ReasonRepair, TxHash: widestHash}}
	all := nonce.TxHashes(strings.Repeat(string(widestHash[:]), nonce.MaxHashes))
	mark := op{Request: nonce.Request{Signer: widestKey, Nonce: widest, Attempt: widest, TxHash: widestHash}, Result: nonce.Result{Status: nonce.Consumed, Attempt: widest, Hashes: all, Replaced: widestHash, HeldUntil: widestTime, HoldLeft: widest}}
	used, recyclable, signed, signedLate := mark, mark, mark, mark
	used.Kind, recyclable.Kind, signed.Kind, signedLate.Kind = nonce.KindMarkUsed, nonce.KindMarkRecyclable, nonce.KindMarkSigned, nonce.KindMarkSigned
	signed.Status = nonce.Held
	signed.Earlier, signedLate.Earlier = earlier, earlier
	extend := op{Request: nonce.Request{Kind: nonce.KindExtend, Signer: widestKey, Nonce: widest, Attempt: widest}, Result: nonce.Result{Attempt: widest, Token: widest, HeldUntil: widestTime, HoldLeft: widest}}
	repair := op{Request: nonce.Request{Kind: nonce.KindRepair, Signer: widestKey, Count: 1}, Result: nonce.Result{Nonces: []int64{widest}, Attempts: []int64{widest}, Token: widest, HeldUntil: widestTime, HoldLeft: widest, Hashes: all, Before: &nonce.Before{Status: nonce.Consumed, Attempt: widest, Reason: widestReason}, Earlier: earlier, Offer: &nonce.Offer{GasPrice: hostile, MaxFeePerGas: hostile, MaxPriorityFeePerGas: hostile, MaxFeePerBlobGas: hostile}}}
	list := &op{Request: nonce.Request{Kind: nonce.KindList, Signer: widestKey, List: nonce.ListQuery{Limit: wire.MaxListLimit}}}
	for range list.List.Limit {
		list.Page.Rows = append(list.Page.Rows, nonce.Row{
			Nonce: widest, Status: nonce.Held, Attempt: widest, TxHash: widestHash, Replaced: all[len(widestHash):], Reason: widestReason, Earlier: earlier[0],
			HeldUntil: widestTime, RequestID: widestKey, UpdatedAt: widestTime, Holder: 7,
		})
	}
	list.Said = &nonce.ChainSaid{Words: []nonce.ChainWord{{Nonce: widest, Attempt: widest, Word: hostile}}, Partial: true}
	list.Holders = map[nonce.Principal]string{7: hostile}
	one := *list
	one.List.Limit, one.Page.Rows = 1, list.Page.Rows[:1]
	list.Page.NextFrom = widest
	ops := []*op{
		&used, &recyclable, &signed, &signedLate, &extend, &repair, list, &one,
		{Request: nonce.Request{Kind: nonce.KindSetFloor, Signer: widestKey, Floor: widest}, Result: nonce.Result{Floor: widest, Next: widest}},
		{Request: nonce.Request{Kind: nonce.KindStatus, Signer: widestKey}, Result: nonce.Result{Summary: nonce.Summary{
			Exists: true, Next: widest, Floor: widest, Version: widest, Held: widest, Released: widest, Consumed: widest, LowestHeld: widest, Unknown: widest,
			Lease: lease.Ownership{Holder: lease.Holder{Node: hostile}, URL: hostile, Token: widest, ExpiresAt: widestTime}, Now: time.Unix(0, 0),
		}, Said: &nonce.ChainSaid{State: widestState, Partial: true}}},
	}
	for _, count := range []int{1, 2, nonce.MaxCount} {
		op := &op{Request: nonce.Request{Kind: nonce.KindAllocate, Signer: widestKey, Count: count}, Result: nonce.Result{Token: widest, HeldUntil: widestTime, HoldLeft: widest}}
		for range count {
			op.Earlier = append(op.Earlier, earlier...)
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
	return []error{
		fmt.Errorf("%s %w", hostile, nonce.ErrPeerAway), &nonce.UnavailableError{Err: fmt.Errorf("%s %w", hostile, nonce.ErrPeerAway)}, nonce.ErrForwardBusy,
		conflict, &nonce.NotOwnerError{Node: hostile, URL: hostile},
		&nonce.UnavailableError{Outcome: nonce.Unknown, Err: errors.New(hostile)}, &nonce.HoldLimitError{Limit: widest},
		&nonce.HoldLimitError{Limit: widest, Window: true, Lowest: widest}, nonce.ErrNewSigner, nonce.ErrNoChain,
		&nonce.UnavailableError{Err: fmt.Errorf("%w (%s)", nonce.ErrChainUnknown, strings.Repeat("x", nonce.MaxSaid))},
		nonce.ErrBusy, nonce.ErrFenced, nonce.ErrNotFound, nonce.ErrDraining, nonce.ErrInternal, errors.New(hostile),
	}
}

func wantWithin(t *testing.T, what string, reply []byte, reserved int64) {
	t.Helper()
	if int64(len(reply)) > reserved {
		t.Errorf("%s: %d bytes, %d were reserved: %.300s", what, len(reply), reserved, reply)
	}
}

func TestAMessageThatCannotBeEncodedIsAnsweredWithAnUnknownOutcome(t *testing.T) {
	var logged strings.Builder
	s := &Server{counters: newCounters(prometheus.NewRegistry()), rejected: func(string, int) {}, log: slog.New(slog.NewTextHandler(&logged, nil))}
	pipe, _ := net.Pipe()
	c := &conn{srv: s, transport: socket.New(pipe)}
	one, other := &request{id: []byte("1"), conn: c, method: &statusMethod}, &request{id: []byte("2"), conn: c, method: &noMethod}
	for _, m := range []writer.Message{one, &batch{conn: c, requests: []*request{one, other}, answers: 2}} {
		said := string(s.encodeFailed(m, &writer.PanicError{Value: "a mistake", Stack: []byte("where")}))
		if !strings.Contains(said, `"id":1`) || !strings.Contains(said, `"outcome":"unknown"`) {
			t.Errorf("%T: %s", m, said)
		}
	}
	for _, words := range []string{"a mistake", "stack=where", "method=nonce_status", "remote=pipe"} {
		if !strings.Contains(logged.String(), words) {
			t.Errorf("the log does not have %q: %s", words, logged.String())
		}
	}
}

// methodOf is the method of a kind of op.
func methodOf(k nonce.Kind) *method {
	return map[nonce.Kind]*method{
		nonce.KindAllocate: &allocateMethod, nonce.KindMarkUsed: &markUsedMethod, nonce.KindMarkSigned: &markSignedMethod,
		nonce.KindMarkRecyclable: &markRecyclableMethod, nonce.KindExtend: &extendMethod, nonce.KindRepair: &repairMethod,
		nonce.KindSetFloor: &setFloorMethod, nonce.KindStatus: &statusMethod, nonce.KindList: &listMethod,
	}[k]
}

func TestNoReplyExceedsItsReservation(t *testing.T) {
	id := []byte(`"` + strings.Repeat("i", maxIDBytes-2) + `"`)
	c := &conn{srv: &Server{counters: newCounters(prometheus.NewRegistry()), rejected: func(string, int) {}}} // which counts the refusals
	for _, op := range widestOps() {
		m := methodOf(op.Kind)
		reserved := m.replyBytes(&op.Request) + int64(len(id))
		r := &request{op: *op, id: id, conn: c, method: m, bytes: reserved}
		if limit := defaults().ws.Writer.Marks.Max; reserved > limit {
			t.Errorf("%s reserves %d bytes, by default there are %d", op.Kind, reserved, limit)
		}
		reply, err := r.Append(nil)
		must(t, err)
		wantWithin(t, op.Kind.String(), reply, reserved)
		wantWithin(t, "an error reply", r.errorReply(), reserved)
		for _, err := range widestErrors() {
			r.op.Err = err
			reply, _ := r.Append(nil)
			wantWithin(t, op.Kind.String()+": "+err.Error()[:4], reply, reserved)
		}
	}
}

var widestState = &nonce.ChainState{
	Head: widest, Mined: widest, Final: widest, FinalKnown: true, Claimed: widest, Window: widest, Stopped: true,
	Trouble: &nonce.Gap{Kind: nonce.WatchDropped, Nonce: widest, Since: widestTime, Status: nonce.Consumed, Attempt: widest, TxHash: widestHash, Blocked: widest},
}

func TestAPageOfWideRowsEndsSoonerAndSaysWhereTheNextBegins(t *testing.T) {
	c := &conn{srv: new(Server)}
	op := op{Request: nonce.Request{Kind: nonce.KindList, Signer: widestKey, List: nonce.ListQuery{Limit: 10}},
		Result: nonce.Result{Said: new(nonce.ChainSaid)}}
	for n := range int64(10) {
		op.Said.Words = append(op.Said.Words, nonce.ChainWord{Nonce: n, Attempt: 1, Word: hostile})
		op.Page.Rows = append(op.Page.Rows, nonce.Row{
			Nonce: n, Status: nonce.Consumed, Attempt: 1, TxHash: widestHash,
			Replaced: nonce.TxHashes(strings.Repeat(string(widestHash[:]), nonce.MaxHashes-1)), Reason: nonce.ReasonRefused, RequestID: widestKey,
			Earlier: &nonce.Earlier{Attempt: widest, Reason: nonce.ReasonRepair, TxHash: widestHash}, Holder: 7,
		})
	}
	op.Holders, op.WithHolders = map[nonce.Principal]string{7: hostile}, true
	page := func() (got struct {
		Result wire.ListResult `json:"result"`
	}) {
		r := &request{op: op, id: []byte("1"), conn: c, method: &listMethod, bytes: listMethod.replyBytes(&op.Request)}
		reply, err := r.Append(nil)
		must(t, err)
		must(t, wire.Unmarshal(reply, &got))
		return got
	}
	op.Page.NextFrom = 10
	got := page().Result
	n := int64(len(got.Allocations))
	if n < 2 || n > 9 || got.NextFrom == nil || *got.NextFrom != n {
		t.Errorf("a page of %d rows that goes on at %v", n, got.NextFrom)
	}
	op.Page.Rows = op.Page.Rows[:2] // the last page
	op.Page.NextFrom = -1
	if got := page().Result; len(got.Allocations) != 2 || got.NextFrom != nil {
		t.Errorf("the last page has %d rows and goes on at %v", len(got.Allocations), got.NextFrom)
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
	must(t, c.Conn.Close())
}

// anyConn returns the server's side of a connection, which is there a moment after
// the client's.
func (g *gateway) anyConn() *conn {
	g.Helper()
	wait.Until(g, "a connection", func() bool { return g.srv.conns.len() > 0 })
	return g.srv.conns.all()[0]
}

func TestStatisticsAndDescriptionFitTheirReservation(t *testing.T) {
	wide := wire.Figure{Count: widest, P50: math.MaxFloat64, P95: math.MaxFloat64, P99: math.MaxFloat64, Max: -math.MaxFloat64}
	stats := wire.StatsResult{
		IntervalMs: widest, Connections: widest, EncodeQueueMs: wide, EncodeMs: wide, PostDBQueueMs: wide, WriteQueueMs: wide,
		WorkerQueueMs: wide, CommitMs: wide, CommitBatchSize: wide, BusyReject: widest, DropUnwritable: widest, KickSlow: widest,
		Engine: &wire.EngineStats{State: "DRAIN_AND_SYNC", Generation: widest, Shards: widest, Unshipped: widest, BehindMs: widest},
	}
	reply, err := wire.AppendResult(nil, nil, &stats)
	must(t, err)
	wantWithin(t, "stats", reply, largeReplyBytes)
	host := strings.Repeat("h", 253) + ":65535"
	info := wire.InfoResult{Node: host, Incarnation: widest, Version: strings.Repeat("v", 200), Engine: wire.EnginePerformance, Store: "postgres", Mode: "worker-queue",
		Redis: "server", EngineState: "DRAIN_AND_SYNC", Generation: widest,
		Limits: wire.Limits{MaxCount: widest, MaxBatch: widest, MaxMessageBytes: widest, MaxInflight: widest, MaxHolds: widest,
			MinHoldMs: widest, MaxHoldMs: widest, DefaultHoldMs: widest, MaxListLimit: widest}}
	reply, err = wire.AppendResult(nil, nil, &info)
	must(t, err)
	wantWithin(t, "info", reply, largeReplyBytes)

	for range 2 * wire.MaxNodes {
		info.Nodes = append(info.Nodes, wire.NodeInfo{Node: hostile, URL: widestKey + hostile, Mode: hostile, State: hostile,
			Incarnation: widest, Shards: widest, StartedAt: wire.Time(widestTime), SeenAt: wire.Time(widestTime)})
	}
	info.NodeCount = widest
	for _, nodes := range []int{1, wire.MaxNodes, 2 * wire.MaxNodes} {
		some := info
		some.Nodes = info.Nodes[:nodes]
		c := &conn{srv: &Server{cfg: Config{Info: func() wire.InfoResult { return some }}}}
		var r request
		if refusal := c.info(&r, wire.NoParams{}); refusal != nil {
			t.Fatal(refusal)
		}
		answer, refusal := r.act()
		if refusal != nil {
			t.Fatal(refusal)
		}
		reply, err := wire.AppendResult(nil, nil, answer)
		must(t, err)
		wantWithin(t, "info with nodes", reply, r.bytes)
		if limit := defaults().ws.Writer.Marks.High; r.bytes > limit {
			t.Errorf("%d nodes reserve %d bytes, above the mark of slow clients, %d", nodes, r.bytes, limit)
		}
	}
}

func TestNoNotificationExceedsItsSize(t *testing.T) {
	event := wire.AppendEvent(nil, &wire.Event{Type: wire.EventAllocated, Signer: widestKey, Reason: widestReason, At: wire.Time(widestTime)})
	n := &notification{
		subscription: &subscription{id: "0x" + strings.Repeat("f", 32), method: wire.MethodSubscription, write: wire.AppendSubscription},
		event:        event, missed: widest,
	}
	got, err := n.Append(nil)
	must(t, err)
	wantWithin(t, "notification", got, envelopeBytes+int64(len(event)))
}
