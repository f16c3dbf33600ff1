package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"noncegate/engine"
	"noncegate/nonce"
	"noncegate/wire"
)

// engineStatus is the answer to GET /engine.
type engineStatus struct {
	Node      string            `json:"node"`
	Available bool              `json:"available"`
	Why       string            `json:"why,omitempty"` // it is not
	State     nonce.EngineState `json:"state"`
	Goal      nonce.EngineState `json:"goal"`
	Number    int64             `json:"generation"`
	Reason    string            `json:"reason"`
	By        string            `json:"by"`
	ChangedAt time.Time         `json:"changedAt,omitzero"`
	// ObserveUntil is when somebody may go up again after a trouble.
	ObserveUntil time.Time `json:"observeUntil,omitzero"`
	Shards       int       `json:"flushShards"`
	Held         int       `json:"flushShardsHere"`
	Signers      int       `json:"signers"` // that the performance engine serves
	Unowned      int       `json:"unowned"`
	Doubtful     int       `json:"inDoubt"`
	DoubtUntil   time.Time `json:"doubtUntil,omitzero"`
	Waiting      int64     `json:"unflushed"`
	Oldest       string    `json:"unflushedOldest,omitempty"`
	Dead         int64     `json:"deadLetters"`
	Redis        string    `json:"redis"` // ok, or what is wrong
	// With --heart new: shards that have a log, logs that the node declared lost, and those
	// that it has.
	Logs int           `json:"shardsLogged,omitempty"`
	Lost int64         `json:"logsLost,omitempty"`
	Here []loggedShard `json:"logsHere,omitempty"`
	// In DUAL_WRITE: how many shards have kept up for as long as is wanted, how long that is,
	// and those of the node that answers.
	Rehearsed  int          `json:"shardsRehearsed,omitempty"`
	Rehearse   string       `json:"rehearsal,omitempty"`
	Rehearsing []rehearsing `json:"rehearsingHere,omitempty"`
}

// switchQuestion is the body of POST /engine/switch.
type switchQuestion struct {
	To     string `json:"to"` // dual-write, performance, drain or reliable
	Force  bool   `json:"force"`
	DryRun bool   `json:"dryRun"`
}

// engineRefusal is the body of an answer that is no 200.
type engineRefusal struct {
	Error string            `json:"error"`
	State nonce.EngineState `json:"state,omitempty"`
	// Checks are what was looked at, where that is why.
	Checks []engine.CheckResult `json:"checks,omitempty"`
}

// switchTargets are the words of the command line.
var switchTargets = map[string]nonce.EngineState{
	"dual-write": nonce.StateDualWrite, "performance": nonce.StatePerformance, "drain": nonce.StateDrain, "reliable": nonce.StateReliable,
}

// maxQuestion bounds the body of a request, in bytes.
const maxQuestion = 4096

// engineHandlers adds the performance engine to the private side.
func (a *app) engineHandlers(mux *http.ServeMux) {
	mux.HandleFunc("GET /engine", func(w http.ResponseWriter, r *http.Request) {
		answerJSON(w, http.StatusOK, a.engineStatus(r.Context()))
	})
	a.enginePost(mux, "/engine/switch", func(body io.Reader) (engineCommand, error) {
		q, to, err := readQuestion(body)
		return func(ctx context.Context) (any, error) {
			if s := a.logged(); s != nil {
				return a.switchLogs(ctx, s, to, q.DryRun)
			}
			return a.engine.manager.Switch(ctx, engine.SwitchRequest{To: to, Force: q.Force, DryRun: q.DryRun, By: "an operator at " + a.node})
		}, err
	})
	a.enginePost(mux, "/engine/reconcile", withoutQuestion(func(ctx context.Context) (any, error) {
		if s := a.logged(); s != nil {
			return reconcileLogs(ctx, s)
		}
		return a.engine.manager.Reconcile(ctx)
	}))
	a.enginePost(mux, "/engine/replay", withoutQuestion(func(ctx context.Context) (any, error) {
		if s := a.logged(); s != nil {
			return replayLogs(s), nil
		}
		return a.engine.manager.Replay(ctx)
	}))
	a.enginePost(mux, "/engine/rebuild", withoutQuestion(func(ctx context.Context) (any, error) {
		if s := a.logged(); s != nil {
			return nil, errors.New("with --heart new nothing is copied to Redis")
		}
		return a.engine.manager.Rebuild(ctx)
	}))
}

// engineCommand does what was asked for. Its result is the body of the answer.
type engineCommand func(context.Context) (any, error)

// withoutQuestion is for a command that takes no members: its body is empty or {}.
func withoutQuestion(run engineCommand) func(io.Reader) (engineCommand, error) {
	return func(body io.Reader) (engineCommand, error) {
		text, err := readBody(body)
		if err != nil || len(text) == 0 {
			return run, err
		}
		return run, understand(text, new(struct{}))
	}
}

// readQuestion reads the body of POST /engine/switch. Its error is a badQuestion.
func readQuestion(body io.Reader) (q switchQuestion, to nonce.EngineState, err error) {
	text, err := readBody(body)
	if err == nil {
		err = understand(text, &q)
	}
	if err != nil {
		return q, "", err
	}
	to, ok := switchTargets[q.To]
	if !ok {
		return q, "", &badQuestion{fmt.Sprintf("to: %q is none of dual-write, performance, drain and reliable", q.To)}
	}
	return q, to, nil
}

// readBody reads what is not too long. Its error is a badQuestion.
func readBody(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(nil, io.NopCloser(body), maxQuestion))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, &badQuestion{fmt.Sprintf("the body must be at most %d bytes", maxQuestion)}
	}
	if err != nil {
		return nil, &badQuestion{"the body cannot be read: " + err.Error()}
	}
	return text, nil
}

// understand decodes a body. A member that is not known is refused: who misspelled
// dryRun must not find that the engine was switched. Its error is a badQuestion.
func understand(text []byte, v any) error {
	if err := wire.UnmarshalKnown(text, v, "the body"); err != nil {
		return &badQuestion{err.Error()}
	}
	return nil
}

// badQuestion is a request that cannot be understood.
type badQuestion struct{ why string }

// Error implements error.
func (e *badQuestion) Error() string { return e.why }

// refusedOrder answers, and reports, a request that may change nothing whatever it asks for.
// A browser is refused: whoever visits some page must not switch an engine that their
// machine can reach.
func refusedOrder(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.Header.Get("Origin") != "":
		answerJSON(w, http.StatusForbidden, engineRefusal{Error: "this is not for browsers"})
	case r.URL.RawQuery != "":
		answerJSON(w, http.StatusBadRequest, engineRefusal{Error: "the URL must have no parameters; what is asked for is said in the body"})
	default:
		return false
	}
	return true
}

// enginePost serves one command, which read makes of the body.
func (a *app) enginePost(mux *http.ServeMux, path string, read func(body io.Reader) (engineCommand, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if refusedOrder(w, r) {
			return
		}
		run, err := read(r.Body)
		if err != nil {
			answerJSON(w, http.StatusBadRequest, engineRefusal{Error: err.Error()})
			return
		}
		if err := a.errNoEngine(); err != nil {
			answerJSON(w, http.StatusConflict, engineRefusal{Error: "refused in state RELIABLE: " + err.Error(), State: nonce.StateReliable})
			return
		}
		got, err := run(r.Context())
		if err == nil {
			answerJSON(w, http.StatusOK, got)
			return
		}
		code, said := http.StatusServiceUnavailable, engineRefusal{Error: sentenceOf(err)}
		if refused, ok := errors.AsType[*engine.RefusedError](err); ok {
			code, said.State = http.StatusConflict, refused.State
		}
		if r, ok := got.(engine.SwitchReport); ok {
			said.Checks = r.Checks
		}
		answerJSON(w, code, said)
	})
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v) // a client that has gone is told nothing
}

// engineStatus reads what there is to say now.
func (a *app) engineStatus(ctx context.Context) engineStatus {
	s := engineStatus{Node: a.node, State: nonce.StateReliable, Goal: nonce.StateReliable}
	if err := a.errNoEngine(); err != nil {
		s.Why = err.Error()
		return s
	}
	if svc := a.logged(); svc != nil {
		return a.loggedStatus(ctx, svc)
	}
	v := a.engine.manager.Look(ctx)
	s.Available, s.State, s.Goal, s.Number, s.Reason, s.By = true, v.State, v.Goal, v.Generation, v.Reason, v.By
	s.ChangedAt, s.ObserveUntil, s.Shards, s.Held = v.ChangedAt, v.ObserveUntil, v.FlushShards, a.engine.worker.Held()
	s.Signers, s.Unowned, s.Doubtful, s.DoubtUntil = v.Counts.Entered, v.Counts.Unowned, v.Counts.Doubtful, v.Counts.DoubtUntil
	s.Waiting, s.Dead, s.Redis = v.Waiting, v.Dead, "ok"
	if v.Oldest > 0 {
		s.Oldest = v.Oldest.Round(time.Millisecond).String()
	}
	if v.RedisErr != nil {
		s.Redis = sentenceOf(v.RedisErr)
	}
	if v.StoreErr != nil {
		s.Why = "PostgreSQL does not answer; this is what was known last: " + sentenceOf(v.StoreErr)
	}
	return s
}
