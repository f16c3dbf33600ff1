package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"noncegate/nonce/service"
	"noncegate/wire"
)

// engineStatus is the answer to GET /engine.
type engineStatus struct {
	Node      string              `json:"node"`
	Available bool                `json:"available"`
	Why       string              `json:"why,omitempty"` // it is not
	State     service.EngineState `json:"state"`
	Goal      service.EngineState `json:"goal"`
	Number    int64               `json:"generation"`
	Reason    string              `json:"reason"`
	ChangedAt time.Time           `json:"changedAt,omitzero"`
	Shards    int                 `json:"shards"`       // of the database
	Logs      int                 `json:"shardsLogged"` // shards that have a log
	Lost      int64               `json:"logsLost"`     // logs that the node declared lost
	Redis     string              `json:"redis"`        // ok, or what is wrong
	Here      []loggedShard       `json:"logsHere,omitempty"`
	// In DUAL_WRITE: how many shards have kept up for as long as is wanted, how long that is,
	// and those of the node that answers.
	Rehearsed  int          `json:"shardsRehearsed,omitempty"`
	Rehearse   string       `json:"rehearsal,omitempty"`
	Rehearsing []rehearsing `json:"rehearsingHere,omitempty"`
}

// switchQuestion is the body of POST /engine/switch.
type switchQuestion struct {
	To     string `json:"to"` // performance or reliable
	DryRun bool   `json:"dryRun"`
}

// switchReport is the answer to it.
type switchReport struct {
	From   service.EngineState `json:"from"`
	To     service.EngineState `json:"to"`
	Checks []engineCheck       `json:"checks,omitempty"`
	Done   bool                `json:"done"`
	DryRun bool                `json:"dryRun,omitempty"`
}

// engineCheck is something that was looked at before a switch.
type engineCheck struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

// replayReport is the answer to POST /engine/replay.
type replayReport struct {
	Shipped int `json:"shipped"` // logs of this node of which the rows have everything
	Left    int `json:"left"`    // logs of this node of which they do not
}

// reconcileReport is the answer to POST /engine/reconcile.
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
	Redis  string `json:"redis"`
	Store  string `json:"store"`
}

// engineRefusal is the body of an answer that is no 200.
type engineRefusal struct {
	Error string              `json:"error"`
	State service.EngineState `json:"state,omitempty"`
	// Checks are what was looked at, where that is why.
	Checks []engineCheck `json:"checks,omitempty"`
}

// refusedSwitch is a switch that is not possible now. Nothing happened.
type refusedSwitch struct {
	state service.EngineState // there is
	why   string              // a sentence
	// checks are what was looked at, where that is why.
	checks []engineCheck
}

// Error implements error.
func (e *refusedSwitch) Error() string { return "refused in state " + string(e.state) + ": " + e.why }

// switchTargets are the words of the command line.
var switchTargets = map[string]service.EngineState{"performance": service.StatePerformance, "reliable": service.StateReliable}

const switchWords = "neither performance nor reliable"

// maxQuestion bounds the body of a request, in bytes.
const maxQuestion = 4096

// engineHandlers adds the performance engine to the private side.
func (a *app) engineHandlers(mux *http.ServeMux) {
	mux.HandleFunc("GET /engine", answering(func(r *http.Request) (any, error) { return a.engineStatus(r.Context()), nil }))
	mux.HandleFunc("POST /engine/switch", ordered(func(r *http.Request) (any, error) {
		q, to, err := readQuestion(r.Body)
		if err == nil {
			err = a.refusedWithoutEngine()
		}
		if err != nil {
			return nil, err
		}
		return a.switchLogs(r.Context(), to, q.DryRun)
	}))
	mux.HandleFunc("POST /engine/reconcile", a.withoutQuestion(func(ctx context.Context) (any, error) { return a.reconcileLogs(ctx) }))
	mux.HandleFunc("POST /engine/replay", a.withoutQuestion(func(context.Context) (any, error) { return a.replayLogs(), nil }))
}

// withoutQuestion is for an order to the engine that takes no members: its body is empty or {}.
func (a *app) withoutQuestion(run func(context.Context) (any, error)) http.HandlerFunc {
	return ordered(func(r *http.Request) (any, error) {
		text, err := readBody(r.Body)
		if err == nil && len(text) > 0 {
			err = understand(text, new(struct{}))
		}
		if err == nil {
			err = a.refusedWithoutEngine()
		}
		if err != nil {
			return nil, err
		}
		return run(r.Context())
	})
}

func (a *app) refusedWithoutEngine() error {
	if err := a.errNoEngine(); err != nil {
		return &refusedSwitch{state: service.StateReliable, why: err.Error()}
	}
	return nil
}

// readQuestion reads the body of POST /engine/switch. Its error is a badQuestion.
func readQuestion(body io.Reader) (q switchQuestion, to service.EngineState, err error) {
	text, err := readBody(body)
	if err == nil {
		err = understand(text, &q)
	}
	if err != nil {
		return q, "", err
	}
	to, ok := switchTargets[q.To]
	if !ok {
		return q, "", &badQuestion{why: fmt.Sprintf("to: %q is "+switchWords, q.To)}
	}
	return q, to, nil
}

// readBody reads what is not too long. Its error is a badQuestion.
func readBody(body io.Reader) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(nil, io.NopCloser(body), maxQuestion))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, &badQuestion{why: fmt.Sprintf("the body must be at most %d bytes", maxQuestion)}
	}
	if err != nil {
		return nil, &badQuestion{why: "the body cannot be read: " + err.Error()}
	}
	return text, nil
}

// understand decodes a body. A member that is not known is refused: who misspelled
// dryRun must not find that the engine was switched. Its error is a badQuestion.
func understand(text []byte, v any) error {
	if err := wire.UnmarshalKnown(text, v, "the body"); err != nil {
		return &badQuestion{why: err.Error()}
	}
	return nil
}

// badQuestion is a request that cannot be served as it is.
type badQuestion struct {
	why  string
	code int // of HTTP; 0: 400
}

// Error implements error.
func (e *badQuestion) Error() string { return e.why }

// answering serves what run returns as the body of the answer, or its error with the status it has.
func answering(run func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		got, err := run(r)
		if err == nil {
			answerJSON(w, http.StatusOK, got)
			return
		}
		code, said := http.StatusServiceUnavailable, engineRefusal{Error: sentenceOf(err)}
		if bad, ok := errors.AsType[*badQuestion](err); ok {
			code, said.Error = cmp.Or(bad.code, http.StatusBadRequest), bad.why
		}
		if refused, ok := errors.AsType[*refusedSwitch](err); ok {
			code, said.State, said.Checks = http.StatusConflict, refused.state, refused.checks
		}
		answerJSON(w, code, said)
	}
}

// ordered serves an order, which changes something. A browser is refused: whoever visits some page must
// not switch an engine that their machine can reach.
func ordered(run func(*http.Request) (any, error)) http.HandlerFunc {
	return answering(func(r *http.Request) (any, error) {
		switch {
		case r.Header.Get("Origin") != "":
			return nil, &badQuestion{"this is not for browsers", http.StatusForbidden}
		case r.URL.RawQuery != "":
			return nil, &badQuestion{why: "the URL must have no parameters; what is asked for is said in the body"}
		}
		return run(r)
	})
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(v) // a client that has gone is told nothing
}

// engineStatus reads what there is to say now.
func (a *app) engineStatus(ctx context.Context) engineStatus {
	if err := a.errNoEngine(); err != nil {
		return engineStatus{Node: a.node, State: service.StateReliable, Goal: service.StateReliable, Why: err.Error()}
	}
	return a.loggedStatus(ctx)
}
