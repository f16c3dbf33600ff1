package performance

import (
	"slices"
	"sync"
	"time"

	"noncegate/lease"
)

// reach is what this node knows of its way to the server of the logs. A call that was not answered counts for
// all shards that have their log there, so that an outage is waited out once and not by each shard.
type reach struct {
	mu     sync.Mutex // guards all below
	silent silence
	unseen time.Time // since when no probe found the server that was accepted; zero: the last one did
}

// silence is what is known of a server that did not answer; the zero silence: it answered last.
type silence struct {
	why   error
	tried time.Time // when a take-over was given up that was not answered in time; zero: none was
	rests time.Time // until then no other shard is tried
}

// failed notes a call that was not answered; tried as of committer.fails.
func (r *reach) failed(tried bool, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.silent.why, r.silent.rests = why, now.Add(logRetry); tried {
		r.silent.tried = now
	}
}

// answered notes that the server does what it should.
func (r *reach) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = silence{}
}

// silence is what is known of the server.
func (r *reach) silence() silence {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.silent
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

// Leaves implements service.Engine: a node that does not reach the server leaves a shard to others, if
// there are any, until none has taken it for so long that the server counts as lost.
func (e *Engine) Leaves(row *lease.Shard, since time.Time) bool {
	if e.reach.missed() == 0 || !e.svc.Others() {
		return false
	}
	if since.IsZero() || time.Since(since) < e.cfg.LostAfter {
		return true
	}
	e.shards[row.Shard].offered.Store(row.Token)
	return false
}

// probe asks the server for its id, and compares that with the accepted one.
func (e *Engine) probe() {
	ctx, cancel := e.logTime()
	defer cancel()
	is, err := e.cfg.Log.Identity(ctx)
	e.reach.see(err == nil && !slices.ContainsFunc(e.shards, func(sh *shard) bool { return sh.Row().Performance && sh.Row().Identity != is }))
}
