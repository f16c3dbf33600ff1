package performance

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

// failed notes a call that was not answered; tried as of committer.fails.
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

// Leaves implements service.Engine: a node that does not reach the server leaves shards to others, until
// none has served them for so long that a server which none of them reaches counts as lost.
func (e *Engine) Leaves(since time.Time) bool {
	return e.reach.missed() > 0 && (since.IsZero() || time.Since(since) < e.cfg.LostAfter)
}

// probe is the goroutine that looks whether this node reaches the servers that have logs.
func (e *Engine) probe(stop <-chan struct{}) {
	tick := time.NewTicker(e.svc.Config().WatchEvery)
	defer tick.Stop()
	for {
		err := e.probeOnce()
		e.reach.see(err == nil)
		if err != nil && e.reach.missed() >= e.cfg.LostAfter && slices.ContainsFunc(e.shards, func(sh *shard) bool { return sh.Mine() && sh.Row().Performance }) {
			e.degrade(err.Error()) // no request may have found it out
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for _, c := range e.parts { // to see whether the store is silent
			c.worker.Wake()
		}
	}
}

// probeOnce asks each server that was accepted, or, where none was, the one that there is.
func (e *Engine) probeOnce() error {
	asked := make(map[string]bool)
	for _, sh := range e.shards {
		row := sh.Row()
		if !row.Performance || asked[row.Identity] {
			continue
		}
		asked[row.Identity] = true
		if err := e.ask(sh.ID(), row.Identity); err != nil {
			return err
		}
	}
	if len(asked) > 0 {
		return nil
	}
	if err := e.ask(0, ""); !errors.Is(err, nonce.ErrLogLost) { // it is another than none, so it is there
		return err
	}
	return nil
}

func (e *Engine) ask(shard int, identity string) error {
	ctx, cancel := e.logTime()
	defer cancel()
	return e.cfg.Log.Reach(ctx, shard, identity)
}
