package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

// DeadLetter is an event that could not be applied.
type DeadLetter struct {
	ID string // among the dead letters of its shard
	Event
	Why string
}

// Bury moves one event out of a shard's stream to its dead letters. It reports
// whether the event was still there.
func (s *Store) Bury(ctx context.Context, shard int, e Event, why string) (bool, error) {
	n, err := s.count(ctx, "bury", call{
		script: deadScript, keys: []string{s.streamKey(shard), s.deadKey(shard)}, args: []any{e.Entry, e.raw, why},
	})
	if err != nil {
		return false, fmt.Errorf("move event %s of shard %d to the dead letters: %w", e.Entry, shard, err)
	}
	return n > 0, nil
}

// Dead are the dead letters of a shard after that one ("": from the first on), at
// most most, in the order in which they became that.
func (s *Store) Dead(ctx context.Context, shard int, after string, most int) ([]DeadLetter, error) {
	from := "-"
	if after != "" {
		from = "(" + after
	}
	var msgs *redis.XMessageSliceCmd
	if _, err := s.ask(ctx, shard, "dead", func(pipe redis.Pipeliner) {
		msgs = pipe.XRangeN(ctx, s.deadKey(shard), from, "+", int64(most))
	}); err != nil {
		return nil, fmt.Errorf("dead letters of shard %d: %w", shard, err)
	}
	letters := make([]DeadLetter, len(msgs.Val()))
	for i, m := range msgs.Val() {
		letters[i] = DeadLetter{ID: m.ID, Event: event(m)}
		letters[i].Why, _ = m.Values["w"].(string)
		letters[i].Entry = ""
	}
	return letters, nil
}

// Replay moves dead letters back to the end of their shard's stream, in the order
// given: the events of one signer must be in the order of their versions. It returns
// how many were still there. After an error some may have been moved.
func (s *Store) Replay(ctx context.Context, shard int, ids []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	n, err := s.count(ctx, "replay", call{
		script: replayScript, keys: []string{s.streamKey(shard), s.deadKey(shard)}, args: args,
	})
	if err != nil {
		return 0, fmt.Errorf("replay dead letters of shard %d: %w", shard, err)
	}
	return n, nil
}

// Drop deletes dead letters for good and returns how many there were.
func (s *Store) Drop(ctx context.Context, shard int, ids []string) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	var deleted *redis.IntCmd
	if _, err := s.ask(ctx, shard, "drop", func(pipe redis.Pipeliner) {
		deleted = pipe.XDel(ctx, s.deadKey(shard), ids...)
	}); err != nil {
		return 0, fmt.Errorf("delete dead letters of shard %d: %w", shard, err)
	}
	return int(deleted.Val()), nil
}

// count runs one script that answers with a number.
func (s *Store) count(ctx context.Context, name string, c call) (int, error) {
	a := s.run(ctx, name, []call{c})[0]
	if verdict, err := a.verdict(nonce.Identity{}, "of the shard"); verdict != nonce.FastDone {
		return 0, err
	}
	parts, _ := a.reply.([]any)
	if len(parts) == 2 {
		if n, ok := parts[1].(int64); ok {
			return int(n), nil
		}
	}
	return 0, errors.New("the script's answer has no number")
}
