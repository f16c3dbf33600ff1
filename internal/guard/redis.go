package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisPrefix is before each key in Redis.
const redisPrefix = "noncegate:guard:"

// takeScript sets the lock if it is free. It returns -1, or how many
// milliseconds the other's lock still has. That one has the caller's own value is a
// take whose answer was lost and which the client sent again.
var takeScript = redis.NewScript(`
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return -1 end
if redis.call('GET', KEYS[1]) == ARGV[1] then return -1 end
return math.max(redis.call('PTTL', KEYS[1]), 0)`)

// releaseScript deletes the lock if it has the value: 1. 0: it is free. 2: it is
// another caller's.
var releaseScript = redis.NewScript(`
local value = redis.call('GET', KEYS[1])
if not value then return 0 end
if value ~= ARGV[1] then return 2 end
return redis.call('DEL', KEYS[1])`)

// Redis keeps the locks in Redis, for all nodes that use it.
type Redis struct {
	client *redis.Client
	prefix string
}

var _ Locks = (*Redis)(nil)

// NewRedis keeps locks with a client, which stays the caller's. fleet is a word that
// all nodes over one store have, and no others that use this Redis. For Run to end in
// time the client must have ContextTimeoutEnabled; it had better not retry
// (MaxRetries -1), although a step that ran twice does no harm.
func NewRedis(client *redis.Client, fleet string) *Redis {
	return &Redis{client, redisPrefix + fleet + ":"}
}

// Run implements Locks with one pipeline.
// The scripts travel as they are, because a pipeline cannot go back for one that a
// server has not seen yet.
func (r *Redis) Run(ctx context.Context, steps []Step) {
	cmds := make([]*redis.Cmd, len(steps))
	// The error of the pipeline is the first of its commands'.
	_, _ = r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range steps {
			s := &steps[i]
			if keys := []string{r.prefix + s.Key}; s.Release {
				cmds[i] = releaseScript.Eval(ctx, p, keys, s.Value)
			} else {
				cmds[i] = takeScript.Eval(ctx, p, keys, s.Value, s.TTL.Milliseconds())
			}
		}
		return nil
	})
	for i := range steps {
		steps[i].answer(cmds[i].Int64())
	}
}

// answer is what a script returned.
func (s *Step) answer(n int64, err error) {
	switch {
	case err != nil:
		s.Err = fmt.Errorf("redis: %w", err)
	case s.Release:
		s.OK, s.Others = n == 1, n == 2
	default:
		s.OK = n < 0
		s.Left = time.Duration(max(n, 0)) * time.Millisecond
	}
}
