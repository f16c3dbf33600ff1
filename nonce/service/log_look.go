package service

import (
	"context"
	"fmt"
	"time"
)

// LogFigures are what is counted of the logs of this node, as of the end of the last batch of
// each worker.
type LogFigures struct {
	Logged           int // shards that have one, at any node
	Serving, Failing int
	Unshipped        int // changes
	Lost             int64
	Behind           time.Duration
	Rehearsed        int  // shards that have kept up with the rehearsal, or have a log
	Degraded         bool // the performance engine was left because of a trouble
	Reached          bool // this node reaches the server that was accepted
}

// LogFigures returns them.
func (s *Service) LogFigures() LogFigures {
	out := LogFigures{
		Logged: s.loggedShards(), Lost: s.tally.lost.Load(), Rehearsed: s.rehearsedShards(), Degraded: s.goal().Degraded,
		Reached: s.cfg.Log != nil && s.engine.reach.missed() == 0,
	}
	for _, w := range s.workers {
		if f := w.logs.figures.Load(); f != nil {
			out.Serving, out.Failing, out.Unshipped = out.Serving+f.Serving, out.Failing+f.Failing, out.Unshipped+f.Unshipped
			out.Behind = max(out.Behind, f.Behind)
		}
	}
	return out
}

// countEvery is between two counts of what LogFigures reads.
const countEvery = 100 * time.Millisecond

// countLogs is what LogFigures reads.
func (w *worker) countLogs() {
	if w.svc.cfg.Log == nil || w.marked.Sub(w.logs.counted) < countEvery {
		return
	}
	w.logs.counted = w.marked
	f := LogFigures{Unshipped: w.logs.unshipped}
	for _, sh := range w.owned() {
		if sh.log == nil {
			continue
		}
		st := sh.log.status(sh.id)
		f.Behind = max(f.Behind, st.Behind)
		if st.Trouble != "" || !st.Serves {
			f.Failing++
		} else {
			f.Serving++
		}
	}
	w.logs.figures.Store(&f)
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
func (s *Service) Reconcile(ctx context.Context) (r Reconciled, err error) {
	for _, w := range s.workers {
		w.batchMu.Lock()
		for _, sh := range w.serving() {
			if err == nil {
				err = w.reconcile(ctx, sh, &r)
			}
		}
		w.batchMu.Unlock()
	}
	return r, err
}

func (w *worker) reconcile(ctx context.Context, sh *shard, r *Reconciled) error {
	differs := func(signer, what string, log, memory any) {
		if a, b := fmt.Sprint(log), fmt.Sprint(memory); a != b {
			r.Differences = append(r.Differences, Difference{signer, what, a, b})
		}
	}
	fence, records, err := w.svc.cfg.Log.Log.Read(ctx, sh.id)
	if err != nil {
		return err
	}
	differs(fmt.Sprintf("(shard %d)", sh.id), "fence", fence, sh.log.fence)
	folded, _, err := w.fold(sh, sh.log.shipped, records)
	if err != nil {
		return err
	}
	for _, sig := range folded {
		before, known := len(r.Differences), w.memory.signers[sig.name]
		if known == nil {
			differs(sig.name, "signer", sig.row.Version, "not remembered")
			continue
		}
		differs(sig.name, "version", sig.row.Version, known.row.Version)
		differs(sig.name, "next", sig.row.Next, known.row.Next)
		differs(sig.name, "floor", sig.row.Floor, known.row.Floor)
		if !sameLive(sig.row.Live, known.row.Live) {
			differs(sig.name, "live", sig.row.Live, known.row.Live)
		}
		if len(r.Differences) == before {
			r.Equal++
		}
	}
	return nil
}
