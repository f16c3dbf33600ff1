package redislog

import (
	"context"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

// Append implements nonce.ShardLog. It is one round trip: one script for all shards with a record and one
// for those that are only compared, and then the question for the server's id.
func (l *Log) Append(ctx context.Context, items []nonce.LogAppend) []error {
	calls := l.calls(items)
	l.appendOnce(ctx, calls, (*redis.Script).EvalSha)
	again := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return !unknownScript(c.cmd.Err()) })
	if len(again) > 0 {
		l.appendOnce(ctx, again, (*redis.Script).Eval)
	}
	errs := make([]error, len(items))
	for _, c := range calls {
		said, failed := c.cmd.Slice()
		for j, at := range c.places {
			switch f := &items[at].Fence; {
			case failed != nil:
				errs[at] = wrap(failed)
			case len(said) != len(c.places):
				errs[at] = lost("its script says %v", said)
			case said[j] != "ok":
				found, _ := said[j].(string)
				errs[at] = otherFence(f, found)
			case c.err != nil: // the record may be with a server that is not the one accepted
				errs[at] = &nonce.StoreError{Outcome: nonce.Unknown, Err: c.err}
			case c.server != f.Identity:
				errs[at] = lost("the server is %s, and %s was accepted", c.server, f.Identity)
			}
		}
	}
	return errs
}

// call is one run of a script, for some of the items.
type call struct {
	script *redis.Script
	places []int
	keys   []string
	args   []any
	cmd    *redis.Cmd
	server string // the id of the server that ran it
	err    error  // of the question for that id
}

func (l *Log) calls(items []nonce.LogAppend) (out []*call) {
	last := make(map[*redis.Script]*call, 2)
	for at := range items {
		f, r := &items[at].Fence, items[at].Record
		script := appendScript
		if r == nil {
			script = compareScript
		}
		c := last[script]
		if c == nil {
			c = &call{script: script, keys: make([]string, 0, 2*len(items)), args: make([]any, 0, 4*len(items))}
			last[script], out = c, append(out, c)
		}
		c.places, c.keys, c.args = append(c.places, at), append(c.keys, l.keys(f.Shard)...), append(c.args, fenceText(f, f.Head))
		if r != nil {
			stored := nonce.AppendRecord(make([]byte, 0, 64+96*len(r.Changes)), r)
			c.args = append(c.args, fenceText(f, f.Head+1), strconv.FormatInt(f.Head+1, 10), stored)
		}
	}
	return out
}

// evaluation is one of the two ways to run a script.
type evaluation func(s *redis.Script, ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

// appendOnce sends all calls and the question for the server's id.
func (l *Log) appendOnce(ctx context.Context, calls []*call, eval evaluation) {
	pipe := l.redis.Pipeline()
	for _, c := range calls {
		c.cmd = eval(c.script, ctx, pipe, c.keys, c.args...)
	}
	asked := pipe.Info(ctx, "server", "replication")
	_, _ = pipe.Exec(ctx) // each command has its own error
	text, err := asked.Result()
	for _, c := range calls {
		c.server, c.err = identity(text), err
	}
}
