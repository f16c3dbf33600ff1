package admin

import (
	"context"
	"fmt"
	"time"

	"noncegate/internal/redisdb"
	"noncegate/nonce"
	"noncegate/nonce/performance"
)

// EngineStatus is the state of the engine.
type EngineStatus struct {
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
	Here      []LoggedShard     `json:"logsHere,omitempty"`
	// In DUAL_WRITE: how many shards have kept up for as long as is wanted, how long that is,
	// and those of the node that answers.
	Rehearsed  int          `json:"shardsRehearsed,omitempty"`
	Rehearse   string       `json:"rehearsal,omitempty"`
	Rehearsing []Rehearsing `json:"rehearsingHere,omitempty"`
}

// SwitchOrder switches the cluster between its engines.
type SwitchOrder struct {
	To string `json:"to"` // performance or reliable
	// Generation is that of the engine as the operator saw it: what was switched since is left alone.
	Generation *int64 `json:"generation"`
	Because
}

// SwitchReport is the answer to it.
type SwitchReport struct {
	From   performance.State `json:"from"`
	To     performance.State `json:"to"`
	Checks []EngineCheck     `json:"checks,omitempty"`
	Done   bool              `json:"done"`
	Foreseen
}

// EngineCheck is something that was looked at before a switch.
type EngineCheck struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// ReplayReport is what came of shipping by hand.
type ReplayReport struct {
	Shipped int `json:"shipped"` // logs of this node of which the rows have everything
	Left    int `json:"left"`    // logs of this node of which they do not
	Foreseen
}

// ReconcileReport is what Redis has beside the rows and the memory of the node.
type ReconcileReport struct {
	Equal       int                `json:"equal"`     // signers
	Different   int                `json:"different"` // signers
	Differences []EngineDifference `json:"differences,omitempty"`
	Took        string             `json:"took"`
	Foreseen
}

// EngineDifference is a signer whose records are not what rows or memory say.
type EngineDifference struct {
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
	checks []EngineCheck
}

// Error implements error.
func (e *refusedSwitch) Error() string { return "refused in state " + string(e.state) + ": " + e.why }

// SwitchTargets are the words of the command line.
var SwitchTargets = map[string]performance.State{"performance": performance.Performance, "reliable": performance.Reliable}

// SwitchWords say what is none of them.
const SwitchWords = "neither performance nor reliable"

func (a *Server) refusedWithoutEngine() error {
	if err := a.cfg.NoEngine(); err != nil {
		return &refusedSwitch{state: performance.Reliable, why: err.Error()}
	}
	return nil
}

// Rehearsing is how far the rehearsal of a shard of the node that answers is.
type Rehearsing struct {
	Shard   int    `json:"shard"`
	KeptUp  string `json:"keptUp"`
	Done    bool   `json:"done"`
	Trouble string `json:"trouble,omitempty"`
}

// LoggedShard is a log of the node that answers.
type LoggedShard struct {
	Shard   int    `json:"shard"`
	Serves  bool   `json:"serves"`
	Head    int64  `json:"head"`
	Shipped int64  `json:"shipped"`
	Signers int    `json:"unshippedSigners"`
	Behind  string `json:"behind"`
	Grant   string `json:"grant"`
	Trouble string `json:"trouble,omitempty"`
}

// engineStatus reads what there is to say now, and asks Redis.
func (a *Server) engineStatus(ctx context.Context, _ None) (EngineStatus, error) {
	out := a.engineNow()
	if out.Available {
		if _, err := a.cfg.Redis.Check(ctx); err != nil {
			out.Redis = sentence(err)
		}
	}
	return out, nil
}

func (a *Server) engineNow() EngineStatus {
	if err := a.cfg.NoEngine(); err != nil {
		return EngineStatus{Node: a.cfg.Node, State: performance.Reliable, Goal: performance.Reliable, Why: err.Error()}
	}
	st := a.cfg.Engine.Status()
	out := EngineStatus{
		Node: a.cfg.Node, Available: true, State: st.State, Goal: performance.Reliable, Number: st.Goal.Change, Reason: st.Goal.Reason,
		ChangedAt: st.Goal.At, Shards: st.Shards, Logs: st.Performance, Lost: st.Lost, Redis: "ok",
	}
	if st.Goal.Performance {
		out.Goal = performance.Performance
	}
	for _, sh := range st.Here {
		out.Here = append(out.Here, LoggedShard{
			Shard: sh.Shard, Serves: sh.Serves, Head: sh.Head, Shipped: sh.Shipped, Signers: sh.Signers,
			Behind: sh.Behind.Round(time.Millisecond).String(), Grant: sh.Grant.Round(time.Millisecond).String(), Trouble: sh.Trouble,
		})
	}
	if st.State == performance.DualWrite {
		out.Rehearsed, out.Rehearse = st.Rehearsed, st.Goal.Rehearse.String()
		for _, sh := range st.Rehearsing {
			out.Rehearsing = append(out.Rehearsing, Rehearsing{sh.Shard, sh.KeptUp.Round(time.Millisecond).String(), sh.Done, sh.Trouble})
		}
	}
	return out
}

// SwitchEngine says which engine is wanted, after a look whether that is possible.
func (a *Server) switchEngine(ctx context.Context, q SwitchOrder) (r SwitchReport, err error) {
	to, ok := SwitchTargets[q.To]
	if !ok {
		return r, &badQuestion{why: fmt.Sprintf("to: %q is "+SwitchWords, q.To)}
	}
	if err := a.refusedWithoutEngine(); err != nil {
		return r, err
	}
	if q.Generation == nil {
		return r, &badQuestion{why: "generation: is missing; it must be that of the engine as it was seen"}
	}
	from, _ := a.cfg.Engine.State()
	goal, err := a.cfg.Engine.Wanted(ctx)
	if err != nil {
		return r, &notDone{err}
	}
	if goal.Change != *q.Generation {
		return r, staleSwitch(from, goal)
	}
	r = SwitchReport{From: from, To: to}
	r.foresee(q.Because, nil, string(from), string(to),
		fmt.Sprintf("the whole cluster goes from %s to %s, as generation %d", from, to, goal.Change+1))
	fast := to == performance.Performance
	if fast {
		facts, err := a.cfg.Redis.Check(ctx)
		if err != nil {
			return r, &refusedSwitch{state: from, why: sentence(err), checks: []EngineCheck{{Name: "redis", Text: sentence(err)}}}
		}
		r.Checks = []EngineCheck{{Name: "redis", OK: true, Text: redisNote(&facts)}}
	}
	if q.DryRun {
		return r, nil
	}
	goal, err = a.cfg.Engine.Switch(ctx, goal, fast, a.cfg.Rehearsal, "an operator at "+a.cfg.Node)
	switch {
	case err != nil:
		return r, switchError(err)
	case goal.Performance != fast || goal.Degraded:
		return r, staleSwitch(from, goal)
	}
	r.Done = true
	a.cfg.Log.Info("which engine is wanted was said by hand", "to", string(to), "from", string(from))
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
func (a *Server) replay(_ context.Context, by Because) (r ReplayReport, err error) {
	r.foresee(by, nil, "", "", "what the logs of this node have is shipped to the store")
	if err = a.refusedWithoutEngine(); err == nil && !by.DryRun {
		whole, logs := a.cfg.Engine.Ship()
		r.Shipped, r.Left = whole, logs-whole
	}
	return r, err
}

// reconcile compares Redis with the rows and with the memory of this node.
func (a *Server) reconcile(ctx context.Context, by Because) (r ReconcileReport, err error) {
	r.foresee(by, nil, "", "", "the logs of this node are compared with its memory and the store; nothing changes")
	if err := a.refusedWithoutEngine(); err != nil || by.DryRun {
		return r, err
	}
	began := time.Now()
	got, err := a.cfg.Engine.Reconcile(ctx)
	r.Equal, r.Different, r.Took = got.Equal, len(got.Differences), time.Since(began).Round(time.Millisecond).String()
	for _, d := range got.Differences {
		r.Differences = append(r.Differences, EngineDifference(d))
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
