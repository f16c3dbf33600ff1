//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"noncegate/wire"
)

// soon is how long a shard that somebody moved may take to its new owner: both nodes look
// twice a second.
const soon = 5 * time.Second

// shardCommand runs gateway shard against the private side of p.
func (p *process) shardCommand(args ...string) outcome {
	p.Helper()
	return runArgs(p.TB.(*testing.T), slices.Concat([]string{"shard", args[0], "--admin", p.admin}, args[1:])...)
}

// moved is what gateway shard move said, which must have been done.
func (p *process) moved(args ...string) string {
	p.Helper()
	o := p.shardCommand(append([]string{"move"}, args...)...)
	if o.code != exitOK || o.stderr != "" {
		p.Fatalf("move %v: exit %d, stderr %q", args, o.code, o.stderr)
	}
	return strings.TrimSuffix(o.stdout, "\n")
}

// shards is what gateway shard list says of the shards when it asks p.
func (p *process) shards() []listedShard {
	p.Helper()
	o := p.shardCommand("list", "--json")
	var v shardList
	if err := json.Unmarshal([]byte(o.stdout), &v); o.code != exitOK || err != nil {
		p.Fatalf("exit %d, stdout %q, stderr %q, %v", o.code, o.stdout, o.stderr, err)
	}
	return v.Shards
}

// ownersStored are the owners of the shards in the database, in order.
func (f *fleet) ownersStored() (owners []string) {
	f.Helper()
	conn := dial(f, f.db)
	defer conn.Close(f.Context())
	if err := conn.QueryRow(f.Context(), `SELECT array_agg(owner_node ORDER BY shard_id) FROM shard`).Scan(&owners); err != nil {
		f.Fatal(err)
	}
	return owners
}

// listed waits until every node lists the owners that the database has, and where each shard
// is pinned.
func (f *fleet) listed(pinned map[int]string) {
	f.Helper()
	owners := f.ownersStored()
	for name, p := range f.nodes {
		p.await(name+" to list what the database has", func() bool {
			for i, s := range p.shards() {
				if s.ID != i || s.Owner != owners[i] || s.URL != f.nodes[s.Owner].url || s.Preferred != s.Owner || s.Pinned != pinned[i] || s.Mine != (s.Owner == name) {
					return false
				}
			}
			return true
		})
	}
}

// counted waits until gateway nodes counts the shards of each node as the database has them.
func (f *fleet) counted() {
	f.Helper()
	owners := f.ownersStored()
	for name, p := range f.nodes {
		p.await(name+" to count the shards of each node", func() bool {
			shown := p.shown()
			for node := range f.nodes {
				if shown[node].Shards != int64(len(slices.DeleteFunc(slices.Clone(owners), func(o string) bool { return o != node }))) {
					return false
				}
			}
			return true
		})
	}
}

// touch asks for every signer.
func touch(c *peer, signers []string) {
	c.Helper()
	for _, s := range signers {
		c.allocate(s, "")
	}
}

// signerOf is a signer of the shard.
func (f *fleet) signerOf(shard int) string {
	f.Helper()
	signer := rows(f, f.db, fmt.Sprintf(`SELECT signer FROM signer WHERE shard_id = %d ORDER BY signer_id LIMIT 1`, shard))
	return strings.Trim(signer, `()"`)
}

// TestLongAShardIsMovedByHandAndBackAndNobodyIsRefused: clients of all nodes go on meanwhile,
// and do not ask twice.
func TestLongAShardIsMovedByHandAndBackAndNobodyIsRefused(t *testing.T) {
	f := serveEach(t, "a b c d=basic", "--lease-ttl=5s")
	signers := named("account", 300)
	toC := f.nodes["c"].connect()
	touch(toC, signers)
	f.listed(nil)
	before := f.ownersStored()
	clients := f.throng(2, 4, signers)

	// Each shard of a goes to b, each by the word of another node, the basic one too.
	pinned, tokens := make(map[int]string), f.shardsOf("a")
	for shard := range tokens {
		pinned[shard] = "b"
		asked := time.Now()
		said := f.nodes[f.names[shard%len(f.names)]].moved(fmt.Sprint(shard), "b")
		if rest, ok := strings.CutPrefix(said, fmt.Sprintf("shard %d is pinned to b", shard)); !ok ||
			!slices.Contains([]string{"; a has it still, and gives it to b", "; b takes it", ", and b has it"}, rest) {
			t.Errorf("moving shard %d said %q", shard, said)
		}
		f.nodes["b"].await("b to have the shard", func() bool { return f.ownersStored()[shard] == "b" })
		if took := time.Since(asked); took > soon {
			t.Errorf("shard %d was at b %v after it was moved", shard, took)
		}
		signer := f.signerOf(shard)
		if got := toC.allocate(signer, ""); got.FencingToken <= tokens[shard] {
			t.Errorf("%s was given %+v, under token %d before its shard moved", signer, got, tokens[shard])
		}
		if st := statusOf(toC, signer); st.Owner != "b" || st.OwnerURL != f.nodes["b"].url {
			t.Errorf("%s is at %s, %s", signer, st.Owner, st.OwnerURL)
		}
	}
	if len(tokens) == 0 {
		t.Fatal("a had nothing to move")
	}
	f.settled() // the others make up for it
	f.listed(pinned)
	f.counted()
	table := f.nodes["d"].shardCommand("list").stdout
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 1+fewShards || strings.Join(strings.Fields(lines[0]), " ") != "SHARD OWNER TOKEN HEIR PINNED URL" {
		t.Errorf("the list is\n%s", table)
	} else {
		for shard := range tokens {
			if row := strings.Fields(lines[1+shard]); len(row) != 6 || row[0] != fmt.Sprint(shard) || row[1] != "b" || row[3] != "b" || row[4] != "b" || row[5] != f.nodes["b"].url {
				t.Errorf("shard %d is shown as %q", shard, row)
			}
		}
	}

	for shard := range tokens {
		said := f.nodes["c"].moved(fmt.Sprint(shard), "--unpin")
		if !strings.HasPrefix(said, fmt.Sprintf("shard %d is not pinned", shard)) {
			t.Errorf("taking the pin of shard %d away said %q", shard, said)
		}
	}
	f.settled()
	f.listed(nil)
	if after := f.ownersStored(); !slices.Equal(after, before) {
		t.Errorf("without pins the shards are at %v, and were at %v", after, before)
	}
	clients.stop.Store(true)
	clients.all.Wait()
	t.Logf("%v", clients.said)
	if clients.said["ok"] == 0 {
		t.Error("no client was answered")
	}
	for _, r := range clients.told {
		t.Errorf("a client of %s was told %s", r.node, r.what)
	}
	consistent(t, f.db)
}

func TestLongAPinHoldsForAsLongAsItsNodeLivesAndWhenItIsBack(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b", "--lease-ttl=5s")
	pinned := make(map[int]string)
	for shard := range f.shardsOf("a") {
		pinned[shard] = "b"
		f.nodes["a"].moved(fmt.Sprint(shard), "b")
	}
	f.settled() // b has all of the pins, and a what b had
	f.listed(pinned)

	f.nodes["b"].signal(syscall.SIGTERM)
	if code := f.nodes["b"].exit(); code != exitOK {
		t.Errorf("b ended with %d", code)
	}
	f.drop("b")
	f.settled()
	f.listed(pinned) // at a, and pinned to b still
	if owners := f.ownersStored(); slices.Contains(owners, "b") {
		t.Errorf("b has left, and the shards are at %v", owners)
	}
	f.launch("b")
	f.settled()
	f.listed(pinned)
	for shard := range pinned {
		if owner := f.ownersStored()[shard]; owner != "b" {
			t.Errorf("b is back, and shard %d at %s", shard, owner)
		}
	}
}

// TestLongAMoveThatCannotBeDoneSaysWhy: one sentence, exit code 1, and nothing moves.
func TestLongAMoveThatCannotBeDoneSaysWhy(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b c=basic", "--lease-ttl=5s")
	f.nodes["b"].signal(syscall.SIGTERM)
	if code := f.nodes["b"].exit(); code != exitOK {
		t.Errorf("b ended with %d", code)
	}
	f.drop("b")
	f.settled()
	locked := launch(t, "--store="+f.db, "--node-id=locked", "--mode=basic", "--admin-key=0123456789abcdef")
	const live = " is no live node of mode worker-queue; there are a"
	for _, p := range []*process{f.nodes["a"], f.nodes["c"]} {
		refusals(p, []refusal{
			{"list extra", exitUsage, "unexpected argument extra"},
			{"move 8 a", exitFailure, "shard: 8 is none of the shards of this database, which are 0 to 7"},
			{"move 0 b", exitFailure, `node: "b"` + live},
			{"move 0 c", exitFailure, `node: "c"` + live},
			{"move 0 nobody", exitFailure, `node: "nobody"` + live},
			{"move -- -1 a", exitUsage, "shard move: -1 is no shard: they are numbered from 0"},
			{"move 0", exitUsage, "shard move: say the NODE that is to have the shard, or --unpin"},
		})
	}
	noKey := locked.admin + " answered 401 Unauthorized: the admin key is needed; --admin-key must be that of the gateway"
	refusals(locked, []refusal{
		{"list", exitFailure, noKey},
		{"move 0 a", exitFailure, noKey},
		{"list --admin-key=0123456789abcdeX", exitFailure, noKey},
	})
	if o := locked.shardCommand("list", "--admin-key=0123456789abcdef"); o.code != exitOK || !strings.Contains(o.stdout, "\n7  ") {
		t.Errorf("with the key: exit %d, stderr %q, stdout\n%s", o.code, o.stderr, o.stdout)
	}
	clientSide := &process{TB: t, admin: strings.TrimSuffix(strings.Replace(f.nodes["a"].url, "ws://", "http://", 1), "/ws")}
	refusals(clientSide, []refusal{{"list", exitFailure, clientSide.admin + " answered 404 Not Found: the gateway is on /ws; --admin must be the --admin-listen of a gateway"}})
	f.listed(nil) // no pin was left behind

	gone := f.nodes["a"]
	gone.signal(syscall.SIGTERM)
	gone.exit()
	nobody := "the gateway at " + gone.admin + " is not reached, and was asked nothing; --admin must be its --admin-listen: dial tcp " +
		strings.TrimPrefix(gone.admin, "http://") + ": connect: connection refused"
	refusals(gone, []refusal{{"list", exitFailure, nobody}, {"move 0 a", exitFailure, nobody}, {"move 0 --unpin", exitFailure, nobody}})
	basic := f.nodes["c"]
	basic.await("the shards to be nobody's", func() bool { return basic.shards()[0].Preferred == "" })
	refusals(basic, []refusal{{"move 0 a", exitFailure, `node: "a" is no live node of mode worker-queue; there is none`}})
	if said := basic.moved("0", "--unpin"); said != "shard 0 is not pinned, and no node should have it" {
		t.Errorf("where nobody owns: %q", said)
	}
}

// refusal is a command that fails, and what it says.
type refusal struct {
	args string
	code int
	said string
}

func refusals(p *process, all []refusal) {
	p.Helper()
	for _, c := range all {
		if o := p.shardCommand(strings.Fields(c.args)...); o.code != c.code || o.stderr != "gateway: "+c.said+"\n" || o.stdout != "" {
			p.Errorf("shard %s: exit %d, stdout %q, stderr\n%s\nwant exit %d and\n%s", c.args, o.code, o.stdout, o.stderr, c.code, c.said)
		}
	}
}

// TestAMoveThatIsNotAnsweredIsUnknown: the gateway was asked, and is paused.
func TestAMoveThatIsNotAnsweredIsUnknown(t *testing.T) {
	t.Parallel()
	p := launch(t, "--store="+database(t), "--node-id=a")
	p.pause()
	const silent = " did not answer within 250ms (--timeout)"
	refusals(p, []refusal{
		{"list --timeout=250ms", exitFailure, "the gateway at " + p.admin + silent},
		{"move 0 a --timeout=250ms", exitFailure, "the gateway at " + p.admin + silent + "; whether it did what it was asked is unknown"},
	})
	p.signal(syscall.SIGCONT)
	p.await("the gateway to answer again", func() bool { return p.shardCommand("list", "--timeout=1s").code == exitOK })
	p.connect().want("ok", wire.MethodAllocate, allocation(account, ""))
}

// TestLongASignerWhoseRowCannotBeReadIsShownAndMendedByHand as docs/runbooks.md says.
func TestLongASignerWhoseRowCannotBeReadIsShownAndMendedByHand(t *testing.T) {
	t.Parallel()
	db := database(t)
	first := launch(t, "--store="+db, "--node-id=a")
	for i := range int64(2) {
		if got := first.connect().allocate(account, ""); got.Nonce != i {
			t.Fatalf("hand-out %d is %+v", i, got)
		}
	}
	first.signal(syscall.SIGTERM)
	if code := first.exit(); code != exitOK {
		t.Errorf("it ended with %d", code)
	}
	execute(t, db, `UPDATE signer SET live = set_byte(live, 1, 99)`)

	p := launch(t, "--store="+db, "--node-id=a")
	c := p.connect()
	p.await("the signer to be counted", func() bool { return p.value("noncegate_signers_unreadable") == 1 })
	for _, method := range []string{wire.MethodAllocate, wire.MethodStatus} {
		c.want("unavailable none", method, allocation(account, ""))
	}
	c.allocate("another", "")
	if p.value("noncegate_invariant_alarms_total") == 0 {
		t.Error("there was no alarm")
	}
	p.says(`"msg":"the row of a signer cannot be read","component":"nonce","signer":"` + account + `"`)
	if o := runArgs(t, "signer", "list", "--admin", p.admin); !strings.Contains(o.stdout, account) || strings.Count(o.stdout, "its row cannot be read\n") != 1 {
		t.Errorf("exit %d, stderr %q, the list is\n%s", o.code, o.stderr, o.stdout)
	}

	execute(t, db, `UPDATE signer SET live = '', next_nonce = greatest(next_nonce, 9), version = version + 1, fencing_token = 0 WHERE signer = '`+account+`'`)
	if got := c.allocate(account, ""); got.Nonce != 9 || got.Attempt != 1 {
		t.Errorf("after its row was mended it was given %+v", got)
	}
	consistentButPruned(t, db)
}
