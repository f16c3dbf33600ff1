package service

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/nonce"
)

// fairQueue is a worker's queue, in order of arrival. When a batch has no room for all ops, and
// they are of several principals, each principal gets an equal part of the batch: one with
// 1,000 queued ops does not delay one with a single op. The ops of one principal keep their
// order. It has nothing to do with worker.batchMu, which is a lock.
type fairQueue struct {
	tasks []*task
	spare []*task // the memory of the batch before
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
// ops is not there at each batch, a batch has at most mixedPart ops times their number. What
// one of them leaves of that the others have.
const (
	mixedPart = 64
	mixedFor  = time.Second
)

func (q *fairQueue) push(t *task) { q.tasks = append(q.tasks, t) }

// take takes a batch of at most that many ops. It may be used until the next.
func (q *fairQueue) take(most int, now time.Time) []*task {
	all, contended := q.tasks, false
	if len(all) > min(most, mixedPart) {
		n := principals(all)
		if contended = n > 1; contended {
			q.mixed, q.mixedUntil = n, now.Add(mixedFor)
		}
		if now.Before(q.mixedUntil) {
			most = min(most, q.mixed*mixedPart)
		}
	}
	if len(all) <= most {
		q.tasks, q.spare = q.spare[:0], all
		return all
	}
	batch, rest := all[:most], q.spare[:0]
	if contended {
		q.divide(all, most)
		batch = all[:0]
		for i, t := range all {
			if p := q.parts[i]; p.room > 0 {
				p.room--
				batch = append(batch, t)
			} else {
				rest = append(rest, t)
			}
		}
		clear(q.parts)
	} else {
		rest = append(rest, all[most:]...)
	}
	clear(all[most:])
	q.tasks, q.spare = rest, all
	return batch
}

// principals counts whose ops they are.
func principals(ops []*task) int {
	if !slices.ContainsFunc(ops, func(t *task) bool { return t.op.Principal != ops[0].op.Principal }) {
		return 1
	}
	who := make(map[nonce.Principal]struct{})
	for _, t := range ops {
		who[t.op.Principal] = struct{}{}
	}
	return len(who)
}

// divide says how many ops of each principal a batch has: equally many of each, and
// all of those who have fewer. There are more ops than the batch has room for.
func (q *fairQueue) divide(ops []*task, most int) {
	by := make(map[nonce.Principal]*part)
	var all []*part // in order of arrival
	q.parts = q.parts[:0]
	for _, t := range ops {
		p := by[t.op.Principal]
		if p == nil {
			p = &part{of: t.op.Principal}
			by[p.of], all = p, append(all, p)
		}
		p.has++
		q.parts = append(q.parts, p)
	}
	left := len(all)
	for served := true; served; { // who has less than an equal part leaves more to the others
		served = false
		level := most / left
		for _, p := range all {
			if p.room == 0 && p.has <= level {
				p.room, served = p.has, true
				most, left = most-p.has, left-1
			}
		}
	}
	level := most / left
	for _, p := range all {
		if p.room == 0 {
			p.room, most = level, most-level
		}
	}
	q.favour(all, most)
}

// favour gives what is left of a batch, less than one op for each who has more, to
// those who were not favoured last.
func (q *fairQueue) favour(all []*part, left int) {
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
	if give(false); left > 0 {
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

// sparePlaces is the part of a queue's capacity that is kept beside it for principals
// who come to a queue that others have filled.
const sparePlaces = 8

// shares counts the places of a worker's queue, and how many of them each principal
// has. While several have any, each may have an equal share, and who has less finds a
// place beyond the capacity when the others have filled it. What is nobody's has no
// share; it finds a place as long as there is one.
type shares struct {
	places atomic.Int64 // reserved, queued, running or parked ops
	most   int64        // the capacity

	mu     sync.Mutex // guards all below
	of     map[nonce.Principal]*share
	active int64  // how many of them have places; the others are forgotten now and then
	last   *share // of the last call
}

// share is what one principal has.
type share struct {
	of  nonce.Principal
	has int64
}

// reserve takes a place, or reports that there is none for this principal.
func (s *shares) reserve(p nonce.Principal) bool {
	if p == 0 {
		return s.add(s.most)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, all, room := s.share(p), s.active, s.most
	if sh.has == 0 {
		all++
	}
	if all > 1 {
		if sh.has >= max(1, s.most/all) {
			return false
		}
		room += max(1, s.most/sparePlaces)
	}
	if !s.add(room) {
		return false
	}
	if sh.has++; sh.has == 1 {
		s.active++
	}
	return true
}

func (s *shares) add(most int64) bool {
	if s.places.Add(1) > most {
		s.places.Add(-1)
		return false
	}
	return true
}

// leave gives a place back.
func (s *shares) leave(p nonce.Principal) {
	if s.places.Add(-1); p == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.share(p)
	if sh.has--; sh.has == 0 {
		s.active--
	}
}

// keptShares is how many principals without places are remembered, beside as many as
// have some.
const keptShares = 64

func (s *shares) share(p nonce.Principal) *share {
	if s.last != nil && s.last.of == p {
		return s.last
	}
	sh := s.of[p]
	if sh == nil {
		if int64(len(s.of)) > 2*s.active+keptShares {
			for of, sh := range s.of {
				if sh.has == 0 {
					delete(s.of, of)
				}
			}
		}
		if sh = (&share{of: p}); s.of == nil {
			s.of = make(map[nonce.Principal]*share)
		}
		s.of[p] = sh
	}
	s.last = sh
	return sh
}
