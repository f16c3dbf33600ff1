package admin

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"noncegate/client"
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/nonce/performance"
	"noncegate/wire"
)

// Prefix begins the paths of the admin API.
const Prefix = "/admin/v1/"

// apiDocument documents the admin API; a test compares it with operations.
//
//go:embed openapi.yaml
var apiDocument []byte

// Operation is one question to the admin API, which is asked by GET, or one act, by POST: what a command sends and a
// gateway answers. A question has texts only, which stand in the URL; those of an act are its body.
type Operation[Q, R any] struct {
	Method, Path string
	// right is what a caller needs on all signers; 0: the clients' side, which is asked by inside, or run decides.
	right access.Right
	run   func(*Server, context.Context, Q) (R, error)
	login bool  // it begins or ends a session, and is no act
	most  int64 // bytes of the body; 0: maxQuestion
}

// question is one that changes nothing.
func question[Q, R any](path string, right access.Right, run func(*Server, context.Context, Q) (R, error)) Operation[Q, R] {
	return Operation[Q, R]{Method: http.MethodGet, Path: Prefix + path, right: right, run: run}
}

// act changes something.
func act[Q, R any](path string, right access.Right, run func(*Server, context.Context, Q) (R, error)) Operation[Q, R] {
	return Operation[Q, R]{Method: http.MethodPost, Path: Prefix + path, right: right, run: run}
}

// login is of sessions.
func login[Q, R any](path string, run func(*Server, context.Context, Q) (R, error)) Operation[Q, R] {
	return Operation[Q, R]{Method: http.MethodPost, Path: Prefix + path, run: run, login: true}
}

// The operations.
var (
	BeginSession = login("session", (*Server).beginSession)
	EndSession   = login("session/end", (*Server).endSession)
	MakeTicket   = login("ticket", (*Server).makeTicket)
	MakeWSTicket = login("wsTicket", (*Server).makeTicket)
	WhoAmI       = question("me", 0, (*Server).whoAmI)

	ShowOverview = question("overview", access.RightRead, (*Server).overview)
	ListFindings = question("findings", access.RightRead, (*Server).listFindings)
	ListSettings = question("settings", access.RightRead, (*Server).listSettings)
	ListAudit    = question("audit", access.RightRead, (*Server).listAudit)

	ListNodes = question("nodes", access.RightRead, (*Server).listNodes)
	DrainNode = act("node/drain", access.RightAdmin, (*Server).drainNode)

	ListSigners  = question("signers", access.RightRead, (*Server).listSigners)
	ShowSigner   = question("signer", 0, (*Server).showSigner)
	RaiseFloor   = act("signer/floor", 0, (*Server).raiseFloor)
	ReleaseNonce = act("signer/release", 0, (*Server).releaseNonce)
	ConsumeNonce = act("signer/consume", 0, (*Server).consumeNonce)
	RepairNonce  = act("signer/repair", 0, (*Server).repairNonce)

	ListShards = question("shards", access.RightRead, (*Server).listShards)
	MoveShard  = act("shard/move", access.RightAdmin, (*Server).moveShard)

	ShowEngine      = question("engine", access.RightRead, (*Server).engineStatus)
	SwitchEngine    = act("engine/switch", access.RightAdmin, (*Server).switchEngine)
	ReconcileEngine = act("engine/reconcile", access.RightAdmin, (*Server).reconcile)
	ReplayEngine    = act("engine/replay", access.RightAdmin, (*Server).replay)

	ListPrincipals = question("principals", access.RightRead, (*Server).listPrincipals)
	ListKeys       = question("keys", access.RightRead, (*Server).listKeys)
	CreateKey      = act("key/create", access.RightAdmin, (*Server).createKey)
	RevokeKey      = act("key/revoke", access.RightAdmin, (*Server).revokeKey)

	ListJobs  = question("jobs", access.RightRead, (*Server).listJobs)
	ShowJob   = question("job", access.RightRead, (*Server).showJob)
	BeginJob  = Operation[JobOrder, BegunJob]{Method: http.MethodPost, Path: Prefix + "job", run: (*Server).beginJob, most: maxJobBytes}
	CancelJob = act("job/cancel", 0, (*Server).cancelJob)
)

// operations are all of them.
var operations = []interface {
	serve(a *Server, mux *http.ServeMux)
}{
	BeginSession, EndSession, MakeTicket, MakeWSTicket, WhoAmI, ShowOverview, ListFindings, ListSettings, ListAudit,
	ListNodes, DrainNode, ListSigners, ShowSigner, RaiseFloor, ReleaseNonce, ConsumeNonce, RepairNonce,
	ListShards, MoveShard, ShowEngine, SwitchEngine, ReconcileEngine, ReplayEngine,
	ListPrincipals, ListKeys, CreateKey, RevokeKey, ListJobs, ShowJob, BeginJob, CancelJob,
}

// None is a question without parameters.
type None struct{}

// Because is what every act has: why it is done, for the audit, and whether it is done.
type Because struct {
	Reason string `json:"reason,omitempty"`
	// DryRun asks what the act would do: it is answered, or refused, as the act would be, and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// Foreseen is what the answer to every act has. Of a dry run it says what the act would do.
type Foreseen struct {
	DryRun   bool    `json:"dryRun,omitempty"`
	WouldDo  string  `json:"wouldDo,omitempty"`
	Before   *Before `json:"before,omitempty"` // what the act is about, as it is
	from, to string  // for the audit
}

// Before is what an act is about, one of these.
type Before struct {
	Signer *wire.StatusResult `json:"signer,omitempty"`
	Nonce  *wire.Allocation   `json:"nonce,omitempty"`
	Shard  *ListedShard       `json:"shard,omitempty"`
	Key    *KeyView           `json:"key,omitempty"`
}

func (f Foreseen) changed() (from, to string) { return f.from, f.to }

// foresee fills in the answer to an act, which is only a dry run if by says so.
func (f *Foreseen) foresee(by Because, before *Before, from, to, wouldDo string) {
	if f.from, f.to = from, to; by.DryRun {
		f.DryRun, f.WouldDo, f.Before = true, wouldDo, before
	}
}

// Refusal is the body of an answer that is no 200.
type Refusal struct {
	Error string `json:"error"`
	// Outcome is unknown where the act may have been done; else nothing happened.
	Outcome string            `json:"outcome,omitempty"`
	State   performance.State `json:"state,omitempty"`
	Checks  []EngineCheck     `json:"checks,omitempty"` // what was looked at, where that is why
}

// serveAPI adds the admin API to the private side.
func (a *Server) serveAPI(mux *http.ServeMux) {
	for _, o := range operations {
		o.serve(a, mux)
	}
	mux.HandleFunc(Prefix, func(w http.ResponseWriter, r *http.Request) {
		answerJSON(w, http.StatusNotFound, Refusal{Error: "the admin API has no such operation"})
	})
	mux.HandleFunc("GET /admin/v1/openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(apiDocument) // a client that has gone is told nothing
	})
}

func (o Operation[Q, R]) serve(a *Server, mux *http.ServeMux) {
	mux.HandleFunc(o.Method+" "+o.Path, func(w http.ResponseWriter, r *http.Request) {
		said, err := o.answer(a, r)
		if err != nil {
			answerError(w, err)
			return
		}
		answerJSON(w, http.StatusOK, &said)
	})
}

// errNotEnded is what the audit is told of an act that panics.
var errNotEnded = errors.New("it did not end")

// answer does what is asked, if the caller may ask for it. Each act is a line of the audit.
func (o Operation[Q, R]) answer(a *Server, r *http.Request) (said R, err error) {
	by, _ := callerOf(r.Context())
	var q Q
	acts := o.Method == http.MethodPost && !o.login
	if err = errNotEnded; acts {
		defer func() { a.auditAct(by, r, q, said, err) }()
		if refused := a.mayAct(by); refused != nil {
			return said, refused
		}
	}
	if refused := by.needs(o.right); refused != nil {
		return said, refused
	}
	var bad error
	if q, bad = readQuestion[Q](r, o.most); bad != nil {
		return said, bad
	}
	said, failed := o.run(a, r.Context(), q)
	if failed != nil && !acts {
		failed = &notDone{failed}
	}
	return said, failed
}

// everySigner is the pattern that one needs a right on to have it on all signers.
const everySigner = "*"

// mayAct reports why a caller may change nothing. What changes something needs a principal, where clients have one.
func (a *Server) mayAct(by caller) error {
	switch {
	case by.session != nil && by.session.Principal == "":
		return &badQuestion{"an act needs a principal: use an API key (--token); the admin key has no principal", http.StatusForbidden}
	case by.console && a.cfg.Console != "on":
		return &badQuestion{"the console may look only at this gateway (--console); nothing happened", http.StatusForbidden}
	}
	return nil
}

// needs reports that a caller lacks a right on all signers.
func (c caller) needs(right access.Right) error {
	if right != 0 && !c.session.May(right, everySigner) {
		return &badQuestion{fmt.Sprintf("the right %s on all signers is missing; nothing happened", right), http.StatusForbidden}
	}
	return nil
}

// auditAct writes who wanted something done, why, and what came of it.
func (a *Server) auditAct(by caller, r *http.Request, q, said any, err error) {
	if !a.cfg.Audit.Wants(audit.Refusals) {
		return
	}
	e := audit.Entry{At: time.Now(), Event: audit.Call, Address: by.address, Method: r.Method + " " + r.URL.Path, Outcome: "ok"}
	if by.session != nil {
		e.Principal, e.Credential = by.session.Principal, by.session.Credential
	}
	if of, ok := q.(interface{ about() (string, int64, bool) }); ok {
		e.Signer, e.Nonce, e.HasNonce = of.about()
		e.Signer = e.Signer[:min(len(e.Signer), maxReason)]
	}
	if why, ok := q.(interface{ reason() string }); ok {
		e.Why = why.reason()[:min(len(why.reason()), maxReason)]
	}
	if was, ok := said.(interface{ changed() (from, to string) }); ok && err == nil {
		e.Before, e.After = was.changed()
	}
	if dry, ok := q.(interface{ dry() bool }); ok && dry.dry() {
		e.Outcome = "dry_run"
	}
	if err != nil {
		status, said := refusalOf(err)
		word := strings.ToLower(strings.ReplaceAll(http.StatusText(status), " ", "_"))
		if e.Outcome = cmp.Or(said.Outcome, word); said.Outcome == "" {
			a.cfg.Audit.Refused(e) // what does not happen can be caused at will
			return
		}
	}
	a.cfg.Audit.Add(e)
}

func (b Because) reason() string { return b.Reason }
func (b Because) dry() bool      { return b.DryRun }

// maxReason bounds the reason of an act, in bytes.
const maxReason = 256

// maxQuestion bounds the body of a request, in bytes.
const maxQuestion = 4096

// readQuestion reads what is asked. What is not known is refused: who misspelled dryRun must not find that the engine
// was switched. The error is a badQuestion.
func readQuestion[Q any](r *http.Request, most int64) (q Q, err error) {
	var text []byte
	if r.Method == http.MethodGet {
		text, err = readParameters(r)
	} else {
		text, err = readBody(r, cmp.Or(most, maxQuestion))
	}
	if err == nil {
		err = wire.UnmarshalKnown(text, &q, "the body")
	}
	if why, ok := any(q).(interface{ reason() string }); ok && err == nil && len(why.reason()) > maxReason {
		err = fmt.Errorf("reason: must be at most %d bytes, and has %d", maxReason, len(why.reason()))
	}
	if _, bad := errors.AsType[*badQuestion](err); bad || err == nil {
		return q, err
	}
	return q, &badQuestion{why: err.Error()}
}

// readParameters makes a JSON object of the URL's parameters.
func readParameters(r *http.Request) ([]byte, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errors.New("the parameters cannot be read")
	}
	given := map[string]string{}
	for name, all := range values {
		if given[name] = all[0]; len(all) > 1 {
			return nil, fmt.Errorf("%.40s: given twice", name)
		}
	}
	return json.Marshal(given)
}

// readBody reads what is not too long. A form of a page can send no JSON.
func readBody(r *http.Request, most int64) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // one that cannot be read is none
	switch {
	case kind != "application/json":
		return nil, &badQuestion{"the Content-Type must be application/json", http.StatusUnsupportedMediaType}
	case r.URL.RawQuery != "":
		return nil, errors.New("the URL must have no parameters; what is asked for is said in the body")
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, fmt.Errorf("the body must be at most %d bytes", most)
	}
	if err != nil {
		return nil, fmt.Errorf("the body cannot be read: %w", err)
	}
	return text, nil
}

// badQuestion is a request that cannot be served as it is. Nothing happened.
type badQuestion struct {
	why  string
	code int // of HTTP; 0: 400
}

// Error implements error.
func (e *badQuestion) Error() string { return e.why }

// notDone is an error of which it is known that nothing happened.
type notDone struct{ error }

// Unwrap returns the cause.
func (e *notDone) Unwrap() error { return e.error }

// statusOf is the status for an error of the clients' side.
var statusOf = map[int]int{
	wire.CodeInvalidParams: http.StatusBadRequest, wire.CodeNotFound: http.StatusNotFound, wire.CodeConflict: http.StatusConflict,
	wire.CodeForbidden: http.StatusForbidden, wire.CodeUnauthorized: http.StatusUnauthorized,
}

// refusalOf is what is answered for an error. One that does not say that nothing happened is of an unknown outcome.
func refusalOf(err error) (code int, said Refusal) {
	code, said.Error = http.StatusServiceUnavailable, sentence(err)
	if bad, ok := errors.AsType[*badQuestion](err); ok {
		return cmp.Or(bad.code, http.StatusBadRequest), said
	}
	if refused, ok := errors.AsType[*refusedSwitch](err); ok {
		said.State, said.Checks = refused.state, refused.checks
		return http.StatusConflict, said
	}
	if _, half := errors.AsType[*halfDone](err); half {
		return http.StatusConflict, said
	}
	if _, unknown := errors.AsType[*client.UnknownOutcomeError](err); unknown {
		said.Outcome = wire.OutcomeUnknown
		return code, said
	}
	if closed, ok := errors.AsType[*client.DialError](err); ok && closed.Reason != "" { // such as that the node is going away
		said.Error = closed.Reason
		return code, said
	}
	if refused, ok := errors.AsType[*wire.Error](err); ok {
		said.Error = refused.Message
		if is := refused.Data; is != nil && is.Status != "" {
			said.Error += fmt.Sprintf("; it is %s, attempt %d", is.Status, is.Attempt)
		}
		return cmp.Or(statusOf[refused.Code], code), said
	}
	if _, not := errors.AsType[*notDone](err); !not && nonce.OutcomeOf(err) == nonce.Unknown {
		said.Outcome = wire.OutcomeUnknown
	}
	return code, said
}

func answerError(w http.ResponseWriter, err error) {
	code, said := refusalOf(err)
	answerJSON(w, code, said)
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone is told nothing
}

// Ask asks a gateway by the admin API: send sends a request, whose body is JSON, and decodes the answer.
func (o Operation[Q, R]) Ask(q Q, send func(method, path string, body io.Reader, answer any) error) (said R, err error) {
	text, err := json.Marshal(q)
	if err != nil {
		return said, err
	}
	path, body := o.Path, bytes.NewReader(text)
	if o.Method == http.MethodGet {
		var given map[string]string
		if err := json.Unmarshal(text, &given); err != nil {
			return said, err
		}
		values := url.Values{}
		for name, value := range given {
			values.Set(name, value)
		}
		if path, body = o.Path, bytes.NewReader(nil); len(values) > 0 {
			path += "?" + values.Encode()
		}
	}
	err = send(o.Method, path, body, &said)
	return said, err
}

// sentence is an error on one line; drivers spread some over several.
func sentence(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
