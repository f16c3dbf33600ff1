package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/nonce"
)

// call is one script to be run for one signer or shard.
type call struct {
	script *script
	keys   []string
	args   []any
	cmd    *redis.Cmd
}

// fate is what became of a call.
type fate uint8

const (
	answered fate = iota // and the server said which one it is
	refused              // by the server, before the script's first write
	astray               // by a server of a cluster that does not have the slot
	notSent              // nothing left this process
	unknown
)

// answer is what became of a call, with the identity of the server that answered.
type answer struct {
	fate   fate
	reply  any // when answered
	err    error
	server nonce.Identity // zero: not known
}

// sentMark is the argument of a pipeline's first command that knows whether it was
// ever written: go-redis serializes commands after it has got a connection.
type sentMark struct {
	value   string
	written bool
}

// MarshalBinary implements encoding.BinaryMarshaler.
func (m *sentMark) MarshalBinary() ([]byte, error) {
	m.written = true
	return []byte(m.value), nil
}

// run runs scripts, those of one server in one pipeline with the question which
// server it is at its end. name is that of the interface's method.
func (s *Store) run(ctx context.Context, name string, calls []call) []answer {
	answers := make([]answer, len(calls))
	if err := ctx.Err(); err != nil {
		for i := range answers {
			answers[i] = answer{fate: notSent, err: err}
		}
		return answers
	}
	groups := s.spread(ctx, calls, answers)
	if len(groups) == 1 {
		for node, at := range groups {
			s.runOn(ctx, name, node, calls, at, answers)
		}
		return answers
	}
	var wg sync.WaitGroup
	for node, at := range groups {
		wg.Go(func() { s.runOn(ctx, name, node, calls, at, answers) })
	}
	wg.Wait()
	return answers
}

// spread says which calls go to which server.
func (s *Store) spread(ctx context.Context, calls []call, answers []answer) map[*redis.Client][]int {
	groups := make(map[*redis.Client][]int, 1)
	for i := range calls {
		node, err := s.node(ctx, calls[i].keys[0])
		if err != nil {
			answers[i] = answer{fate: notSent, err: err}
			continue
		}
		groups[node] = append(groups[node], i)
	}
	return groups
}

// node is the server of a key.
func (s *Store) node(ctx context.Context, key string) (*redis.Client, error) {
	if s.cluster == nil {
		return s.client.(*redis.Client), nil // Open has looked
	}
	node, err := s.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("find the server of a slot: %w", err)
	}
	return node, nil
}

// runOn runs the calls at those places on one server.
func (s *Store) runOn(ctx context.Context, name string, node *redis.Client, calls []call, at []int, answers []answer) {
	s.pipeline(ctx, name, node, calls, at, answers, nil)
	var again []int
	missing := make(map[*script]struct{})
	for _, i := range at {
		switch a := &answers[i]; {
		case a.fate == refused && redis.HasErrorPrefix(a.err, "NOSCRIPT"):
			missing[calls[i].script] = struct{}{}
			again = append(again, i)
		case len(again) > 0 && a.fate == answered && a.reply != int64(nonce.FastDone):
			// It wrote nothing, and may have relied on one that did not run.
			again = append(again, i)
		case a.fate == astray:
			s.cluster.ReloadState(ctx)
		}
	}
	if len(again) > 0 {
		s.pipeline(ctx, name, node, calls, again, answers, missing)
	}
}

// pipeline sends the calls at those places, after the texts of scripts that the
// server does not have, and takes the answers.
func (s *Store) pipeline(ctx context.Context, name string, node *redis.Client, calls []call, at []int, answers []answer, load map[*script]struct{}) {
	mark := &sentMark{}
	pipe := node.Pipeline()
	for sc := range load {
		_ = pipe.ScriptLoad(ctx, sc.text)
	}
	for n, i := range at {
		args := calls[i].command()
		if n == 0 {
			mark.value = calls[i].script.sha
			args[1] = mark
		}
		calls[i].cmd = redis.NewCmd(ctx, args...)
		_ = pipe.Process(ctx, calls[i].cmd)
	}
	info := pipe.Info(ctx, "server", "replication")
	started := time.Now()
	_, err := pipe.Exec(ctx)
	if s.cfg.Observe != nil {
		s.cfg.Observe(name, len(at), time.Since(started))
	}
	server, infoErr := identity(info)
	for _, i := range at {
		if !mark.written {
			answers[i] = answer{fate: notSent, err: cause(calls[i].cmd.Err(), err)}
			continue
		}
		answers[i] = outcome(calls[i].cmd, server, cause(infoErr, err))
	}
}

// command is the call as Redis takes it.
func (c *call) command() []any {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	args = append(args, "evalsha", c.script.sha, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	return append(args, c.args...)
}

var errSilent = errors.New("no answer")

func cause(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return errSilent
}

// outcome says what became of a call that may have been sent.
func outcome(cmd *redis.Cmd, server nonce.Identity, infoErr error) answer {
	reply, err := cmd.Result()
	switch {
	case err == nil && reply == nil:
		return answer{fate: unknown, err: infoErr, server: server}
	case err == nil && server == (nonce.Identity{}):
		return answer{fate: unknown, err: fmt.Errorf("ask the server who it is: %w", infoErr)}
	case err == nil:
		return answer{fate: answered, reply: reply, server: server}
	}
	return answer{fate: fateOf(err), err: err, server: server}
}

// elsewhere and early are how a server begins an error that says that the script did
// not write anything. What is in neither, such as an error of the script itself,
// leaves that open.
var (
	elsewhere = []string{"MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN"}
	early     = []string{
		"NOSCRIPT", "LOADING", "READONLY", "OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN", "BUSY", "NOAUTH", "WRONGPASS",
		wrongType,
	}
)

// wrongType: a key is of a foreign type. The checks of each script read every key
// of a signer before it writes.
const wrongType = "WRONGTYPE"

func fateOf(err error) fate {
	if !isReply(err) {
		return unknown
	}
	for _, word := range elsewhere {
		if redis.HasErrorPrefix(err, word) {
			return astray
		}
	}
	for _, word := range early {
		if redis.HasErrorPrefix(err, word) {
			return refused
		}
	}
	return unknown
}

// isReply reports whether the server said the error, and not this side of the
// connection.
func isReply(err error) bool {
	var e redis.Error
	return errors.As(err, &e)
}

// verdict judges an answer for a caller who believes that identity; zero: any. code
// is what the script itself said.
func (a *answer) verdict(believed nonce.Identity, signer string) (nonce.FastVerdict, error) {
	switch {
	case a.fate == notSent || a.fate == astray:
		return nonce.FastNotSent, a.wrap(signer)
	case a.server != (nonce.Identity{}) && believed != (nonce.Identity{}) && a.server != believed:
		return nonce.FastLost, fmt.Errorf("signer %s: %w: %w: it was at server %s with history %s and %s with %s answers",
			signer, nonce.ErrLost, ErrIdentity, believed.RunID, believed.ReplID, a.server.RunID, a.server.ReplID)
	case a.fate == refused && redis.HasErrorPrefix(a.err, wrongType):
		return nonce.FastLost, fmt.Errorf("signer %s: %w: %w", signer, nonce.ErrLost, a.err)
	case a.fate == refused:
		return nonce.FastNotSent, a.wrap(signer)
	case a.fate == unknown:
		return nonce.FastUnknown, a.wrap(signer)
	}
	return a.said(signer)
}

func (a *answer) wrap(signer string) error {
	return fmt.Errorf("signer %s: %w", signer, a.err)
}

// said is the verdict of the script itself.
func (a *answer) said(signer string) (nonce.FastVerdict, error) {
	code, ok := a.reply.(int64)
	parts, many := a.reply.([]any)
	if many && len(parts) > 0 {
		code, ok = parts[0].(int64)
	}
	if !ok || code < 0 || code > int64(nonce.FastLost) {
		return nonce.FastUnknown, fmt.Errorf("signer %s: the script answered %v", signer, a.reply)
	}
	verdict := nonce.FastVerdict(code)
	if verdict == nonce.FastDone {
		return verdict, nil
	}
	why := "no reason"
	if len(parts) > 1 {
		why = fmt.Sprint(parts[1])
	}
	if verdict == nonce.FastLost {
		return verdict, fmt.Errorf("signer %s: %w: %s", signer, nonce.ErrLost, why)
	}
	return verdict, fmt.Errorf("signer %s: %s", signer, why)
}

// identity reads run id and history out of the answer to INFO.
func identity(info *redis.StringCmd) (nonce.Identity, error) {
	text, err := info.Result()
	if err != nil {
		return nonce.Identity{}, err
	}
	id := nonce.Identity{RunID: field(text, "\nrun_id:"), ReplID: field(text, "\nmaster_replid:")}
	if id.RunID == "" || id.ReplID == "" {
		return nonce.Identity{}, errors.New("it does not say its run id and replication id")
	}
	return id, nil
}

func field(text, name string) string {
	_, rest, _ := strings.Cut(text, name)
	value, _, _ := strings.Cut(rest, "\r")
	return value
}
