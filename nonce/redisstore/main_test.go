//go:build unix

package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/redistest"
	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

var server *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &server)) }

// testTimeout is a safety net; nothing waits for it when things work.
const testTimeout = 30 * time.Second

// epoch is the store's clock when a test begins.
var epoch = time.UnixMicro(1_900_000_000_123_456)

const signer = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// bench is a signer in Redis as its owner knows it.
type bench struct {
	t      testing.TB
	store  *redisstore.Store
	client redis.UniversalClient
	belief nonce.FastBelief
	now    time.Time
	next   int64
	floor  int64
	held   int64
}

func open(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(client, redisstore.Config{Cluster: "test", Shards: 4, Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// seeded is a signer that was copied, at version 10, under token 5.
func seeded(t testing.TB, client redis.UniversalClient, rows ...nonce.Row) *bench {
	t.Helper()
	b := &bench{t: t, store: open(t, client), client: client, now: epoch}
	b.belief = nonce.FastBelief{ID: 7, Signer: signer, Token: 5, Version: 10}
	b.seed(rows, nil)
	return b
}

// seed copies the rows; the cursor is behind the last one.
func (b *bench) seed(rows []nonce.Row, requests []nonce.Remembered) {
	b.t.Helper()
	b.next, b.held = b.floor, 0
	for _, r := range rows {
		b.next = max(b.next, r.Nonce+1)
		if r.Status == nonce.Held {
			b.held++
		}
	}
	id, res := b.store.Seed(testContext(b.t), nonce.SeedPiece{
		Last: true, FastBelief: b.belief, Next: b.next, Floor: b.floor, Held: b.held, Rows: rows, Requests: requests, Now: b.now,
	})
	b.belief.Identity = id
	b.is(res, nonce.FastDone)
	s := b.store.Read(testContext(b.t), b.now, []nonce.FastRead{{FastBelief: b.belief, Serve: true}})[0]
	b.is(nonce.FastResult{Verdict: s.Verdict, Err: s.Err}, nonce.FastDone)
}

func (b *bench) is(got nonce.FastResult, want nonce.FastVerdict) {
	b.t.Helper()
	if got.Verdict != want || (got.Err == nil) != (want == nonce.FastDone) {
		b.t.Fatalf("the verdict is %d, %v; want %d", got.Verdict, got.Err, want)
	}
}

// allocate is the change that hands out n new nonces.
func (b *bench) allocate(n int, hold time.Duration) nonce.FastChange {
	c := b.change()
	for range n {
		c.Rows = append(c.Rows, nonce.RowChange{Nonce: c.Next, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: hold})
		c.Next++
		c.Held++
	}
	return c
}

// mark is the change that ends the hold of a nonce of attempt 1.
func (b *bench) mark(n int64, to nonce.Status) nonce.FastChange {
	c := b.change()
	r := nonce.RowChange{Nonce: n, FromStatus: nonce.Held, FromAttempt: 1, Status: to, Attempt: 1, Reason: "why not"}
	if to == nonce.Consumed {
		r.Reason, r.TxHash = "", nonce.TxHash{31: byte(n), 0: 1}
	}
	c.Rows, c.Held = []nonce.RowChange{r}, c.Held-1
	return c
}

func (b *bench) change() nonce.FastChange {
	return nonce.FastChange{Identity: b.belief.Identity, Change: nonce.Change{
		ID: b.belief.ID, Signer: b.belief.Signer, Token: b.belief.Token, Version: b.belief.Version,
		Next: b.next, Floor: b.floor, Held: b.held,
	}}
}

// try commits and leaves memory as it is.
func (b *bench) try(c nonce.FastChange) nonce.FastResult {
	b.t.Helper()
	return b.store.Commit(testContext(b.t), b.now, []nonce.FastChange{c})[0]
}

// commit commits and remembers.
func (b *bench) commit(c nonce.FastChange) {
	b.t.Helper()
	b.is(b.try(c), nonce.FastDone)
	b.follow(c)
}

func (b *bench) follow(c nonce.FastChange) {
	b.belief.Version, b.next, b.floor, b.held = c.Version+1, c.Next, c.Floor, c.Held
}

func (b *bench) read(need nonce.Need) nonce.FastSnapshot {
	b.t.Helper()
	return b.store.Read(testContext(b.t), b.now, []nonce.FastRead{{FastBelief: b.belief, Need: need}})[0]
}

func (b *bench) takeOver(token int64, need nonce.Need) nonce.FastSnapshot {
	b.t.Helper()
	belief := b.belief
	belief.Token = token
	return b.store.Read(testContext(b.t), b.now, []nonce.FastRead{{FastBelief: belief, TakeOver: true, Need: need}})[0]
}

// key is the name of one of the signer's keys.
func (b *bench) key(kind string) string {
	return fmt.Sprintf("{noncegate:test:%d}%s%s", b.store.Shard(b.belief.Signer), kind, b.belief.Signer)
}

// events are those of the signer's shard.
func (b *bench) events() []redisstore.Event {
	b.t.Helper()
	events, _, err := b.store.Events(testContext(b.t), b.store.Shard(b.belief.Signer), 10_000, 0, []nonce.Identity{b.belief.Identity})
	if err != nil {
		b.t.Fatal(err)
	}
	return events
}

// flush acknowledges all events.
func (b *bench) flush() {
	b.t.Helper()
	if err := b.store.Ack(testContext(b.t), b.store.Shard(b.belief.Signer), b.events()); err != nil {
		b.t.Fatal(err)
	}
}

// dump is everything in Redis, as DUMP tells it.
func dump(t testing.TB, client redis.UniversalClient) []string {
	t.Helper()
	ctx := testContext(t)
	names, err := client.Keys(ctx, "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for i, name := range names {
		value, err := client.Dump(ctx, name).Result()
		if err != nil {
			t.Fatal(err)
		}
		names[i] += " " + value
	}
	return names
}

func same[T any](t testing.TB, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it is\n%+v\nwant\n%+v", got, want)
	}
}
