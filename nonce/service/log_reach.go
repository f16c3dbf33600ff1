package service

import (
	"errors"
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
)

// reach is what this node knows of its way to the servers of the logs.
type reach struct {
	mu     sync.Mutex         // guards all below
	silent map[string]silence // servers that did not answer, by identity
	unseen time.Time          // since when no probe found the server that was accepted; zero: the last one did
}

// silence is what is known of a server that did not answer: it is the same for all shards that
// have their log there, so that an outage is waited out once and not by each shard.
type silence struct {
	why   error
	tried time.Time // when a take-over was given up that was not answered in time; zero: none was
	rests time.Time // until then no other shard is tried
}

// failed notes a call that was not answered; tried as of worker.fails.
func (r *reach) failed(identity string, tried bool, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent == nil {
		r.silent = make(map[string]silence)
	}
	s, now := r.silent[identity], time.Now()
	if s.why, s.rests = why, now.Add(logRetry); tried {
		s.tried = now
	}
	r.silent[identity] = s
}

// answered notes that a server does what it should.
func (r *reach) answered(identity string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.silent, identity)
}

// silence is what is known of a server; the zero value: it answered last.
func (r *reach) silence(identity string) silence {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.silent[identity]
}

// mustLeave reports whether the shard of a log that serves gets the reliable engine: the log has
// failed for LostAfter. A server without memory counts only if it refused records at both ends of
// that time; while records can be shipped that frees memory.
func (w *worker) mustLeave(lg *shardLog) bool {
	if lg.full {
		return w.failedUntil(lg, lg.fullAt)
	}
	return w.failedUntil(lg, time.Now())
}

// takeoverFailed reports whether the take-over of a log may be given up: when it had failed for so
// long, it was tried once more, for this shard or for another at a server that did not answer.
// Time alone proves nothing: this process may have stood still, or have waited for another server.
func (w *worker) takeoverFailed(sh *shard, of silence) bool {
	last := sh.logFailed.tried
	if of.tried.After(last) {
		last = of.tried
	}
	return w.failedUntil(sh.log, last)
}

// failedUntil reports whether a log had failed for LostAfter then.
func (w *worker) failedUntil(lg *shardLog, at time.Time) bool {
	return !lg.failing.IsZero() && at.Sub(lg.failing) >= w.svc.cfg.Log.LostAfter
}

// see notes what a probe found.
func (r *reach) see(found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case found:
		r.unseen = time.Time{}
	case r.unseen.IsZero():
		r.unseen = time.Now()
	}
}

// missed is for how long no probe has found the server that was accepted.
func (r *reach) missed() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unseen.IsZero() {
		return 0
	}
	return max(time.Since(r.unseen), 1)
}

// probe is the goroutine that looks whether this node reaches the servers that have logs.
func (s *Service) probe() {
	tick := time.NewTicker(s.cfg.WatchEvery)
	defer tick.Stop()
	for {
		err := s.probeOnce()
		s.engine.reach.see(err == nil)
		if err != nil && s.engine.reach.missed() >= s.cfg.Log.LostAfter && slices.ContainsFunc(s.shards, (*shard).logged) {
			s.degrade(err.Error()) // no request may have found it out
		}
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		for _, w := range s.workers { // to see whether the store is silent
			w.signal()
		}
	}
}

// probeOnce asks each server that was accepted, or, where none was, the one that there is.
func (s *Service) probeOnce() error {
	asked := make(map[string]bool)
	for _, sh := range s.shards {
		row := sh.view.Load()
		if !row.Performance || asked[row.Identity] {
			continue
		}
		asked[row.Identity] = true
		if err := s.ask(sh.id, row.Identity); err != nil {
			return err
		}
	}
	if len(asked) > 0 {
		return nil
	}
	if err := s.ask(0, ""); !errors.Is(err, nonce.ErrLogLost) { // it is another than none, so it is there
		return err
	}
	return nil
}

func (s *Service) ask(shard int, identity string) error {
	ctx, cancel := s.logTime()
	defer cancel()
	return s.cfg.Log.Log.Reach(ctx, shard, identity)
}

// avoidsLogs reports whether this node leaves free shards that have a log to others: it has none, or
// does not reach its server.
func (s *Service) avoidsLogs() bool { return s.cfg.Log == nil || s.engine.reach.missed() > 0 }

// takesLog reports whether a node that does not reach the server of a log takes its shard: no node
// has had the shard for so long that a server which none of them reaches counts as lost.
func (s *Service) takesLog(freeSince time.Time) bool {
	return s.cfg.Log != nil && !freeSince.IsZero() && time.Since(freeSince) >= s.cfg.Log.LostAfter
}

// yield sets groups aside whose shard is for a node that reaches its log, and comes back to
// them to see whether such a node has it.
func (w *worker) yield(groups []*group) []*group {
	return slices.DeleteFunc(groups, func(g *group) bool {
		sh := g.shard
		if sh.mine() || sh.unsure || len(g.tasks) == 0 || w.svc.cfg.Log == nil || !sh.view.Load().Performance || !w.svc.avoidsLogs() {
			return false
		}
		w.park(g, errLogAway)
		return true
	})
}

// inLog returns the groups whose shard has no log, or one that serves. The others wait for it.
func (w *worker) inLog(groups []*group) []*group {
	return slices.DeleteFunc(groups, func(g *group) bool {
		lg := g.shard.log
		switch {
		case lg == nil, lg.settled():
			return false
		case len(g.tasks) > 0:
			w.park(g, errLogAway)
		}
		return true
	})
}
