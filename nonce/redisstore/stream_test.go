//go:build unix

package redisstore_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

// versions are those after each event.
func versions(events []redisstore.Event) []int64 {
	out := make([]int64, len(events))
	for i := range events {
		out[i] = events[i].To
	}
	return out
}

// committed is a signer of four commits: two holds, one used, one released, a floor.
func committed(t *testing.T) *bench {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(2, time.Minute))
	b.commit(b.mark(0, nonce.Consumed))
	b.commit(b.mark(1, nonce.Released))
	c := b.change()
	c.Floor, c.BelowFloor = 2, true
	b.commit(c)
	return b
}

func TestEventsAreReadFromTheOldestUntilTheyAreAcknowledged(t *testing.T) {
	b := committed(t)
	events := b.events()
	if got := versions(events); !slices.Equal(got, []int64{11, 12, 13, 14}) {
		t.Fatalf("events are %v", got)
	}
	if last := events[3]; !last.BelowFloor || !slices.Equal(last.Below, []int64{1}) || last.Floor != 2 || !last.At.Equal(epoch) {
		t.Errorf("the last event is %+v", last)
	}
	shard := b.store.Shard(signer)
	b.ack(events[:2], nil)
	if got := versions(b.events()); !slices.Equal(got, []int64{13, 14}) {
		t.Fatalf("after two were acknowledged they are %v", got)
	}
	if got := b.left(); !slices.Equal(got, []int64{1}) {
		t.Errorf("rows %v are left: nonce 0 is consumed and flushed", got)
	}
	b.ack(events[:2], nil) // again
	b.ack(b.events(), nil)
	if got := b.left(); len(got) != 0 || len(b.events()) != 0 {
		t.Errorf("rows %v are left", got)
	}
	lag, err := b.store.Lag(testContext(t), []int{shard})
	if err != nil || lag[0].Events != 0 || !lag[0].Oldest.IsZero() {
		t.Errorf("the lag is %+v, %v", lag, err)
	}
}

func (b *bench) ack(events []redisstore.Event, want error) {
	b.t.Helper()
	err := b.store.Ack(testContext(b.t), b.store.Shard(signer), events)
	if (err == nil) != (want == nil) || !errors.Is(err, want) {
		b.t.Fatalf("acknowledge: %v, want %v", err, want)
	}
}

// left are the nonces that have rows.
func (b *bench) left() (numbers []int64) {
	b.t.Helper()
	rows, res := b.store.Rows(testContext(b.t), signer, b.belief.Identity, 0, 1000)
	b.is(res, nonce.FastDone)
	for _, r := range rows {
		numbers = append(numbers, r.Nonce)
	}
	return numbers
}

func TestWhatWasNotFlushedIsNotTrimmed(t *testing.T) {
	b := committed(t)
	events := b.events()
	b.ack(events[1:], redisstore.ErrNotHead) // the first is not among them
	if got := versions(b.events()); !slices.Equal(got, []int64{11, 12, 13, 14}) {
		t.Errorf("events are %v", got)
	}
}

func TestAcknowledgingEventsOfAnotherLifeDoesNothing(t *testing.T) {
	b := committed(t)
	old := b.events()
	if err := b.client.FlushAll(testContext(t)).Err(); err != nil {
		t.Fatal(err)
	}
	// The same ids, as of a server whose clock was set back, and other events.
	for _, e := range old {
		if err := b.client.XAdd(testContext(t), &redis.XAddArgs{Stream: "{noncegate:test:0}events", ID: e.Entry, Values: []string{"e", "other"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.ack(old, nil)
	if got := b.events(); len(got) != len(old) {
		t.Errorf("%d events are left of %d", len(got), len(old))
	}
}

func TestARowThatChangedAfterTheFlushStays(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(2, time.Minute))
	b.commit(b.mark(0, nonce.Released))
	c := b.change()
	c.Floor, c.BelowFloor = 1, true
	b.commit(c)
	before := b.events()
	late := b.change() // it was used after all
	late.Rows = []nonce.RowChange{{FromStatus: nonce.Consumed, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{1}, Reason: nonce.ReasonBelowFloor}}
	b.commit(late)
	b.ack(before, nil)
	if got := b.left(); !slices.Equal(got, []int64{0, 1}) {
		t.Errorf("rows %v are left, want both", got)
	}
	b.ack(b.events(), nil)
	if got := b.left(); !slices.Equal(got, []int64{1}) {
		t.Errorf("rows %v are left, want the hold", got)
	}
}

func TestEventsOfAServerThatWasNotAcceptedAreNotReturned(t *testing.T) {
	b := committed(t)
	other := nonce.Identity{RunID: "other", ReplID: b.belief.Identity.ReplID}
	events, id, err := b.store.Events(testContext(t), b.store.Shard(signer), 10, 0, []nonce.Identity{other})
	if !errors.Is(err, redisstore.ErrIdentity) || len(events) != 0 || id != b.belief.Identity {
		t.Errorf("%d events of %v, %v", len(events), id, err)
	}
}

func TestAWaitingReaderGetsTheFirstEvent(t *testing.T) {
	b := seeded(t, server.Client(t))
	ctx, shard, accepted := testContext(t), b.store.Shard(signer), []nonce.Identity{b.belief.Identity}
	if events, _, err := b.store.Events(ctx, shard, 10, 20*time.Millisecond, accepted); len(events) != 0 || err != nil {
		t.Fatalf("of an empty stream: %v, %v", events, err)
	}
	got := make(chan []redisstore.Event, 1)
	go func() {
		events, _, err := b.store.Events(ctx, shard, 10, 10*time.Second, accepted)
		if err != nil {
			t.Error(err)
		}
		got <- events
	}()
	for figure(t, b.client, "clients", "blocked_clients") == 0 {
		if ctx.Err() != nil {
			t.Fatal("nobody waits")
		}
	}
	b.commit(b.allocate(1, time.Minute))
	if events := <-got; !slices.Equal(versions(events), []int64{11}) {
		t.Errorf("it gets %v", events)
	}
}

func TestTheLagIsTheNumberAndTheOldest(t *testing.T) {
	b := seeded(t, server.Client(t))
	shard := b.store.Shard(signer)
	b.commit(b.allocate(1, time.Minute))
	b.now = b.now.Add(time.Hour)
	b.commit(b.allocate(1, time.Minute))
	other := (shard + 1) % b.store.Shards()
	lag, err := b.store.Lag(testContext(t), []int{other, shard})
	if err != nil {
		t.Fatal(err)
	}
	id := b.belief.Identity
	same(t, lag, []redisstore.Lag{{Shard: other, Server: id}, {Shard: shard, Events: 2, Oldest: epoch, Server: id}})
}

func TestADeadLetterIsMovedListedAndReplayed(t *testing.T) {
	b := committed(t)
	ctx, shard, all := testContext(t), b.store.Shard(signer), b.events()
	for _, e := range []redisstore.Event{all[1], all[3]} {
		if moved, err := b.store.Bury(ctx, shard, e, "a reason"); !moved || err != nil {
			t.Fatal(moved, err)
		}
	}
	if moved, err := b.store.Bury(ctx, shard, all[1], "again"); moved || err != nil {
		t.Errorf("moved twice: %v, %v", moved, err)
	}
	if got := versions(b.events()); !slices.Equal(got, []int64{11, 13}) {
		t.Errorf("events are %v", got)
	}
	letters, err := b.store.Dead(ctx, shard, "", 10)
	if err != nil || len(letters) != 2 || letters[0].Why != "a reason" || letters[0].To != 12 || !slices.Equal(letters[1].Below, []int64{1}) {
		t.Fatalf("dead letters are %+v, %v", letters, err)
	}
	if rest, err := b.store.Dead(ctx, shard, letters[0].ID, 10); err != nil || len(rest) != 1 || rest[0].To != 14 {
		t.Errorf("after the first there are %+v, %v", rest, err)
	}
	if lag, err := b.store.Lag(ctx, []int{shard}); err != nil || lag[0].Dead != 2 {
		t.Errorf("the lag is %+v, %v", lag, err)
	}
	b.ack(b.events(), nil)
	if n, err := b.store.Replay(ctx, shard, []string{letters[0].ID, letters[1].ID, "1-1"}); n != 2 || err != nil {
		t.Fatalf("%d are replayed, %v", n, err)
	}
	again := b.events()
	if got := versions(again); !slices.Equal(got, []int64{12, 14}) || !slices.Equal(again[1].Below, []int64{1}) {
		t.Errorf("events are %+v", again)
	}
	b.ack(again, nil)
	if got := b.left(); len(got) != 0 {
		t.Errorf("rows %v are left", got)
	}
}

func TestADroppedDeadLetterIsGone(t *testing.T) {
	b := committed(t)
	ctx, shard := testContext(t), b.store.Shard(signer)
	if _, err := b.store.Bury(ctx, shard, b.events()[0], "why"); err != nil {
		t.Fatal(err)
	}
	letters, err := b.store.Dead(ctx, shard, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.store.Drop(ctx, shard, []string{letters[0].ID}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if letters, err = b.store.Dead(ctx, shard, "", 10); len(letters) != 0 || err != nil {
		t.Errorf("%+v are left, %v", letters, err)
	}
}

func TestAForeignEntryIsAnEventWithAnErrorAndCanBeBuried(t *testing.T) {
	b := seeded(t, server.Client(t))
	ctx, shard := testContext(t), b.store.Shard(signer)
	stream := "{noncegate:test:0}events"
	for _, values := range [][]string{{"e", "junk"}, {"x", "y"}} {
		if err := b.client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.commit(b.allocate(1, time.Minute))
	events := b.events()
	if len(events) != 3 || events[2].Err != nil {
		t.Fatalf("events are %+v", events)
	}
	for _, e := range events[:2] {
		if !errors.Is(e.Err, redisstore.ErrEvent) {
			t.Errorf("a foreign entry is %+v", e)
		}
		if moved, err := b.store.Bury(ctx, shard, e, "foreign"); !moved || err != nil {
			t.Errorf("bury: %v, %v", moved, err)
		}
	}
	if got := b.events(); len(got) != 1 {
		t.Errorf("%d events are left", len(got))
	}
}
