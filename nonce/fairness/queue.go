// Package fairness divides what is scarce between principals: the ops of a batch (Queue), the
// slots of a queue (Slots), a capacity of slots or bytes (Shares), and the holds that one may have
// open (Holds).
//
// It promises that a principal that wants little gets it, whatever others want. It does not promise
// room: a caller is told that a queue is full, or that it has as many holds as it may.
//
// It has no goroutines. Slots, Shares and Holds may be used by many, each has one lock, under which
// nothing waits. A Queue has one user at a time.
package fairness

import (
	"slices"
	"time"

	"noncegate/nonce"
)

// Queue is a queue of ops, in order of arrival. When a batch has no room for all ops, and
// they are of several principals, each principal gets an equal part of the batch: one with
// 1,000 queued ops does not delay one with a single op. The ops of one principal keep their
// order.
type Queue[T any] struct {
	of    func(T) nonce.Principal
	ops   []T
	spare []T // the memory of the batch before
	// favoured are those who had an op more than others because a batch could not be
	// divided evenly. They have it again once all others in the queue have had it.
	favoured map[nonce.Principal]struct{}
	// mixed is how many principals met in the queue last, until when that counts.
	mixed      int
	mixedUntil time.Time

	parts []*part // of ops, while they are divided
}

// part is what one principal has in the queue, and how much of it a batch takes.
type part struct {
	of        nonce.Principal
	has, room int
}

// Who brings one op waits for the batch under way and for its own, and a batch of 1024 is
// long. So while principals meet in the queue, and for a while after, because the one with few
// ops is not there at each batch, a batch has at limit mixedPart ops times their number. What
// one of them leaves of that the others have.
const (
	mixedPart = 64
	mixedFor  = time.Second
)

// NewQueue returns a queue of ops; of says whose one is.
func NewQueue[T any](of func(T) nonce.Principal) *Queue[T] { return &Queue[T]{of: of} }

// Push adds an op.
func (q *Queue[T]) Push(op T) { q.ops = append(q.ops, op) }

// Len is the number of ops.
func (q *Queue[T]) Len() int { return len(q.ops) }

// Take takes a batch of at limit so many ops. It may be used until the next.
func (q *Queue[T]) Take(limit int, now time.Time) []T {
	all, contended := q.ops, false
	if len(all) > min(limit, mixedPart) {
		n := q.principals(all)
		if contended = n > 1; contended {
			q.mixed, q.mixedUntil = n, now.Add(mixedFor)
		}
		if now.Before(q.mixedUntil) {
			limit = min(limit, q.mixed*mixedPart)
		}
	}
	if len(all) <= limit {
		q.ops, q.spare = q.spare[:0], all
		return all
	}
	batch, rest := all[:limit], q.spare[:0]
	if contended {
		q.divide(all, limit)
		batch = all[:0]
		for i, op := range all {
			if p := q.parts[i]; p.room > 0 {
				p.room--
				batch = append(batch, op)
			} else {
				rest = append(rest, op)
			}
		}
		clear(q.parts)
	} else {
		rest = append(rest, all[limit:]...)
	}
	clear(all[limit:])
	q.ops, q.spare = rest, all
	return batch
}

// principals counts whose ops they are.
func (q *Queue[T]) principals(ops []T) int {
	first := q.of(ops[0])
	if !slices.ContainsFunc(ops, func(op T) bool { return q.of(op) != first }) {
		return 1
	}
	who := make(map[nonce.Principal]struct{})
	for _, op := range ops {
		who[q.of(op)] = struct{}{}
	}
	return len(who)
}

// divide says how many ops of each principal a batch has: equally many of each, and
// all of those who have fewer. There are more ops than the batch has room for.
func (q *Queue[T]) divide(ops []T, limit int) {
	by := make(map[nonce.Principal]*part)
	var all []*part // in order of arrival
	q.parts = q.parts[:0]
	for _, op := range ops {
		of := q.of(op)
		p := by[of]
		if p == nil {
			p = &part{of: of}
			by[of], all = p, append(all, p)
		}
		p.has++
		q.parts = append(q.parts, p)
	}
	left := len(all)
	for served := true; served; { // who has less than an equal part leaves more to the others
		served = false
		level := limit / left
		for _, p := range all {
			if p.room == 0 && p.has <= level {
				p.room, served = p.has, true
				limit, left = limit-p.has, left-1
			}
		}
	}
	level := limit / left
	for _, p := range all {
		if p.room == 0 {
			p.room, limit = level, limit-level
		}
	}
	q.favour(all, limit)
}

// favour gives what is left of a batch, less than one op for each who has more, to
// those who were not favoured last.
func (q *Queue[T]) favour(all []*part, left int) {
	now := make(map[nonce.Principal]struct{}, len(all))
	give := func(again bool) {
		for _, p := range all {
			if _, was := q.favoured[p.of]; was == again && left > 0 && p.room < p.has {
				p.room++
				left--
				now[p.of] = struct{}{}
			}
		}
	}
	give(false)
	if left > 0 {
		give(true)
	} else { // the others' turn comes first, still
		for _, p := range all {
			if _, was := q.favoured[p.of]; was {
				now[p.of] = struct{}{}
			}
		}
	}
	q.favoured = now
}
