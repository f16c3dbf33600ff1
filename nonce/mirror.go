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
	copyPage  = 1000
	copyTries = 5
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
	case st.doubting || sh.marked.Before(st.mirrorAfter):
		return false
	}
	m := &mirror{belief: st.belief()}
	m.version.Store(-1)
	if st.mirror = m; !sh.pushMirror(mirrorTask{m: m, copy: true}) {
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
	for range copyTries {
		r, moved := s.copyOnce(m)
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
}

// copyOnce copies page by page. moved: the signer was written to meanwhile.
func (s *Service) copyOnce(m *mirror) (r FastResult, moved bool) {
	piece := SeedPiece{First: true, FastBelief: m.belief}
	for row, id := int64(0), ""; ; {
		page, err := s.copyPage(m.belief.ID, row, id)
		switch {
		case err != nil:
			return FastResult{FastNotSent, err}, false
		case page.Lease.Token != m.belief.Token || page.Engine != Reliable:
			return FastResult{FastFenced, errLeaseMoved}, false
		case !piece.First && page.Version != piece.Version:
			return FastResult{}, true
		}
		piece.Version, piece.Next, piece.Floor, piece.Held = page.Version, page.Next, page.Floor, page.Held
		piece.Rows, piece.Requests, piece.Last, piece.Now = page.Rows, page.Requests, !page.More, page.Now
		var identity Identity
		if identity, r = s.sendPiece(piece); r.Verdict != FastDone {
			return r, false
		}
		if !piece.First && identity != m.identity {
			return FastResult{FastLost, fmt.Errorf("%w: the server changed under a copy", ErrLost)}, false
		}
		m.identity = identity
		if piece.Last {
			m.version.Store(piece.Version)
			return r, false
		}
		piece.First, row, id = false, page.NextRow, page.NextID
	}
}

func (s *Service) copyPage(id, row int64, request string) (SignerCopy, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	page, err := s.cfg.Fast.Ledger.Copy(ctx, id, row, request, copyPage)
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
