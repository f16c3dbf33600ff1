//go:build unix

package nodes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/stored"
	"noncegate/wire"
)

// move has a node move a shard.
func move(p *e2e.Process, args ...string) {
	p.Helper()
	if o := e2e.Run(p, slices.Concat([]string{"shard", "move", "--admin", p.Admin}, args)...); o.Code != e2e.ExitOK || o.Stderr != "" {
		p.Fatalf("move %v: exit %d, stderr %q", args, o.Code, o.Stderr)
	}
}

// ownersStored are the owners of the shards in the database, in order.
func ownersStored(f *e2e.Fleet) (owners []string) {
	f.Helper()
	conn := e2e.Dial(f, f.DB)
	defer conn.Close(f.Context())
	expect.Must(f, conn.QueryRow(f.Context(), `SELECT array_agg(owner_node ORDER BY shard_id) FROM shard`).Scan(&owners))
	return owners
}

// listed waits until every node lists the owners that the database has, and where each shard is pinned.
func listed(f *e2e.Fleet, pinned map[string]string) {
	f.Helper()
	want := ""
	for shard, owner := range ownersStored(f) {
		want += fmt.Sprintln(shard, owner, pinned[fmt.Sprint(shard)])
	}
	for name, p := range f.Nodes {
		p.Await(name+" to list what the database has", func() bool {
			var v struct {
				Shards []struct {
					ID            int
					Owner, Pinned string
				}
			}
			expect.Must(p, json.Unmarshal([]byte(e2e.Run(p, "shard", "list", "--json", "--admin", p.Admin).Stdout), &v))
			got := ""
			for _, s := range v.Shards {
				got += fmt.Sprintln(s.ID, s.Owner, s.Pinned)
			}
			return got == want
		})
	}
}

// TestLongAShardIsMovedByHandAndBackAndNobodyIsRefused: clients of all nodes go on meanwhile, and do not ask twice.
func TestLongAShardIsMovedByHandAndBackAndNobodyIsRefused(t *testing.T) {
	f := e2e.ServeEach(t, "a b c d=basic", "--lease-ttl=5s")
	listed(f, nil)
	before := ownersStored(f)
	stop := make(chan struct{})
	clients := f.Crowd(stop, 8)
	clients.Reach(100)

	// Each shard of a goes to b, each by the word of another node, the basic one too.
	pinned, tokens := make(map[string]string), f.ShardsOf("a")
	for shard := range tokens {
		pinned[fmt.Sprint(shard)] = "b"
		move(f.Nodes[f.Names[shard%len(f.Names)]], fmt.Sprint(shard), "b")
		f.Nodes["b"].Await("b to have the shard", func() bool { return f.ShardsOf("b")[shard] > tokens[shard] })
	}
	if len(tokens) == 0 {
		t.Fatal("a had nothing to move")
	}
	f.Settled() // the others make up for it
	listed(f, pinned)
	for shard := range tokens {
		move(f.Nodes["c"], fmt.Sprint(shard), "--unpin")
	}
	f.Settled()
	listed(f, nil)
	if after := ownersStored(f); !slices.Equal(after, before) {
		t.Errorf("without pins the shards are at %v, and were at %v", after, before)
	}
	clients.Reach(100)
	close(stop)
	clients.All.Wait()
	clients.Only("ok")
	clients.Kept(stored.Postgres(t.Context(), f.DB))
}

// TestLongASignerWhoseRowCannotBeReadIsShownAndMendedByHand as docs/runbooks.md says.
func TestLongASignerWhoseRowCannotBeReadIsShownAndMendedByHand(t *testing.T) {
	t.Parallel()
	db := e2e.Database(t)
	first := e2e.Launch(t, "--store="+db, "--node-id=a")
	for i := range int64(2) {
		if got := first.Connect().Allocate(e2e.Account, ""); got.Nonce != i {
			t.Fatalf("hand-out %d is %+v", i, got)
		}
	}
	first.Stop()
	e2e.Execute(t, db, `UPDATE signer SET live = set_byte(live, 1, 99)`)

	p := e2e.Launch(t, "--store="+db, "--node-id=a")
	c := p.Connect()
	p.Await("the signer to be counted", func() bool { return p.Value("noncegate_signers_unreadable") == 1 })
	for _, method := range []string{wire.MethodAllocate, wire.MethodStatus} {
		c.Want("unavailable none", method, e2e.Allocation(e2e.Account, ""))
	}
	c.Allocate("another", "")
	if p.Value("noncegate_invariant_alarms_total") == 0 {
		t.Error("there was no alarm")
	}
	p.Says(`"msg":"the row of a signer cannot be read","component":"nonce","signer":"` + e2e.Account + `"`)
	if o := e2e.Run(t, "signer", "list", "--admin", p.Admin); !strings.Contains(o.Stdout, e2e.Account) || strings.Count(o.Stdout, "its row cannot be read\n") != 1 {
		t.Errorf("exit %d, stderr %q, the list is\n%s", o.Code, o.Stderr, o.Stdout)
	}

	e2e.Execute(t, db, `UPDATE signer SET live = '', next_nonce = greatest(next_nonce, 9), version = version + 1, fencing_token = 0 WHERE signer = '`+e2e.Account+`'`)
	if got := c.Allocate(e2e.Account, ""); got.Nonce != 9 || got.Attempt != 1 {
		t.Errorf("after its row was mended it was given %+v", got)
	}
}
