//go:build unix

package nodes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// shardCommand runs gateway shard against the private side of p.
func shardCommand(p *e2e.Process, args ...string) e2e.Outcome {
	p.Helper()
	return e2e.Run(p, slices.Concat([]string{"shard", args[0], "--admin", p.Admin}, args[1:])...)
}

// moved is what gateway shard move said, which must have been done.
func moved(p *e2e.Process, args ...string) string {
	p.Helper()
	o := shardCommand(p, append([]string{"move"}, args...)...)
	if o.Code != e2e.ExitOK || o.Stderr != "" {
		p.Fatalf("move %v: exit %d, stderr %q", args, o.Code, o.Stderr)
	}
	return strings.TrimSuffix(o.Stdout, "\n")
}

// listedShard is what the tests look at of a shard.
type listedShard struct {
	ID                            int
	Owner, URL, Preferred, Pinned string
	Mine                          bool
}

// shards is what gateway shard list says of the shards when it asks p.
func shards(p *e2e.Process) []listedShard {
	p.Helper()
	o := shardCommand(p, "list", "--json")
	var v struct{ Shards []listedShard }
	if err := json.Unmarshal([]byte(o.Stdout), &v); o.Code != e2e.ExitOK || err != nil {
		p.Fatalf("exit %d, stdout %q, stderr %q, %v", o.Code, o.Stdout, o.Stderr, err)
	}
	return v.Shards
}

// ownersStored are the owners of the shards in the database, in order.
func ownersStored(f *e2e.Fleet) (owners []string) {
	f.Helper()
	conn := e2e.Dial(f, f.DB)
	defer conn.Close(f.Context())
	if err := conn.QueryRow(f.Context(), `SELECT array_agg(owner_node ORDER BY shard_id) FROM shard`).Scan(&owners); err != nil {
		f.Fatal(err)
	}
	return owners
}

// listed waits until every node lists the owners that the database has, and where each shard is pinned.
func listed(f *e2e.Fleet, pinned map[int]string) {
	f.Helper()
	owners := ownersStored(f)
	for name, p := range f.Nodes {
		p.Await(name+" to list what the database has", func() bool {
			for i, s := range shards(p) {
				if s.ID != i || s.Owner != owners[i] || s.URL != f.Nodes[s.Owner].URL || s.Preferred != s.Owner || s.Pinned != pinned[i] || s.Mine != (s.Owner == name) {
					return false
				}
			}
			return true
		})
	}
}

// counted waits until gateway nodes counts the shards of each node as the database has them.
func counted(f *e2e.Fleet) {
	f.Helper()
	owners := ownersStored(f)
	for name, p := range f.Nodes {
		p.Await(name+" to count the shards of each node", func() bool {
			shown := shown(p)
			for node := range f.Nodes {
				if shown[node].Shards != int64(len(slices.DeleteFunc(slices.Clone(owners), func(o string) bool { return o != node }))) {
					return false
				}
			}
			return true
		})
	}
}

// signerOf is a signer of the shard.
func signerOf(f *e2e.Fleet, shard int) string {
	f.Helper()
	signer := e2e.Rows(f, f.DB, fmt.Sprintf(`SELECT signer FROM signer WHERE shard_id = %d ORDER BY signer_id LIMIT 1`, shard))
	return strings.Trim(signer, `()"`)
}

// TestLongAShardIsMovedByHandAndBackAndNobodyIsRefused: clients of all nodes go on meanwhile, and do not ask twice.
func TestLongAShardIsMovedByHandAndBackAndNobodyIsRefused(t *testing.T) {
	f := e2e.ServeEach(t, "a b c d=basic", "--lease-ttl=5s")
	signers := e2e.Signers("account", 300)
	toC := f.Nodes["c"].Connect()
	e2e.Touch(toC, signers)
	listed(f, nil)
	before := ownersStored(f)
	stop := make(chan struct{})
	clients := f.Crowd(stop, 8)

	// Each shard of a goes to b, each by the word of another node, the basic one too.
	pinned, tokens := make(map[int]string), f.ShardsOf("a")
	for shard := range tokens {
		pinned[shard] = "b"
		said := moved(f.Nodes[f.Names[shard%len(f.Names)]], fmt.Sprint(shard), "b")
		if rest, ok := strings.CutPrefix(said, fmt.Sprintf("shard %d is pinned to b", shard)); !ok ||
			!slices.Contains([]string{"; a has it still, and gives it to b", "; b takes it", ", and b has it"}, rest) {
			t.Errorf("moving shard %d said %q", shard, said)
		}
		f.Nodes["b"].Await("b to have the shard", func() bool { return ownersStored(f)[shard] == "b" })
		signer := signerOf(f, shard)
		if got := toC.Allocate(signer, ""); got.FencingToken <= tokens[shard] {
			t.Errorf("%s was given %+v, under token %d before its shard moved", signer, got, tokens[shard])
		}
		if st := e2e.StatusOf(toC, signer); st.Owner != "b" || st.OwnerURL != f.Nodes["b"].URL {
			t.Errorf("%s is at %s, %s", signer, st.Owner, st.OwnerURL)
		}
	}
	if len(tokens) == 0 {
		t.Fatal("a had nothing to move")
	}
	f.Settled() // the others make up for it
	listed(f, pinned)
	counted(f)
	table := shardCommand(f.Nodes["d"], "list").Stdout
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 1+e2e.FewShards || strings.Join(strings.Fields(lines[0]), " ") != "SHARD OWNER TOKEN HEIR PINNED URL" {
		t.Errorf("the list is\n%s", table)
	} else {
		for shard := range tokens {
			if row := strings.Fields(lines[1+shard]); len(row) != 6 || row[0] != fmt.Sprint(shard) || row[1] != "b" || row[3] != "b" || row[4] != "b" || row[5] != f.Nodes["b"].URL {
				t.Errorf("shard %d is shown as %q", shard, row)
			}
		}
	}

	for shard := range tokens {
		said := moved(f.Nodes["c"], fmt.Sprint(shard), "--unpin")
		if !strings.HasPrefix(said, fmt.Sprintf("shard %d is not pinned", shard)) {
			t.Errorf("taking the pin of shard %d away said %q", shard, said)
		}
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
	clients.Kept(f.DB)
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
	e2e.ConsistentButPruned(t, db)
}
