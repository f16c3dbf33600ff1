//go:build unix

package cluster

import (
	"testing"

	"noncegate/nonce/postgres"
	"noncegate/test/e2e"
)

// stayed fails the test unless the node has had the shards that it has now and had before
// all the time, under one token, and returns how many.
func stayed(f *e2e.Fleet, node string, before map[int]int64) (n int) {
	f.Helper()
	for shard, token := range f.ShardsOf(node) {
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
	f := &e2e.Fleet{TB: t, DB: e2e.PG.NewDatabase(t), Args: []string{"--lease-ttl=5s"}, Nodes: make(map[string]*e2e.Process)}
	f.Launch("a")
	f.Settled()
	atFirst := f.ShardsOf("a")
	if len(atFirst) != postgres.DefaultShards {
		t.Errorf("a has %d shards while it is alone", len(atFirst))
	}
	stop := make(chan struct{})
	crowd := f.Crowd(stop, 10)
	crowd.Reach(500)

	f.Begin("b")
	f.Begin("c")
	f.Nodes["b"].Serves()
	f.Nodes["c"].Serves()
	everywhere := f.Crowd(stop, 9)
	everywhere.Reach(100)
	f.Settled()
	if n := stayed(f, "a", atFirst); n != len(f.ShardsOf("a")) || n < postgres.DefaultShards/3 {
		t.Errorf("a has kept %d of its shards and has %d", n, len(f.ShardsOf("a")))
	}
	ofA, ofB := f.ShardsOf("a"), f.ShardsOf("b")
	f.Linked()
	close(stop)
	for _, c := range []*e2e.Crowd{crowd, everywhere} {
		c.All.Wait()
		c.Only("ok")
	}

	f.Nodes["c"].Stop()
	f.Drop("c")
	f.Settled()
	if n := stayed(f, "a", ofA) + stayed(f, "b", ofB); n != len(ofA)+len(ofB) {
		t.Errorf("%d shards stayed when c left, want all %d of the others", n, len(ofA)+len(ofB))
	}
	e2e.Consistent(t, f.DB)
}
