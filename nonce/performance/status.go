package performance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"noncegate/nonce"
)

// State is a state of the whole cluster.
type State string

// The states, which follow from what is wanted and from which engine each shard has.
const (
	Reliable    State = "RELIABLE"
	DualWrite   State = "DUAL_WRITE" // the rehearsal runs, or shards are between two owners
	Performance State = "PERFORMANCE"
	Drain       State = "DRAIN_AND_SYNC"
	Degraded    State = "DEGRADED" // a node began the drain by itself
)

// Status is what this node knows of the engines.
type Status struct {
	State       State
	Goal        nonce.EngineGoal
	Shards      int
	Performance int // shards with the performance engine
	Rehearsed   int // shards that have kept up with the rehearsal, or have the engine
	Lost        int64
	StoreAway   bool         // a worker's hand-outs rest on the logs alone
	Here        []Log        // of shards that are this node's
	Rehearsing  []Rehearsing // shards that are this node's and rehearse
}

// Log is what this node knows of the log of one of its shards.
type Log struct {
	Shard         int
	Serves        bool
	Head, Shipped int64
	Signers       int           // that have something to be shipped
	Behind        time.Duration // of what has waited to be shipped for the longest
	Grant         time.Duration // that is left
	Trouble       string        // "": none
}

// Status tells which engine serves. It waits for the batch under way of each worker.
func (e *Engine) Status() Status {
	st := Status{Goal: e.wanted(), Shards: len(e.shards), Lost: e.lost.Load(), Performance: e.loggedShards(), Rehearsed: e.rehearsedShards()}
	st.State, _ = e.State()
	if p := e.rehearsal.progress.Load(); p != nil {
		st.Rehearsing = *p
	}
	for _, c := range e.parts {
		c.worker.Do(func() {
			st.StoreAway = st.StoreAway || c.storeAway
			for _, sh := range c.owned() {
				st.Here = append(st.Here, sh.status())
			}
		})
	}
	return st
}

// State is that of the cluster, as this node saw it last, and the number of the goal.
func (e *Engine) State() (State, int64) {
	goal, logged := e.wanted(), e.loggedShards()
	switch {
	case goal.Performance && logged == len(e.shards):
		return Performance, goal.Change
	case goal.Performance:
		return DualWrite, goal.Change
	case goal.Degraded:
		return Degraded, goal.Change
	case logged > 0:
		return Drain, goal.Change
	}
	return Reliable, goal.Change
}

func (sh *shard) status() Log {
	lg, now := sh.log, time.Now()
	out := Log{
		Shard: sh.ID(), Serves: lg.serves, Head: lg.fence.Head, Shipped: lg.shipped, Signers: len(lg.dirty), Grant: max(0, lg.trust.Sub(now)),
	}
	for _, u := range lg.dirty {
		out.Behind = max(out.Behind, now.Sub(u.since))
	}
	if !sh.failing.IsZero() && sh.why != nil {
		out.Trouble = sh.why.Error()
	}
	return out
}

// Figures are what is counted of the logs of this node, as of the end of the last batch of
// each worker.
type Figures struct {
	Logged           int // shards that have one, at any node
	Serving, Failing int
	Unshipped        int // changes
	Lost             int64
	Behind           time.Duration
	Rehearsed        int  // shards that have kept up with the rehearsal, or have a log
	Degraded         bool // the performance engine was left because of a trouble
	Reached          bool // this node reaches the server that was accepted
}

// Figures returns them, and waits for nothing.
func (e *Engine) Figures() Figures {
	out := Figures{
		Logged: e.loggedShards(), Lost: e.lost.Load(), Rehearsed: e.rehearsedShards(),
		Degraded: e.wanted().Degraded, Reached: e.reach.missed() == 0,
	}
	for _, c := range e.parts {
		if f := c.figures.Load(); f != nil {
			out.Serving, out.Failing, out.Unshipped = out.Serving+f.Serving, out.Failing+f.Failing, out.Unshipped+f.Unshipped
			out.Behind = max(out.Behind, f.Behind)
		}
	}
	return out
}

// countEvery is between two counts of what Figures reads.
const countEvery = 100 * time.Millisecond

// countLogs counts what Figures reads.
func (c *committer) countLogs() {
	now := time.Now()
	if now.Sub(c.counted) < countEvery {
		return
	}
	c.counted = now
	f := Figures{Unshipped: c.unshipped}
	for _, sh := range c.owned() {
		st := sh.status()
		f.Behind = max(f.Behind, st.Behind)
		if st.Trouble != "" || !st.Serves {
			f.Failing++
		} else {
			f.Serving++
		}
	}
	c.figures.Store(&f)
}

// Ship ships what the logs of this node have, and reports how many shards have nothing left.
func (e *Engine) Ship() (whole, shards int) {
	for _, c := range e.parts {
		c.worker.Do(func() {
			for _, sh := range c.serving() {
				shards++
				if c.flush(sh, false) {
					whole++
				}
			}
		})
	}
	return whole, shards
}

// Difference is what a log says of a signer that memory does not.
type Difference struct{ Signer, What, Log, Memory string }

// Reconciled is what was compared.
type Reconciled struct {
	Equal       int // signers
	Differences []Difference
}

// Reconcile folds what the logs of this node have over the rows, and compares that with what is
// remembered. It waits for the batch under way of each worker.
func (e *Engine) Reconcile(ctx context.Context) (r Reconciled, err error) {
	for _, c := range e.parts {
		c.worker.Do(func() {
			for _, sh := range c.serving() {
				if err == nil {
					err = c.reconcile(ctx, sh, &r)
				}
			}
		})
	}
	return r, err
}

func (c *committer) reconcile(ctx context.Context, sh *shard, r *Reconciled) error {
	differs := func(signer, what string, log, memory any) {
		if a, b := fmt.Sprint(log), fmt.Sprint(memory); a != b {
			r.Differences = append(r.Differences, Difference{signer, what, a, b})
		}
	}
	fence, records, err := c.cfg.Log.Read(ctx, sh.ID())
	if err != nil {
		return err
	}
	differs(fmt.Sprintf("(shard %d)", sh.ID()), "fence", fence, sh.log.fence)
	folded, err := c.fold(sh, sh.log.shipped, records)
	if err != nil {
		return err
	}
	for _, f := range folded {
		before, known := len(r.Differences), sh.Signer(f.name)
		switch {
		case f.unreadable != nil:
			continue
		case !known.Known():
			differs(f.name, "signer", f.row.Version, "not remembered")
			continue
		}
		row := known.Row()
		differs(f.name, "version", f.row.Version, row.Version)
		differs(f.name, "next", f.row.Next, row.Next)
		differs(f.name, "floor", f.row.Floor, row.Floor)
		if !slices.EqualFunc(f.row.Live, row.Live, sameEntry) {
			differs(f.name, "live", f.row.Live, row.Live)
		}
		if len(r.Differences) == before {
			r.Equal++
		}
	}
	return nil
}

// sameEntry compares entries by what they say.
func sameEntry(a, b nonce.Entry) bool {
	return a.Nonce == b.Nonce && a.Attempt == b.Attempt && a.Status == b.Status && a.Until == b.Until
}
