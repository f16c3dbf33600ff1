//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce/postgres"
	"noncegate/wire"
)

// shardsOf are the tokens of the shards that a node owns.
func (f *fleet) shardsOf(node string) map[int]int64 {
	f.Helper()
	conn := dial(f, f.db)
	defer conn.Close(f.Context())
	rows, err := conn.Query(f.Context(), `SELECT shard_id, fencing_token FROM shard WHERE owner_node = $1`, node)
	if err != nil {
		f.Fatal(err)
	}
	tokens := make(map[int]int64)
	var shard int
	var token int64
	if _, err := pgx.ForEachRow(rows, []any{&shard, &token}, func() error { tokens[shard] = token; return nil }); err != nil {
		f.Fatal(err)
	}
	return tokens
}

// stayed fails the test unless the node has had the shards that it has now and had before
// all the time, under one token, and returns how many.
func (f *fleet) stayed(node string, before map[int]int64) (n int) {
	f.Helper()
	for shard, token := range f.shardsOf(node) {
		if was, had := before[shard]; had {
			if n++; was != token {
				f.Errorf("shard %d of %s was acquired again: token %d, and %d before", shard, node, token, was)
			}
		}
	}
	return n
}

// TestLongNodesThatJoinHaveTheirShardsUnderLoadAndNobodyIsRefused: with as many shards as a
// database has if nobody says how many, and clients that do not ask twice.
func TestLongNodesThatJoinHaveTheirShardsUnderLoadAndNobodyIsRefused(t *testing.T) {
	const longest = 10 * time.Second // until they have them
	f := &fleet{TB: t, db: pg.NewDatabase(t), args: []string{"--lease-ttl=5s"}, nodes: make(map[string]*process)}
	f.launch("a")
	f.settled()
	atFirst := f.shardsOf("a")
	if len(atFirst) != postgres.DefaultShards {
		t.Errorf("a has %d shards while it is alone", len(atFirst))
	}
	signers := named("account", 1000)
	crowds := []*throng{f.throng(10, 4, signers)}
	a := f.nodes["a"]
	a.await("the signers to be in use", func() bool { return a.value("noncegate_signers_remembered") > 500 })

	f.begin("b")
	f.begin("c")
	f.nodes["b"].serves()
	f.nodes["c"].serves()
	joined := time.Now()
	others := &fleet{TB: t, nodes: map[string]*process{"b": f.nodes["b"], "c": f.nodes["c"]}}
	crowds = append(crowds, others.throng(5, 4, signers))
	f.settled()
	took := time.Since(joined)
	t.Logf("two nodes had their %d shards %v after they served", len(f.shardsOf("b"))+len(f.shardsOf("c")), took)
	if took > longest {
		t.Errorf("it took %v", took)
	}
	if n := f.stayed("a", atFirst); n != len(f.shardsOf("a")) || n < postgres.DefaultShards/3 {
		t.Errorf("a has kept %d of its shards and has %d", n, len(f.shardsOf("a")))
	}
	ofA, ofB := f.shardsOf("a"), f.shardsOf("b")
	f.linked()
	for _, c := range crowds {
		c.stop.Store(true)
		c.all.Wait()
		t.Logf("%v", c.said)
		for _, r := range c.told {
			t.Errorf("%v after they joined a client of %s was told %s", r.at.Sub(joined), r.node, r.what)
		}
	}

	f.nodes["c"].signal(syscall.SIGTERM)
	if code := f.nodes["c"].exit(); code != exitOK {
		t.Errorf("c ended with %d", code)
	}
	f.drop("c")
	f.settled()
	if n := f.stayed("a", ofA) + f.stayed("b", ofB); n != len(ofA)+len(ofB) {
		t.Errorf("%d shards stayed when c left, want all %d of the others", n, len(ofA)+len(ofB))
	}
	consistent(t, f.db)
}

// TestLongABasicNodeServesBesideNodesThatOwn: it takes no lease and forwards nothing, and
// all it does is in order with what the others do.
func TestLongABasicNodeServesBesideNodesThatOwn(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b c=basic")
	stop := make(chan struct{})
	c := f.crowd(stop, 6)
	c.reach(1500)
	close(stop)
	c.all.Wait()
	c.only("ok")
	c.stored(f.db)
	basic := f.nodes["c"]
	if basic.value(`noncegate_lease_acquire_total{result="acquired"}`) != 0 ||
		f.sum(`noncegate_forwarded_total{result="answered"}`) == 0 {
		t.Error("the basic node owns something, or the others forwarded nothing")
	}
	if nodes := query(t, f.db, `SELECT DISTINCT owner FROM signers WHERE owner NOT IN ('a', 'b')`); nodes != "" {
		t.Errorf("owners: %s", nodes)
	}
	for name, c := range f.connectEach() {
		// What is handed out at an owner carries its token, and at the basic node none.
		if got := decode[wire.AllocateResult](t, c.want("ok", wire.MethodAllocate, allocation(account, ""))); (got.FencingToken == 0) != (name == "c") {
			t.Errorf("%s handed out %+v", name, got)
		}
		if f.nodes[name].value("noncegate_commit_seconds_count") == 0 {
			t.Errorf("%s committed nothing", name)
		}
	}
}
