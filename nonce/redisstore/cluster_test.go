//go:build unix

package redisstore_test

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/redistest"
	"noncegate/nonce"
	"noncegate/nonce/redisstore"
	"noncegate/redisdb"
)

func startCluster(t *testing.T) (*redistest.Cluster, redis.UniversalClient) {
	t.Helper()
	c, err := redistest.StartCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { do(t, c.Close) })
	db, err := redisdb.Open(testContext(t), c.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { do(t, db.Close) })
	return c, db.Client()
}

func TestOnAClusterEachSignerIsAtOneServer(t *testing.T) {
	_, client := startCluster(t)
	store, err := redisstore.Open(client, redisstore.Config{Cluster: "test", Shards: 16})
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	servers, err := store.Probe(ctx)
	if err != nil || len(servers) != 3 {
		t.Fatalf("servers %+v, %v", servers, err)
	}
	at := make(map[int]nonce.Identity)
	var accepted []nonce.Identity
	for _, s := range servers {
		accepted = append(accepted, s.Identity)
		for _, shard := range s.Shards {
			at[shard] = s.Identity
		}
	}
	var all []*bench
	var changes, checks []nonce.FastChange
	for i := range 60 {
		b := &bench{t: t, store: store, client: client, now: epoch}
		b.belief = nonce.FastBelief{ID: int64(i + 1), Signer: "signer{" + strconv.Itoa(i), Token: 5, Version: 10}
		b.seed(nil, nil)
		if want := at[store.Shard(b.belief.Signer)]; b.belief.Identity != want {
			t.Fatalf("%s is at %v, want %v", b.belief.Signer, b.belief.Identity, want)
		}
		c := b.allocate(2, time.Minute)
		c.Requests = []nonce.Request{{ID: "id", Nonces: []int64{0}, Attempts: []int64{1}}}
		all, changes = append(all, b), append(changes, c)
	}
	for i, r := range store.Commit(ctx, epoch, changes) {
		all[i].is(r, nonce.FastDone)
		all[i].follow(changes[i])
		check := all[i].change()
		check.Check = true
		check.Identity = all[(i+1)%len(all)].belief.Identity
		checks = append(checks, check)
	}
	for i, r := range store.Commit(ctx, epoch, checks) {
		want := nonce.FastLost
		if checks[i].Identity == all[i].belief.Identity {
			want = nonce.FastDone
		}
		all[i].is(r, want)
	}
	flushed := 0
	for shard := range store.Shards() {
		events, id, err := store.Events(ctx, shard, 100, 0, accepted)
		if err != nil || id != at[shard] {
			t.Fatalf("events of shard %d from %v, %v", shard, id, err)
		}
		flushed += len(events)
		if err := store.Ack(ctx, shard, events); err != nil {
			t.Fatal(err)
		}
	}
	if flushed != len(all) {
		t.Errorf("%d events of %d commits", flushed, len(all))
	}
}

func TestASlotThatMovedIsNotSentAndThenLost(t *testing.T) {
	c, client := startCluster(t)
	b := seeded(t, client)
	ctx := testContext(t)
	do(t, client.Del(ctx, b.key("n:")).Err)
	slot := int(client.ClusterKeySlot(ctx, b.key("n:")).Val())
	from, err := c.Owner(ctx, slot)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Move(ctx, slot, from, (from+1)%3); err != nil {
		t.Fatal(err)
	}
	// The map is the old one until the server says that the slot is not there.
	b.is(b.try(b.allocate(1, time.Minute)), nonce.FastNotSent)
	for {
		r := b.try(b.allocate(1, time.Minute))
		if r.Verdict == nonce.FastLost {
			break
		}
		b.is(r, nonce.FastNotSent)
		if ctx.Err() != nil {
			t.Fatal("the map of the cluster is never read again")
		}
	}
	b.seed(nil, nil)
	b.commit(b.allocate(1, time.Minute))
}

func TestOneServerOfAClusterThatIsGoneConcernsItsSignersOnly(t *testing.T) {
	c, client := startCluster(t)
	store, err := redisstore.Open(client, redisstore.Config{Cluster: "test", Shards: 16})
	if err != nil {
		t.Fatal(err)
	}
	gone, err := store.Identities(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var all []*bench
	var changes []nonce.FastChange
	for i := range 30 {
		b := &bench{t: t, store: store, client: client, now: epoch}
		b.belief = nonce.FastBelief{ID: int64(i + 1), Signer: "signer" + strconv.Itoa(i), Token: 5, Version: 10}
		b.seed(nil, nil)
		all, changes = append(all, b), append(changes, b.allocate(1, time.Minute))
	}
	for _, s := range c.Servers {
		if s.Addr() == gone[0].Addr {
			do(t, s.Kill)
		}
	}
	for i, r := range store.Commit(testContext(t), epoch, changes) {
		want := nonce.FastDone
		if changes[i].Identity == gone[0].Identity {
			want = nonce.FastNotSent
		}
		all[i].is(r, want)
	}
}
