package redisstore

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"noncegate/nonce"
)

// Commit implements nonce.Fast. Each signer is at most once in a call.
func (s *Store) Commit(ctx context.Context, now time.Time, changes []nonce.FastChange) []nonce.FastResult {
	return s.change(ctx, "commit", now, changes, true)
}

// Mirror implements nonce.Fast. Changes of one signer stand in the order of their
// versions. What the change consumes is not kept: a nonce that is missing is
// CONSUMED, and the store has it.
func (s *Store) Mirror(ctx context.Context, now time.Time, changes []nonce.FastChange) []nonce.FastResult {
	return s.change(ctx, "mirror", now, changes, false)
}

func (s *Store) change(ctx context.Context, name string, now time.Time, changes []nonce.FastChange, event bool) []nonce.FastResult {
	calls := make([]call, len(changes))
	for i := range changes {
		if changes[i].Check {
			calls[i] = s.check(&changes[i].Change)
		} else {
			calls[i] = s.commit(now, &changes[i].Change, event)
		}
	}
	results := make([]nonce.FastResult, len(changes))
	answers := s.run(ctx, name, calls)
	for i := range answers {
		r := &results[i]
		r.Verdict, r.Err = answers[i].verdict(known(changes[i].Identity), changes[i].Signer)
	}
	return results
}

// known is an identity as a belief: none at all is no server's.
func known(id nonce.Identity) nonce.Identity {
	if id == (nonce.Identity{}) {
		return nonce.Identity{RunID: "none", ReplID: "none"}
	}
	return id
}

func (s *Store) check(c *nonce.Change) call {
	k := s.keys(c.Signer)
	return call{script: checkScript, keys: []string{k.rows, k.held, k.released}, args: []any{belief(c.ID, c.Token, c.Version)}}
}

// plan gathers what a change writes, as the script takes it.
type plan struct {
	nonces, as                 []any // which rows are there, and how they begin
	sets, dels                 []any
	hold, unhold, free, unfree []any
	wasHeld, moreFree          int64
	token, version             int64
	fresh                      int64 // the lowest new nonce
	keep                       bool  // CONSUMED rows stay until they are flushed
	below                      int64 // rows released below it are CONSUMED; 0: none
	now                        time.Time
}

// commit makes the call of one change.
func (s *Store) commit(now time.Time, c *nonce.Change, event bool) call {
	p := plan{token: c.Token, version: c.Version + 1, keep: event, now: now, wasHeld: c.Held, fresh: math.MaxInt64}
	floor := ""
	if c.BelowFloor {
		p.below, floor = c.Floor, padded(c.Floor)
	}
	for i := range c.Rows {
		p.row(&c.Rows[i])
	}
	fresh := ""
	if p.fresh < math.MaxInt64 {
		fresh = num(p.fresh)
	}
	text := ""
	if event {
		text = encodeEvent(now, c)
	}
	k := s.keys(c.Signer)
	keys := append(make([]string, 0, 4+len(c.Requests)), k.rows, k.held, k.released, k.stream)
	args := make([]any, 0, 22+2*len(p.nonces)+len(p.sets)+len(p.hold)+len(p.unhold)+len(p.free)+len(p.unfree)+len(c.Requests))
	args = append(args,
		belief(c.ID, c.Token, c.Version), belief(c.ID, c.Token, p.version),
		num(p.wasHeld), num(c.Held), " "+num(c.Next)+" "+num(c.Floor), num(p.moreFree),
		text, s.retention, floor, " "+num(c.Token), " "+num(p.version)+" ", nonce.ReasonBelowFloor,
		fresh, strconv.Itoa(len(p.nonces)))
	args = append(append(args, p.nonces...), p.as...)
	for _, group := range [][]any{p.sets, p.dels, p.hold, p.unhold, p.free, p.unfree} {
		args = append(append(args, strconv.Itoa(len(group))), group...)
	}
	for i := range c.Requests {
		keys, args = append(keys, k.request(c.Version, c.Requests[i].ID)), append(args, requestValue(&c.Requests[i]))
	}
	return call{script: commitScript, keys: slices.Clip(keys), args: args}
}

// row adds the change of one row: what must be there, and what comes in its place.
func (p *plan) row(r *nonce.RowChange) {
	n := num(r.Nonce)
	status, reason := r.Status, r.Reason
	if status == nonce.Released && r.Nonce < p.below {
		status, reason = nonce.Consumed, nonce.ReasonBelowFloor
	}
	switch {
	case r.Fresh && reason == nonce.ReasonRepair:
		p.nonces, p.as = append(p.nonces, n), append(p.as, missing)
	case r.Fresh:
		p.fresh = min(p.fresh, r.Nonce)
	default:
		p.nonces, p.as = append(p.nonces, n), append(p.as, prefix(r.FromStatus, r.FromAttempt))
		p.leave(n, r, status)
	}
	row := nonce.Row{
		Status: status, Attempt: r.Attempt, Token: p.token, Holder: r.Holder, TxHash: r.TxHash, Replaced: r.Replaced, Reason: reason,
	}
	switch status {
	case nonce.Held:
		row.HeldUntil = p.now.Add(r.Hold)
		p.sets = append(p.sets, n, rowText(&row, p.version))
		p.hold = append(p.hold, num(row.HeldUntil.UnixMicro()), n)
		p.wasHeld--
	case nonce.Released:
		p.sets = append(p.sets, n, rowText(&row, p.version))
		p.free = append(p.free, "0", padded(r.Nonce))
		p.moreFree++
	default:
		if p.keep {
			p.sets = append(p.sets, n, rowText(&row, p.version))
		} else {
			p.dels = append(p.dels, n)
		}
	}
}

// missing is how the row begins that a repair makes where there was none: it must not be
// there.
const missing = "-"

// leave takes a row out of the set that it is in, unless it comes into it again.
func (p *plan) leave(n string, r *nonce.RowChange, to nonce.Status) {
	switch r.FromStatus {
	case nonce.Held:
		p.wasHeld++
		if to != nonce.Held {
			p.unhold = append(p.unhold, n)
		}
	case nonce.Released:
		p.moreFree--
		if to != nonce.Released {
			p.unfree = append(p.unfree, padded(r.Nonce))
		}
	}
}
