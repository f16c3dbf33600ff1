// Package redislog keeps the log of each shard, from which the performance engine answers, in
// a Redis server.
//
// Each shard has two keys under one hash tag: its fence, a text of token, try and head, and a
// stream of records, whose ids are their numbers. Each change is one Lua script that compares
// the fence first. The package repeats no script: an unanswered one has an unknown outcome,
// which a higher try settles. After a script, on the same connection, it asks the server for
// its identity.
//
// It promises that an accepted record was accepted by the server that the database names,
// under the fence that the owner believed. It does not promise that the server keeps it, and
// does not notice a server that is set back without changing its identity (a snapshot of its
// machine, DEBUG RELOAD, keys restored by hand, a proxy that hides the run id).
//
// It starts no goroutine and has no locks. A Log may be used by many.
//
// Where to begin reading: log.go (the calls), append.go, lua/ (the scripts).
package redislog

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

var _ nonce.ShardLog = (*Log)(nil)

// Log is the logs of all shards of one database.
type Log struct {
	redis  *redis.Client
	prefix string
}

// databaseKey has the database whose logs a Redis keeps.
const databaseKey = "noncegate:logs-of"

// Open uses a Redis for the logs of a database, which database names. The Redis is the caller's
// to close. A Redis that has the logs of another database is refused.
func Open(ctx context.Context, c *redis.Client, database string) (*Log, error) {
	found, err := c.Get(ctx, databaseKey).Result()
	if errors.Is(err, redis.Nil) { // a Redis without memory takes no write, and opens if it has the key
		if err := c.SetNX(ctx, databaseKey, database, 0).Err(); err != nil {
			return nil, fmt.Errorf("name the database in Redis: %w", err)
		}
		found, err = c.Get(ctx, databaseKey).Result() // another node may have been faster
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read which database Redis serves: %w", err)
	case found != database:
		return nil, fmt.Errorf("it keeps the logs of another database (%.100q, and this one is %q): "+
			"use a Redis of its own, or, if that database is no more, delete the key %s", found, database, databaseKey)
	}
	return &Log{redis: c, prefix: "noncegate:{" + strings.NewReplacer("{", "(", "}", ")").Replace(database) + "/"}, nil
}

//go:embed lua/*.lua
var texts embed.FS

func newScript(name string) *redis.Script {
	text, _ := texts.ReadFile("lua/" + name + ".lua") // the compiler has seen that it is there, and tests run each
	return redis.NewScript(string(text))
}

var (
	appendScript  = newScript("append")
	compareScript = newScript("compare")
	beginScript   = newScript("begin")
	enterScript   = newScript("enter")
	trimScript    = newScript("trim")
)

// keys are the fence and the log of a shard.
func (l *Log) keys(shard int) []string {
	if shard < 0 {
		tag := l.prefix + strconv.Itoa(nonce.Rehearsal(shard)) + "}:rehearsal-"
		return []string{tag + "fence", tag + "log"}
	}
	tag := l.prefix + strconv.Itoa(shard) + "}:"
	return []string{tag + "fence", tag + "log"}
}

func unknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// refusals are answers of a server that ran nothing.
var refusals = []string{"NOSCRIPT", "OOM", "READONLY", "LOADING", "MASTERDOWN", "NOPERM", "NOAUTH", "BUSY", "NOREPLICAS", "MISCONF"}

// wrap says of an error whether anything may have happened.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	outcome := nonce.Unknown
	if slices.ContainsFunc(refusals, func(word string) bool { return redis.HasErrorPrefix(err, word) }) {
		outcome = nonce.NotSent
	}
	if redis.HasErrorPrefix(err, "OOM") {
		err = fullError{err}
	}
	return &nonce.StoreError{Outcome: outcome, Err: fmt.Errorf("ask Redis: %w", err)}
}

// fullError is nonce.ErrLogFull in the words of the server.
type fullError struct{ error }

func (e fullError) Unwrap() []error { return []error{nonce.ErrLogFull, e.error} }

// serverIdentity asks a server for its identity: its run id, which a restart changes, and the id of its data,
// which the promotion of a replica changes.
func serverIdentity(ctx context.Context, c redis.Cmdable) (string, error) {
	text, err := c.Info(ctx, "server", "replication").Result()
	if err != nil {
		return "", wrap(err)
	}
	return identity(text), nil
}

func identity(info string) string {
	return field(info, "run_id:") + "/" + field(info, "master_replid:")
}

func field(info, name string) string {
	at := strings.Index(info, "\n"+name)
	if at < 0 {
		return ""
	}
	rest := info[at+1+len(name):]
	if end := strings.IndexByte(rest, '\r'); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

func lost(format string, args ...any) error {
	return fmt.Errorf("%w: %s", nonce.ErrLogLost, fmt.Sprintf(format, args...))
}

func fenceText(f *nonce.LogFence, head int64) string {
	b := strconv.AppendInt(make([]byte, 0, 48), f.Token, 10)
	b = strconv.AppendInt(append(b, ' '), f.Try, 10)
	return string(strconv.AppendInt(append(b, ' '), head, 10))
}

// parseFence reads what a script wrote.
func parseFence(text string, f *nonce.LogFence) error {
	parts := strings.Split(text, " ")
	if len(parts) != 3 {
		return lost("its fence is %.50q", text)
	}
	var err error
	for i, n := range []*int64{&f.Token, &f.Try, &f.Head} {
		if *n, err = strconv.ParseInt(parts[i], 10, 64); err != nil {
			return lost("its fence is %.50q", text)
		}
	}
	return nil
}

// otherFence is the error of a fence that is not what was believed.
func otherFence(believed *nonce.LogFence, found string) error {
	f := nonce.LogFence{}
	switch err := parseFence(found, &f); {
	case found == "":
		return lost("its keys are gone")
	case err != nil:
		return err
	case f.Token > believed.Token:
		return fmt.Errorf("%w: token %d, and this one is %d", nonce.ErrLogFenced, f.Token, believed.Token)
	}
	return lost("its fence is %q, and %q was believed", found, fenceText(believed, believed.Head))
}

// Begin implements nonce.ShardLog.
func (l *Log) Begin(ctx context.Context, shard int, token int64) (nonce.LogFence, error) {
	f := nonce.LogFence{Shard: shard, Token: token}
	one := l.redis.Conn()
	defer one.Close()
	got, err := beginScript.Run(ctx, one, l.keys(shard), token).Result()
	if err != nil {
		return f, wrap(err)
	}
	if got != "ok" {
		return f, fmt.Errorf("%w: its fence is %.50q, and the token is %d", nonce.ErrLogFenced, got, token)
	}
	f.Identity, err = serverIdentity(ctx, one)
	return f, err
}

// Raise implements nonce.ShardLog.
func (l *Log) Raise(ctx context.Context, of nonce.LogFence) (nonce.LogFence, error) {
	one := l.redis.Conn()
	defer one.Close()
	return l.enter(ctx, one, of, "raise")
}

// enter runs the script, and then asks the server for its id, on one connection.
func (l *Log) enter(ctx context.Context, one *redis.Conn, of nonce.LogFence, mode string) (nonce.LogFence, error) {
	got, err := enterScript.Run(ctx, one, l.keys(of.Shard), of.Token, mode, of.Try+1).Result()
	if err != nil {
		return of, wrap(err)
	}
	said, _ := got.([]any)
	if len(said) != 2 {
		return of, lost("its script says %v", got)
	}
	found, _ := said[1].(string)
	if said[0] != "ok" {
		return of, otherFence(&of, found)
	}
	after := of
	if err := parseFence(found, &after); err != nil {
		return of, err
	}
	return after, l.same(ctx, one, of.Identity)
}

// same compares the identity of a server.
func (l *Log) same(ctx context.Context, c redis.Cmdable, accepted string) error {
	is, err := serverIdentity(ctx, c)
	if err == nil && is != accepted {
		err = lost("the server is %s, and %s was accepted", is, accepted)
	}
	return err
}

// readAtATime bounds the records of one answer.
const readAtATime = 256

// Enter implements nonce.ShardLog. Once the token is in no other node adds a record, so
// they are read piece by piece, and the server is asked for its id before and after.
func (l *Log) Enter(ctx context.Context, of nonce.LogFence) (nonce.LogFence, []nonce.LogRecord, error) {
	one := l.redis.Conn()
	defer one.Close()
	f, err := l.enter(ctx, one, of, "enter")
	if err != nil {
		return of, nil, err
	}
	if f.Head < of.Head {
		return of, nil, lost("its head is %d, and %d was shipped", f.Head, of.Head)
	}
	all, err := l.records(ctx, one, of.Shard)
	if err != nil {
		return of, nil, err
	}
	if err := complete(&of, f.Head, all); err != nil {
		return of, nil, err
	}
	return f, all, l.same(ctx, one, of.Identity)
}

// records reads what a log has.
func (l *Log) records(ctx context.Context, one *redis.Conn, shard int) (all []nonce.LogRecord, err error) {
	for from := "-"; ; {
		some, err := one.XRangeN(ctx, l.keys(shard)[1], from, "+", readAtATime).Result()
		if err != nil {
			return nil, wrap(err)
		}
		for _, m := range some {
			stored, _ := m.Values["r"].(string)
			r, err := nonce.ReadRecord([]byte(stored))
			if err != nil {
				return nil, lost("record %s: %v", m.ID, err)
			}
			all = append(all, *r)
		}
		if len(some) < readAtATime {
			return all, nil
		}
		from = "(" + some[len(some)-1].ID
	}
}

// Read implements nonce.ShardLog.
func (l *Log) Read(ctx context.Context, shard int) (nonce.LogFence, []nonce.LogRecord, error) {
	f := nonce.LogFence{Shard: shard}
	one := l.redis.Conn()
	defer one.Close()
	found, err := one.Get(ctx, l.keys(shard)[0]).Result()
	if errors.Is(err, redis.Nil) {
		return f, nil, lost("its keys are gone")
	}
	if err != nil {
		return f, nil, wrap(err)
	}
	if err := parseFence(found, &f); err != nil {
		return f, nil, err
	}
	if f.Identity, err = serverIdentity(ctx, one); err != nil {
		return f, nil, err
	}
	all, err := l.records(ctx, one, shard)
	return f, all, err
}

// complete compares the records of a log with its fence: none is missing from what was
// shipped to the head.
func complete(of *nonce.LogFence, head int64, all []nonce.LogRecord) error {
	next := head + 1 - int64(len(all))
	if next > of.Head+1 {
		return lost("its head is %d, %d was shipped, and it has %d records", head, of.Head, len(all))
	}
	for i := range all {
		if all[i].Seq != next || all[i].Shard != of.Shard {
			return lost("its record %d of shard %d is missing", next, of.Shard)
		}
		next++
	}
	return nil
}

// Identity implements nonce.ShardLog.
func (l *Log) Identity(ctx context.Context) (string, error) { return serverIdentity(ctx, l.redis) }

// Trim implements nonce.ShardLog.
func (l *Log) Trim(ctx context.Context, logs []nonce.LogFence) error {
	pipe := l.redis.Pipeline()
	cmds := make([]*redis.Cmd, len(logs))
	for i, f := range logs {
		cmds[i] = trimScript.EvalSha(ctx, pipe, l.keys(f.Shard), f.Token, f.Head+1)
	}
	_, _ = pipe.Exec(ctx)
	var errs []error
	for i, f := range logs {
		err := cmds[i].Err()
		if unknownScript(err) {
			err = trimScript.Eval(ctx, l.redis, l.keys(f.Shard), f.Token, f.Head+1).Err()
		}
		errs = append(errs, err)
	}
	return wrap(errors.Join(errs...))
}
