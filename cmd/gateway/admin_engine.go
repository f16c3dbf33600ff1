package main

import (
	"context"
	"fmt"
	"time"

	"noncegate/internal/redisdb"
	"noncegate/nonce"
	"noncegate/nonce/performance"
)

// engineStatus is the state of the engine.
type engineStatus struct {
	Node      string            `json:"node"`
	Available bool              `json:"available"`
	Why       string            `json:"why,omitempty"` // it is not
	State     performance.State `json:"state"`
	Goal      performance.State `json:"goal"`
	Number    int64             `json:"generation"`
	Reason    string            `json:"reason"`
	ChangedAt time.Time         `json:"changedAt,omitzero"`
	Shards    int               `json:"shards"`       // of the database
	Logs      int               `json:"shardsLogged"` // shards that have a log
	Lost      int64             `json:"logsLost"`     // logs that the node declared lost
	Redis     string            `json:"redis"`        // ok, or what is wrong
	Here      []loggedShard     `json:"logsHere,omitempty"`
	// In DUAL_WRITE: how many shards have kept up for as long as is wanted, how long that is,
	// and those of the node that answers.
	Rehearsed  int          `json:"shardsRehearsed,omitempty"`
	Rehearse   string       `json:"rehearsal,omitempty"`
	Rehearsing []rehearsing `json:"rehearsingHere,omitempty"`
}

// switchOrder switches the cluster between its engines.
type switchOrder struct {
	To     string `json:"to"` // performance or reliable
	DryRun bool   `json:"dryRun,omitempty"`
	// Generation is that of the engine as the operator saw it: what was switched since is left alone.
	Generation *int64 `json:"generation"`
	because
}

// switchReport is the answer to it.
type switchReport struct {
	From   performance.State `json:"from"`
	To     performance.State `json:"to"`
	Checks []engineCheck     `json:"checks,omitempty"`
	Done   bool              `json:"done"`
	DryRun bool              `json:"dryRun,omitempty"`
}

// engineCheck is something that was looked at before a switch.
type engineCheck struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// replayReport is what came of shipping by hand.
type replayReport struct {
	Shipped int `json:"shipped"` // logs of this node of which the rows have everything
	Left    int `json:"left"`    // logs of this node of which they do not
}

// reconcileReport is what Redis has beside the rows and the memory of the node.
type reconcileReport struct {
	Equal       int                `json:"equal"`     // signers
	Different   int                `json:"different"` // signers
	Differences []engineDifference `json:"differences,omitempty"`
	Took        string             `json:"took"`
}

// engineDifference is a signer whose records are not what rows or memory say.
type engineDifference struct {
	Signer string `json:"signer"`
	What   string `json:"what"`
	Log    string `json:"redis"`
	Memory string `json:"store"`
}

// refusedSwitch is a switch that is not possible now. Nothing happened.
type refusedSwitch struct {
	state performance.State // there is
	why   string            // a sentence
	// checks are what was looked at, where that is why.
	checks []engineCheck
}

// Error implements error.
func (e *refusedSwitch) Error() string { return "refused in state " + string(e.state) + ": " + e.why }

// switchTargets are the words of the command line.
var switchTargets = map[string]performance.State{"performance": performance.Performance, "reliable": performance.Reliable}

const switchWords = "neither performance nor reliable"

func (a *app) refusedWithoutEngine() error {
	if err := a.errNoEngine(); err != nil {
		return &refusedSwitch{state: performance.Reliable, why: err.Error()}
	}
	return nil
}

// rehearsing is how far the rehearsal of a shard of the node that answers is.
type rehearsing struct {
	Shard   int    `json:"shard"`
	KeptUp  string `json:"keptUp"`
	Done    bool   `json:"done"`
	Trouble string `json:"trouble,omitempty"`
}

// loggedShard is a log of the node that answers.
type loggedShard struct {
	Shard   int    `json:"shard"`
	Serves  bool   `json:"serves"`
	Head    int64  `json:"head"`
	Shipped int64  `json:"shipped"`
	Signers int    `json:"unshippedSigners"`
	Behind  string `json:"behind"`
	Grant   string `json:"grant"`
	Trouble string `json:"trouble,omitempty"`
}

// engineStatus reads what there is to say now.
func (a *app) engineStatus(ctx context.Context, _ none) (engineStatus, error) {
	if err := a.errNoEngine(); err != nil {
		return engineStatus{Node: a.node, State: performance.Reliable, Goal: performance.Reliable, Why: err.Error()}, nil
	}
	st := a.engine.Status()
	out := engineStatus{
		Node: a.node, Available: true, State: st.State, Goal: performance.Reliable, Number: st.Goal.Change, Reason: st.Goal.Reason,
		ChangedAt: st.Goal.At, Shards: st.Shards, Logs: st.Performance, Lost: st.Lost, Redis: "ok",
	}
	if st.Goal.Performance {
		out.Goal = performance.Performance
	}
	for _, sh := range st.Here {
		out.Here = append(out.Here, loggedShard{
			Shard: sh.Shard, Serves: sh.Serves, Head: sh.Head, Shipped: sh.Shipped, Signers: sh.Signers,
			Behind: sh.Behind.Round(time.Millisecond).String(), Grant: sh.Grant.Round(time.Millisecond).String(), Trouble: sh.Trouble,
		})
	}
	if st.State == performance.DualWrite {
		out.Rehearsed, out.Rehearse = st.Rehearsed, st.Goal.Rehearse.String()
		for _, sh := range st.Rehearsing {
			out.Rehearsing = append(out.Rehearsing, rehearsing{sh.Shard, sh.KeptUp.Round(time.Millisecond).String(), sh.Done, sh.Trouble})
		}
	}
	if _, err := a.redis.Check(ctx); err != nil {
		out.Redis = sentenceOf(err)
	}
	return out, nil
}

// switchEngine says which engine is wanted, after a look whether that is possible.
func (a *app) switchEngine(ctx context.Context, q switchOrder) (r switchReport, err error) {
	to, ok := switchTargets[q.To]
	if !ok {
		return r, &badQuestion{why: fmt.Sprintf("to: %q is "+switchWords, q.To)}
	}
	if err := a.refusedWithoutEngine(); err != nil {
		return r, err
	}
	if q.Generation == nil {
		return r, &badQuestion{why: "generation: is missing; it must be that of the engine as it was seen"}
	}
	from, _ := a.engine.State()
	goal, err := a.engine.Wanted(ctx)
	if err != nil {
		return r, &notDone{err}
	}
	if goal.Change != *q.Generation {
		return r, staleSwitch(from, goal)
	}
	r = switchReport{From: from, To: to, DryRun: q.DryRun}
	fast := to == performance.Performance
	if fast {
		facts, err := a.redis.Check(ctx)
		if err != nil {
			return r, &refusedSwitch{state: from, why: sentenceOf(err), checks: []engineCheck{{Name: "redis", Text: sentenceOf(err)}}}
		}
		r.Checks = []engineCheck{{Name: "redis", OK: true, Text: redisNote(&facts)}}
	}
	if q.DryRun {
		return r, nil
	}
	goal, err = a.engine.Switch(ctx, goal, fast, a.cfg.EngineRehearsal, "an operator at "+a.node)
	switch {
	case err != nil:
		return r, switchError(err)
	case goal.Performance != fast || goal.Degraded:
		return r, staleSwitch(from, goal)
	}
	r.Done = true
	a.log.Info("which engine is wanted was said by hand", "to", string(to), "from", string(from))
	return r, nil
}

// staleSwitch refuses what was decided before the last switch was seen.
func staleSwitch(state performance.State, goal nonce.EngineGoal) error {
	return &refusedSwitch{state: state, why: fmt.Sprintf("the engine was switched meanwhile (generation %d: %s); look at its status again",
		goal.Change, goal.Reason)}
}

// switchError says whether the engine was switched.
func switchError(err error) error {
	if nonce.OutcomeOf(err) == nonce.Unknown {
		return fmt.Errorf("%w; whether the engine was switched is unknown: look at its status", err)
	}
	return fmt.Errorf("%w; the engine was not switched", err)
}

// replay ships what this node's logs have.
func (a *app) replay(context.Context, because) (r replayReport, err error) {
	if err = a.refusedWithoutEngine(); err == nil {
		whole, logs := a.engine.Ship()
		r = replayReport{Shipped: whole, Left: logs - whole}
	}
	return r, err
}

// reconcile compares Redis with the rows and with the memory of this node.
func (a *app) reconcile(ctx context.Context, _ because) (reconcileReport, error) {
	if err := a.refusedWithoutEngine(); err != nil {
		return reconcileReport{}, err
	}
	began := time.Now()
	got, err := a.engine.Reconcile(ctx)
	r := reconcileReport{Equal: got.Equal, Different: len(got.Differences), Took: time.Since(began).Round(time.Millisecond).String()}
	for _, d := range got.Differences {
		r.Differences = append(r.Differences, engineDifference(d))
	}
	if err != nil {
		err = &notDone{err} // it only compares
	}
	return r, err
}

// redisNote is what an operator should know of one server.
func redisNote(s *redisdb.Server) string {
	keeps := "no append-only file"
	if s.AOF {
		keeps = "append-only file, fsync " + s.Fsync
	}
	return fmt.Sprintf("%s: Redis %s, %s, %d replicas, %s, %s", s.Addr, s.Version, s.Role, s.Replicas, keeps, s.Policy)
}
