//go:build unix

package stores

import (
	"fmt"
	"testing"

	"noncegate/test/e2e"
	"noncegate/test/lab/pgtest"
	"noncegate/wire"
)

// cutCommit cuts the connection that executes the next commit off its reply.
func cutCommit(p *pgtest.Proxy) (answered <-chan struct{}) {
	return p.CutStatement("mine.beliefs")
}

func TestACommitWhoseReplyIsLostIsSettledAndAnswered(t *testing.T) {
	t.Parallel()
	db, through, proxy := e2e.BehindProxy(t)
	c := e2e.Launch(t, "--store="+through).Connect()
	first := c.Allocate(e2e.Account, "")
	lost := func(reason, method, params string) *e2e.Reply {
		t.Helper()
		answered := cutCommit(proxy)
		r := c.Want(reason, method, params)
		<-answered
		return r
	}
	got := e2e.Decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, e2e.Allocation(e2e.Account, "r1")))
	if got.Nonce != 1 || got.Attempt != 1 || got.FencingToken != first.FencingToken {
		t.Errorf("with a request id: %+v after %+v", got, first)
	}
	// A repeat names the token that the shard has by now, and it was acquired again.
	token := got.FencingToken + 1
	if again := c.Allocate(e2e.Account, "r1"); again.Nonce != 1 || again.FencingToken != token {
		t.Errorf("repeated: %+v, want %+v with token %d", again, got, token)
	}
	if got := e2e.Decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))); got.Nonce != 2 || got.HoldMs <= 0 {
		t.Errorf("without a request id: %+v, want nonce 2", got)
	}
	lost("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":0,"txHash":%q}`, e2e.Account, e2e.Hash))
	lost("ok", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":1}`, e2e.Account))
	if got := e2e.Decode[wire.AllocateResult](t, lost("ok", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))); got.Nonce != 1 || got.Attempt != 2 {
		t.Errorf("the released one: %+v, want nonce 1, attempt 2", got)
	}
	r := lost("conflict", wire.MethodAllocate, e2e.Allocation(e2e.Account, "r1")) // only compared: the hold has ended
	if s := r.Error.Data.Nonces; len(s) != 1 || s[0].Attempt != 2 {
		t.Errorf("the ended request: %+v", r.Error.Data)
	}
	floor := e2e.Decode[wire.FloorResult](t, lost("ok", wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":3}`, e2e.Account)))
	if floor.Floor != 3 || floor.Next != 3 {
		t.Errorf("got %+v", floor)
	}
	if got := c.Allocate(e2e.Account, ""); got.Nonce != 3 {
		t.Errorf("then %+v, want nonce 3", got)
	}
	want := "(0,CONSUMED,1)\n(1,HELD,2)\n(2,HELD,1)\n(3,HELD,1)"
	if got := e2e.Query(t, db, `SELECT nonce, status, attempt FROM nonces ORDER BY nonce`); got != want {
		t.Errorf("the store has\n%s\nwant\n%s", got, want)
	}
	e2e.Consistent(t, db)
}
