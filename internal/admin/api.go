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
	// right is what a caller needs on all signers; 0: the clients' side, which is asked by inside, decides.
	right access.Right
	run   func(*Server, context.Context, Q) (R, error)
}

// The operations.
var (
	ListNodes       = Operation[None, NodesView]{"GET", "/admin/v1/nodes", access.RightRead, (*Server).listNodes}
	ListSigners     = Operation[SignersQuestion, SignerList]{"GET", "/admin/v1/signers", access.RightRead, (*Server).listSigners}
	ShowSigner      = Operation[SignerQuestion, SignerView]{"GET", "/admin/v1/signer", 0, (*Server).showSigner}
	RaiseFloor      = Operation[FloorOrder, wire.FloorResult]{"POST", "/admin/v1/signer/floor", 0, (*Server).raiseFloor}
	ReleaseNonce    = Operation[ReleaseOrder, MarkedNonce]{"POST", "/admin/v1/signer/release", 0, (*Server).releaseNonce}
	ConsumeNonce    = Operation[ConsumeOrder, MarkedNonce]{"POST", "/admin/v1/signer/consume", 0, (*Server).consumeNonce}
	ListShards      = Operation[None, ShardList]{"GET", "/admin/v1/shards", access.RightRead, (*Server).listShards}
	MoveShard       = Operation[MoveOrder, MovedShard]{"POST", "/admin/v1/shard/move", access.RightAdmin, (*Server).moveShard}
	ShowEngine      = Operation[None, EngineStatus]{"GET", "/admin/v1/engine", access.RightRead, (*Server).engineStatus}
	SwitchEngine    = Operation[SwitchOrder, SwitchReport]{"POST", "/admin/v1/engine/switch", access.RightAdmin, (*Server).switchEngine}
	ReconcileEngine = Operation[Because, ReconcileReport]{"POST", "/admin/v1/engine/reconcile", access.RightAdmin, (*Server).reconcile}
	ReplayEngine    = Operation[Because, ReplayReport]{"POST", "/admin/v1/engine/replay", access.RightAdmin, (*Server).replay}
)

// operations are all of them.
var operations = []interface {
	serve(a *Server, mux *http.ServeMux)
}{
	ListNodes, ListSigners, ShowSigner, RaiseFloor, ReleaseNonce, ConsumeNonce,
	ListShards, MoveShard, ShowEngine, SwitchEngine, ReconcileEngine, ReplayEngine,
}

// None is a question without parameters.
type None struct{}

// Because is what every act has: why it is done, for the audit.
type Because struct {
	Reason string `json:"reason,omitempty"`
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
	if err = errNotEnded; o.Method == http.MethodPost {
		defer func() { a.auditAct(by, r, q, err) }()
	}
	if refused := a.may(by, o.Method, o.right); refused != nil {
		return said, refused
	}
	var bad error
	if q, bad = readQuestion[Q](r); bad != nil {
		return said, bad
	}
	said, failed := o.run(a, r.Context(), q)
	if failed != nil && o.Method == http.MethodGet {
		failed = &notDone{failed}
	}
	return said, failed
}

// everySigner is the pattern that one needs a right on to have it on all signers.
const everySigner = "*"

// may reports why a caller may not do something. What changes something needs a principal, where clients have one.
func (a *Server) may(by caller, method string, right access.Right) error {
	switch {
	case method != http.MethodGet && by.session != nil && by.session.Principal == "":
		return &badQuestion{"who does this must be known: show an API key (--token); the admin key names nobody", http.StatusForbidden}
	case right != 0 && !by.session.May(right, everySigner):
		return &badQuestion{fmt.Sprintf("the right %s on all signers is missing; nothing happened", right), http.StatusForbidden}
	}
	return nil
}

// auditAct writes who wanted something done, why, and what came of it.
func (a *Server) auditAct(by caller, r *http.Request, q any, err error) {
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

// maxReason bounds the reason of an act, in bytes.
const maxReason = 256

// maxQuestion bounds the body of a request, in bytes.
const maxQuestion = 4096

// readQuestion reads what is asked. What is not known is refused: who misspelled dryRun must not find that the engine
// was switched. The error is a badQuestion.
func readQuestion[Q any](r *http.Request) (q Q, err error) {
	read := readBody
	if r.Method == http.MethodGet {
		read = readParameters
	}
	text, err := read(r)
	if err == nil {
		err = wire.UnmarshalKnown(text, &q, "the body")
	}
	if why, ok := any(q).(interface{ reason() string }); ok && err == nil && len(why.reason()) > maxReason {
		err = fmt.Errorf("reason: must be at most %d bytes", maxReason)
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
func readBody(r *http.Request) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // one that cannot be read is none
	switch {
	case kind != "application/json":
		return nil, &badQuestion{"the Content-Type must be application/json", http.StatusUnsupportedMediaType}
	case r.URL.RawQuery != "":
		return nil, errors.New("the URL must have no parameters; what is asked for is said in the body")
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxQuestion))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, fmt.Errorf("the body must be at most %d bytes", maxQuestion)
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
