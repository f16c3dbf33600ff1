package nonce

import (
	"slices"
	"sync"
	"sync/atomic"
)

// turns is a shard's queue, in order of arrival. Where a batch has not room for all,
// and they are of several principals, the principals have equal parts of it: who
// queued a thousand ops holds up nobody who queued one. What one principal queued
// keeps its order.
type turns struct {
	ops   []*Op
	spare []*Op // the memory of the batch before
	// favoured are those who had an op more than others because a batch could not be
	// divided evenly. They have it again once all others in the queue have had it.
	favoured map[Principal]struct{}

	parts []*part // of ops, while they are divided
}

// part is what one principal has in the queue, and how much of it a batch takes.
type part struct {
	of        Principal
	has, room int
}

// contendedBatch is the most ops of a batch while several principals have more than
// that in the queue: who brings one op waits for the batch under way and for its own,
// and a batch of 1024 is long. What a commit costs beside its rows, about 140 µs
// (docs/measured.md), is half a microsecond for each of so many.
const contendedBatch = 256

func (q *turns) push(op *Op) { q.ops = append(q.ops, op) }

// take takes a batch of at most that many ops. It may be used until the next.
func (q *turns) take(most int) []*Op {
	all := q.ops
	contended := len(all) > min(most, contendedBatch) && several(all)
	if contended {
		most = min(most, contendedBatch)
	}
	if len(all) <= most {
		q.ops, q.spare = q.spare[:0], all
		return all
	}
	batch, rest := all[:most], q.spare[:0]
	if contended {
		q.divide(all, most)
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
		rest = append(rest, all[most:]...)
	}
	clear(all[most:])
	q.ops, q.spare = rest, all
	return batch
}

// several reports whether the ops are of more than one principal.
func several(ops []*Op) bool {
	return slices.ContainsFunc(ops, func(op *Op) bool { return op.Principal != ops[0].Principal })
}

// divide says how many ops of each principal a batch has: equally many of each, and
// all of those who have fewer. There are more ops than the batch has room for.
func (q *turns) divide(ops []*Op, most int) {
	by := make(map[Principal]*part)
	var all []*part // in order of arrival
	q.parts = q.parts[:0]
	for _, op := range ops {
		p := by[op.Principal]
		if p == nil {
			p = &part{of: op.Principal}
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
func (q *turns) favour(all []*part, left int) {
	now := make(map[Principal]struct{}, len(all))
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

// shares counts the places of a shard's queue, and how many of them each principal
// has. While several have any, each may have an equal share, and who has less finds a
// place beyond the capacity when the others have filled it. What is nobody's has no
// share; it finds a place as long as there is one.
type shares struct {
	places atomic.Int64 // reserved, queued, running or parked ops
	most   int64        // the capacity

	mu     sync.Mutex // guards all below
	of     map[Principal]*share
	active int64  // how many of them have places; the others are forgotten now and then
	last   *share // of the last call
}

// share is what one principal has.
type share struct {
	of  Principal
	has int64
}

// reserve takes a place, or reports that there is none for this principal.
func (s *shares) reserve(p Principal) bool {
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
func (s *shares) leave(p Principal) {
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

func (s *shares) share(p Principal) *share {
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
			s.of = make(map[Principal]*share)
		}
		s.of[p] = sh
	}
	s.last = sh
	return sh
}
