package nonce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// copyPage bounds the rows and the request ids that are sent to Redis at a time,
	// and to begin with those that are read of the store. Pages that are read apart are
	// one copy only if nobody writes to the signer between, so each further try reads
	// copyGrowth times as much, up to copyMost.
	copyPage   = 1000
	copyTries  = 5
	copyGrowth = 4
	copyMost   = copyPage * copyGrowth * copyGrowth * copyGrowth
	// maxCopying bounds the copies of a shard that are begun and not done. Changes of
	// these wait behind them, and those of all others go on.
	maxCopying = 4
	// mirrorBatch bounds the changes of one batch of Redis.
	mirrorBatch = 256
)

// mirror is a copy of one signer in Redis that follows the store. A shard makes it
// and pushes what it commits; the shard's mirror goroutine makes it true.
type mirror struct {
	belief   FastBelief   // Token is the lease's; Version the one at the beginning
	version  atomic.Int64 // of the copy; -1 until there is one
	broken   atomic.Bool  // it does not follow any more
	identity Identity     // of the server; written before version is not -1
}

// mirrorTask is one step: a copy from the store, or a change that was committed.
type mirrorTask struct {
	m      *mirror
	copy   bool
	change Change
	at     time.Time // store clock of the commit
	queued time.Time
}

// keepMirror begins or gives up a signer's copy, and reports whether there is one
// that follows.
func (sh *shard) keepMirror(st *state, goal Goal) bool {
	switch {
	case goal != GoalMirror && goal != GoalPerformance:
		st.mirror = nil
		return false
	case st.mirror != nil && st.mirror.broken.Load():
		st.mirror, st.mirrorAfter = nil, sh.marked.Add(moveRetry)
		return false
	case st.mirror != nil:
		return true
	case st.doubting || sh.marked.Before(st.mirrorAfter) || sh.copying.Load() >= maxCopying:
		return false
	}
	m := &mirror{belief: st.belief()}
	m.version.Store(-1)
	sh.copying.Add(1)
	if st.mirror = m; !sh.pushMirror(mirrorTask{m: m, copy: true}) {
		sh.copying.Add(-1)
		st.mirror, st.mirrorAfter = nil, sh.marked.Add(moveRetry)
		return false
	}
	return true
}

// pushMirror queues a step. When the queue is full the copy is given up, and begun
// anew later: the store's commits do not wait for Redis.
func (sh *shard) pushMirror(t mirrorTask) bool {
	t.queued = time.Now()
	select {
	case sh.mirrors <- t:
		return true
	default:
		t.m.broken.Store(true)
		return false
	}
}

// mirrored hands on what the store has committed for the group. The numbers of its
// requests belong to ops, which are answered, and used again, before Redis has them.
func (sh *shard) mirrored(g *group, at time.Time) {
	m := g.st.mirror
	if m == nil || g.draft.change.Check {
		return
	}
	c := g.draft.change
	c.Requests = slices.Clone(c.Requests)
	for i := range c.Requests {
		q := &c.Requests[i]
		q.Nonces, q.Attempts = slices.Clone(q.Nonces), slices.Clone(q.Attempts)
	}
	sh.pushMirror(mirrorTask{m: m, change: c, at: at})
}

// mirrorLoop is the goroutine that keeps the copies of a shard's signers.
func (sh *shard) mirrorLoop() {
	for {
		select {
		case <-sh.svc.stop:
			return
		case t := <-sh.mirrors:
			sh.mirrorSome(t)
		}
	}
}

// mirrorSome runs t and what is queued behind it.
func (sh *shard) mirrorSome(t mirrorTask) {
	batch := make([]mirrorTask, 0, mirrorBatch)
	for {
		if t.copy {
			sh.mirrorBatch(batch)
			batch = batch[:0]
			sh.svc.copySigner(t.m)
			sh.copying.Add(-1)
		} else if len(batch) > 0 && (!batch[0].at.Equal(t.at) || slices.ContainsFunc(batch, func(b mirrorTask) bool { return b.m == t.m })) {
			sh.mirrorBatch(batch)
			batch = append(batch[:0], t)
		} else {
			batch = append(batch, t)
		}
		if len(batch) < mirrorBatch {
			select {
			case t = <-sh.mirrors:
				continue
			default:
			}
		}
		sh.mirrorBatch(batch)
		return
	}
}

// mirrorBatch repeats changes of one moment in Redis, of each signer one at most.
func (sh *shard) mirrorBatch(batch []mirrorTask) {
	changes := make([]FastChange, 0, len(batch))
	tasks := make([]mirrorTask, 0, len(batch))
	for _, t := range batch {
		at := t.m.version.Load()
		switch {
		case t.m.broken.Load() || at > t.change.Version: // the copy has it already
		case at < t.change.Version:
			t.m.broken.Store(true)
		default:
			changes, tasks = append(changes, FastChange{Change: t.change, Identity: t.m.identity}), append(tasks, t)
		}
	}
	if len(changes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sh.svc.cfg.Fast.Timeout)
	defer cancel()
	for i, r := range sh.svc.cfg.Fast.Redis.Mirror(ctx, batch[0].at, changes) {
		if r.Verdict != FastDone {
			tasks[i].m.broken.Store(true)
			sh.svc.mirrorFailed(r)
			continue
		}
		tasks[i].m.version.Store(changes[i].Version + 1)
		sh.svc.cfg.Fast.Figures.Mirrored(time.Since(tasks[i].queued))
	}
}

func (s *Service) mirrorFailed(r FastResult) {
	if r.Verdict == FastNotSent || r.Verdict == FastUnknown {
		s.cfg.Fast.Control.Trouble(TroubleRedis, r.Err)
	}
	s.log.Debug("a copy in Redis does not follow any more; it is begun anew", "error", r.Err)
}

// copySigner copies a signer from the store to Redis. Changes that are committed
// meanwhile are queued behind it.
func (s *Service) copySigner(m *mirror) {
	for try, page := 0, copyPage; try < copyTries; try, page = try+1, min(copyGrowth*page, copyMost) {
		r, moved := s.copyOnce(m, page)
		switch {
		case moved:
			continue
		case r.Verdict != FastDone:
			m.broken.Store(true)
			s.mirrorFailed(r)
		}
		return
	}
	m.broken.Store(true)
	s.log.Warn("a signer is written to faster than it can be copied to Redis; it is tried again", "signer", m.belief.Signer)
}

// copyOnce copies page by page, of at most limit rows and ids. moved: the signer was
// written to between two pages.
func (s *Service) copyOnce(m *mirror, limit int) (r FastResult, moved bool) {
	piece := SeedPiece{FastBelief: m.belief}
	for row, id := int64(0), ""; ; {
		page, err := s.copyPage(m.belief.ID, row, id, limit)
		switch {
		case err != nil:
			return FastResult{FastNotSent, err}, false
		case page.Lease.Token != m.belief.Token || page.Engine != Reliable:
			return FastResult{FastFenced, errLeaseMoved}, false
		case piece.Nth > 0 && page.Version != piece.Version:
			return FastResult{}, true
		}
		piece.Version, piece.Next, piece.Floor, piece.Held = page.Version, page.Next, page.Floor, page.Held
		piece.Now = page.Now
		if r = s.sendPage(m, &piece, &page); r.Verdict != FastDone {
			return r, false
		}
		if piece.Last {
			m.version.Store(piece.Version)
			return r, false
		}
		row, id = page.NextRow, page.NextID
	}
}

// sendPage sends a page in pieces of copyPage rows and ids.
func (s *Service) sendPage(m *mirror, piece *SeedPiece, page *SignerCopy) (r FastResult) {
	for rows, ids, last := page.Rows, page.Requests, false; !last; {
		r, q := min(len(rows), copyPage), min(len(ids), copyPage)
		piece.Rows, piece.Requests = rows[:r], ids[:q]
		rows, ids = rows[r:], ids[q:]
		last = len(rows) == 0 && len(ids) == 0
		piece.Last = last && !page.More
		identity, result := s.sendPiece(*piece)
		if result.Verdict != FastDone {
			return result
		}
		if piece.Nth > 0 && identity != m.identity {
			return FastResult{FastLost, fmt.Errorf("%w: the server changed under a copy", ErrLost)}
		}
		m.identity = identity
		piece.Nth++
	}
	return FastResult{Verdict: FastDone}
}

func (s *Service) copyPage(id, row int64, request string, limit int) (SignerCopy, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	page, err := s.cfg.Fast.Ledger.Copy(ctx, id, row, request, limit)
	if err == nil && !page.Exists {
		err = errors.New("the signer has no row")
	}
	return page, err
}

func (s *Service) sendPiece(piece SeedPiece) (Identity, FastResult) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Fast.Timeout)
	defer cancel()
	return s.cfg.Fast.Redis.Seed(ctx, piece)
}
