//go:build unix

package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

// BenchmarkCommit says what small commits cost the server, in processor time of its
// one thread (redis-us/commit): that is what bounds all nodes together. A commit is,
// by turns, a new hold and its end; the append-only file is written.
func BenchmarkCommit(b *testing.B) {
	for _, signers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("signers=%d", signers), func(b *testing.B) {
			l := newLoad(b, server.Client(b), signers)
			n := 0
			l.run(func(s *bench) nonce.FastChange {
				n++
				if n <= signers {
					return s.allocate(1, time.Minute)
				}
				n %= 2 * signers
				return s.mark(s.next-1, nonce.Consumed)
			})
		})
	}
}

// BenchmarkHold is as BenchmarkCommit with 16 signers a batch, each of which hands
// out so many new nonces in one commit.
func BenchmarkHold(b *testing.B) {
	for _, count := range []int{1, 16} {
		b.Run(fmt.Sprintf("count=%d", count), func(b *testing.B) {
			newLoad(b, server.Client(b), 16).run(func(s *bench) nonce.FastChange { return s.allocate(count, time.Minute) })
		})
	}
}

// BenchmarkCheck is what a comparison costs that writes nothing.
func BenchmarkCheck(b *testing.B) {
	newLoad(b, server.Client(b), 16).run(func(s *bench) nonce.FastChange {
		c := s.change()
		c.Check = true
		return c
	})
}

// BenchmarkFlushed is what an event costs the server on its way out: read once, and
// acknowledged with its CONSUMED row.
func BenchmarkFlushed(b *testing.B) {
	l := newLoad(b, server.Client(b), 16)
	var took float64
	events := 0
	for b.Loop() {
		for range 32 {
			l.commit(func(s *bench) nonce.FastChange { return s.allocate(1, time.Minute) })
			l.commit(func(s *bench) nonce.FastChange { return s.mark(s.next-1, nonce.Consumed) })
		}
		before := cpu(b, l.client)
		events += l.drain()
		took += cpu(b, l.client) - before
	}
	b.ReportMetric(took*1e6/float64(events), "redis-us/event")
}

// load is a number of signers that one node serves.
type load struct {
	b       *testing.B
	client  *redis.Client
	all     []*bench
	changes []nonce.FastChange
}

func newLoad(b *testing.B, client *redis.Client, signers int) *load {
	l := &load{b: b, client: client, changes: make([]nonce.FastChange, signers)}
	for i := range signers {
		s := &bench{t: b, store: open(b, client), client: client, now: epoch}
		s.belief = nonce.FastBelief{ID: int64(i), Signer: signer + strconv.Itoa(i), Token: 5, Version: 10}
		s.seed(nil, nil)
		l.all = append(l.all, s)
	}
	return l
}

// run commits batches of a change of each signer.
func (l *load) run(plan func(*bench) nonce.FastChange) {
	var took, in, out float64
	var elapsed time.Duration
	batches := 0
	for l.b.Loop() {
		in -= figure(l.b, l.client, "stats", "total_net_input_bytes")
		out -= figure(l.b, l.client, "stats", "total_net_output_bytes")
		before, started := cpu(l.b, l.client), time.Now()
		for range 64 {
			l.commit(plan)
		}
		elapsed += time.Since(started)
		took += cpu(l.b, l.client) - before
		in += figure(l.b, l.client, "stats", "total_net_input_bytes")
		out += figure(l.b, l.client, "stats", "total_net_output_bytes")
		batches += 64
		l.drain()
		for _, s := range l.all { // so that holds do not pile up
			s.belief.Version += 1 << 20
			s.seed(nil, nil)
		}
	}
	commits := float64(batches * len(l.all))
	l.b.ReportMetric(took*1e6/commits, "redis-us/commit")
	l.b.ReportMetric(commits/elapsed.Seconds(), "commits/s")
	l.b.ReportMetric(in/commits, "in-B/commit")
	l.b.ReportMetric(out/commits, "out-B/commit")
}

func (l *load) commit(plan func(*bench) nonce.FastChange) {
	for i, s := range l.all {
		l.changes[i] = plan(s)
	}
	for i, r := range l.all[0].store.Commit(context.Background(), epoch, l.changes) {
		if r.Verdict != nonce.FastDone {
			l.b.Fatal(r.Err)
		}
		if !l.changes[i].Check {
			l.all[i].follow(l.changes[i])
		}
	}
}

// drain acknowledges all events and counts them.
func (l *load) drain() (n int) {
	ctx, store, id := context.Background(), l.all[0].store, []nonce.Identity{l.all[0].belief.Identity}
	for shard := range store.Shards() {
		for {
			events, _, err := store.Events(ctx, shard, 1000, 0, id)
			if err != nil {
				l.b.Fatal(err)
			}
			if len(events) == 0 {
				break
			}
			if err := store.Ack(ctx, shard, events); err != nil {
				l.b.Fatal(err)
			}
			n += len(events)
		}
	}
	return n
}

// BenchmarkMemory is what a signer takes in the memory of Redis, in bytes, by how many
// holds it has; what a request id takes, and a hold with its event in the stream.
func BenchmarkMemory(b *testing.B) {
	client := server.Client(b)
	s := seeded(b, client)
	s.belief.Token, s.belief.Version, s.floor = 50_000, 1_000_000, 100_000
	for b.Loop() {
		for _, n := range []int64{0, 1, 10, 100, 1000} {
			s.seed(holds(n), nil)
			b.ReportMetric(s.memory(), fmt.Sprintf("B/signer-%d-holds", n))
		}
		const more = 1000
		var ids []nonce.Remembered
		for i := range more {
			id := fmt.Sprintf("0190a4b8-7b1e-7000-8000-%012d", i)
			ids = append(ids, nonce.Remembered{Request: nonce.Request{ID: id, Nonces: []int64{100_000}, Attempts: []int64{1}}, At: epoch})
		}
		s.seed(nil, nil)
		before := s.memory()
		s.seed(nil, ids)
		b.ReportMetric((s.memory()-before)/more, "B/id")
		s.seed(holds(1000), nil)
		before = s.memory()
		for range more {
			s.commit(s.allocate(1, time.Minute))
		}
		b.ReportMetric((s.memory()-before)/more, "B/hold-and-event")
		before = s.memory()
		s.flush()
		b.ReportMetric((before-s.memory())/more, "B/event")
	}
}

func holds(n int64) (rows []nonce.Row) {
	for i := range n {
		rows = append(rows, nonce.Row{Nonce: 100_000 + i, Status: nonce.Held, Attempt: 1, Token: 50_000, HeldUntil: epoch})
	}
	return rows
}

// memory is what all keys take.
func (b *bench) memory() (bytes float64) {
	ctx := context.Background()
	names, err := b.client.Keys(ctx, "*").Result()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range names {
		n, err := b.client.MemoryUsage(ctx, name, 0).Result()
		if err != nil {
			b.t.Fatal(err)
		}
		bytes += float64(n)
	}
	return bytes
}
