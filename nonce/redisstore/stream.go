package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

// Event is one event of a flush shard, as it was committed.
type Event struct {
	// Entry is its id in the stream: milliseconds of the server's clock, and a number.
	Entry string
	nonce.FlushEvent
	// Below are the nonces that BelowFloor consumed.
	Below []int64
	// Err says that this is no event, or of a form that this program does not know.
	// The rest is zero then. It wraps ErrEvent.
	Err error

	raw string
}

// ErrIdentity is the cause where a server answers that is not the one that was meant.
var ErrIdentity = errors.New("another Redis server answers than the one that was accepted")

// Events reads the events of a shard that have not been acknowledged, at most most,
// from the oldest on. Where there are none it waits for one for as long as block, by
// the server's clock; 0: it does not. Several may read one shard; nothing is taken
// away by it. The identity is that of the server, asked after the events were read.
// Where it is none of accepted the error is ErrIdentity, and no event is returned.
func (s *Store) Events(ctx context.Context, shard, most int, block time.Duration, accepted []nonce.Identity) ([]Event, nonce.Identity, error) {
	events, server, err := s.events(ctx, shard, most, accepted)
	if err != nil || len(events) > 0 || block <= 0 {
		return events, server, err
	}
	if err := s.wait(ctx, shard, block); err != nil {
		return nil, server, fmt.Errorf("wait for events of shard %d: %w", shard, err)
	}
	return s.events(ctx, shard, most, accepted)
}

func (s *Store) events(ctx context.Context, shard, most int, accepted []nonce.Identity) ([]Event, nonce.Identity, error) {
	var msgs *redis.XMessageSliceCmd
	server, err := s.ask(ctx, shard, "events", func(pipe redis.Pipeliner) {
		msgs = pipe.XRangeN(ctx, s.streamKey(shard), "-", "+", int64(most))
	})
	switch {
	case err != nil:
		return nil, server, fmt.Errorf("read events of shard %d: %w", shard, err)
	case !slices.Contains(accepted, server):
		return nil, server, fmt.Errorf("read events of shard %d: %w: run id %s, history %s", shard, ErrIdentity, server.RunID, server.ReplID)
	}
	events := make([]Event, len(msgs.Val()))
	for i, m := range msgs.Val() {
		events[i] = event(m)
	}
	return events, server, nil
}

// ask runs commands on the server of a shard, and asks it after them who it is.
func (s *Store) ask(ctx context.Context, shard int, name string, queue func(redis.Pipeliner)) (nonce.Identity, error) {
	node, err := s.node(ctx, s.streamKey(shard))
	if err != nil {
		return nonce.Identity{}, err
	}
	pipe := node.Pipeline()
	queue(pipe)
	info := pipe.Info(ctx, "server", "replication")
	started := time.Now()
	_, err = pipe.Exec(ctx)
	if s.cfg.Observe != nil {
		s.cfg.Observe(name, 1, time.Since(started))
	}
	if err != nil {
		s.moved(ctx, err)
		return nonce.Identity{}, err
	}
	return identity(info)
}

// moved has the map of a cluster read again where an error says that it is old.
func (s *Store) moved(ctx context.Context, err error) {
	if s.cluster != nil && fateOf(err) == astray {
		s.cluster.ReloadState(ctx)
	}
}

// wait returns when there is an event, or none came for so long. What it is is read
// apart, in one pipeline with the question for the server's identity.
func (s *Store) wait(ctx context.Context, shard int, block time.Duration) error {
	node, err := s.node(ctx, s.streamKey(shard))
	if err != nil {
		return err
	}
	err = node.XRead(ctx, &redis.XReadArgs{Streams: []string{s.streamKey(shard), "0"}, Count: 1, Block: block}).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		s.moved(ctx, err)
	}
	return err
}

// event reads an entry of a stream.
func event(m redis.XMessage) Event {
	e := Event{Entry: m.ID}
	e.raw, _ = m.Values["e"].(string)
	if e.FlushEvent, e.Err = decodeEvent(e.raw); e.Err != nil {
		return e
	}
	below, _ := m.Values["b"].(string)
	for word := range strings.FieldsSeq(below) {
		n, ok := parseNum(word)
		if !ok {
			return Event{Entry: m.ID, raw: e.raw, Err: fmt.Errorf("nonce %q: %w", word, ErrEvent)}
		}
		e.Below = append(e.Below, n)
	}
	return e
}

// ErrNotHead is the cause where events are acknowledged behind others that are not.
var ErrNotHead = errors.New("an older event of the shard is not among those acknowledged")

// Ack removes events that the store has, with the CONSUMED rows that were kept for
// them. They are what Events returned, or a beginning of it, without those that
// became dead letters: where an older event is in the stream, nothing is removed from
// it, and the error is ErrNotHead. Acknowledging what is gone already does nothing. An error
// leaves open how much was removed; to do it again is right.
func (s *Store) Ack(ctx context.Context, shard int, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	calls := s.settled(events)
	first, last := &events[0], &events[len(events)-1]
	next, err := after(last.Entry)
	if err != nil {
		return fmt.Errorf("acknowledge events of shard %d: %w", shard, err)
	}
	calls = append(calls, call{script: trimScript, keys: []string{s.streamKey(shard)}, args: []any{first.Entry, last.Entry, next, last.raw}})
	var errs []error
	answers := s.run(ctx, "ack", calls)
	for i := range answers {
		switch verdict, err := answers[i].verdict(nonce.Identity{}, "of the shard"); {
		case verdict == nonce.FastLost && calls[i].script == trimScript:
			errs = append(errs, ErrNotHead)
		case verdict != nonce.FastDone:
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("acknowledge events of shard %d: %w", shard, err)
	}
	return nil
}

// settled are the calls that remove CONSUMED rows, one for each signer that has any.
// They come before the events are removed: who crashes between does both again.
func (s *Store) settled(events []Event) []call {
	var calls []call
	bySigner := make(map[string]int)
	for i := range events {
		e := &events[i]
		nonces := make([]any, 0, len(e.Below))
		for j := range e.Rows {
			if r := &e.Rows[j]; r.Status == nonce.Consumed || e.BelowFloor && r.Status == nonce.Released && r.Nonce < e.Floor {
				nonces = append(nonces, num(r.Nonce))
			}
		}
		for _, n := range e.Below {
			nonces = append(nonces, num(n))
		}
		if len(nonces) == 0 {
			continue
		}
		at, ok := bySigner[e.Signer]
		if !ok {
			at = len(calls)
			bySigner[e.Signer] = at
			calls = append(calls, call{script: settledScript, keys: []string{s.keys(e.Signer).rows}, args: []any{""}})
		}
		calls[at].args[0] = num(e.To) // the last one
		calls[at].args = append(calls[at].args, nonces...)
	}
	return calls
}

// after is the id that follows another one.
func after(entry string) (string, error) {
	ms, seq, ok := strings.Cut(entry, "-")
	n, err := strconv.ParseUint(seq, 10, 64)
	if !ok || err != nil || n == 1<<64-1 {
		return "", fmt.Errorf("%q is no id of an event", entry)
	}
	return ms + "-" + strconv.FormatUint(n+1, 10), nil
}

// Lag is what is waiting in a shard.
type Lag struct {
	Shard  int
	Events int64
	Oldest time.Time // when the oldest was committed, by the store's clock; zero: none waits, or it is not known
	Dead   int64     // dead letters
	Server nonce.Identity
}

// Lag tells what is waiting in these shards, in order, whoever has them.
func (s *Store) Lag(ctx context.Context, shards []int) ([]Lag, error) {
	lags := make([]Lag, len(shards))
	for i, shard := range shards {
		var count, dead *redis.IntCmd
		var head *redis.XMessageSliceCmd
		server, err := s.ask(ctx, shard, "lag", func(pipe redis.Pipeliner) {
			count = pipe.XLen(ctx, s.streamKey(shard))
			head = pipe.XRangeN(ctx, s.streamKey(shard), "-", "+", 1)
			dead = pipe.XLen(ctx, s.deadKey(shard))
		})
		if err != nil {
			return nil, fmt.Errorf("lag of shard %d: %w", shard, err)
		}
		lags[i] = Lag{Shard: shard, Events: count.Val(), Dead: dead.Val(), Server: server}
		for _, m := range head.Val() {
			lags[i].Oldest = event(m).At
		}
	}
	return lags, nil
}
