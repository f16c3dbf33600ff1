package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/nonce"
	"noncegate/test/lab/expect"
)

// sharded is a gateway of this process, named a, with the four shards of a SQLite file.
func sharded(t *testing.T) *app {
	t.Helper()
	cfg := runArgs(t, "serve", "--node-id=a", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=sqlite:"+filepath.Join(t.TempDir(), "nonces.db")).cfg
	a, err := start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	t.Cleanup(func() {
		expect.Check(t, a.stop(context.WithoutCancel(t.Context())))
	})
	return a
}

// asked is a request to the private side of a gateway, and what it must be answered.
type asked struct {
	method, path, body string
	code               int
	said               string // of "error"; "*": anything
}

func (c asked) ask(t *testing.T, handlers func(*http.ServeMux), change ...func(*http.Request)) {
	t.Helper()
	mux := http.NewServeMux()
	handlers(mux)
	r := httptest.NewRequest(c.method, "http://127.0.0.1"+c.path, strings.NewReader(c.body))
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	var said engineRefusal
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != c.code || c.said != "*" && said.Error != c.said {
		t.Errorf("%s %s %.60s: %d %q, %v, want %d %q", c.method, c.path, c.body, w.Code, said.Error, err, c.code, c.said)
	}
}

func TestAMoveThatIsNotUnderstoodIsRefusedAndChangesNothing(t *testing.T) {
	a := sharded(t)
	for _, c := range []asked{
		{"POST", "/shards/x/move", `{"node":"a"}`, 400, `shard: "x" must be the number of a shard`},
		{"POST", "/shards/1.5/move", `{"node":"a"}`, 400, `shard: "1.5" must be the number of a shard`},
		{"POST", "/shards/4/move", `{"node":"a"}`, 404, "shard: 4 is none of the shards of this database, which are 0 to 3"},
		{"POST", "/shards/-1/move", `{"node":""}`, 404, "shard: -1 is none of the shards of this database, which are 0 to 3"},
		{"POST", "/shards/1/move", `{"node":"b"}`, 409, `node: "b" is no live node of mode worker-queue; there are a`},
		{"POST", "/shards/1/move", `{}`, 400, `node: is missing; it must be the id of a node, or "" for none`},
		{"POST", "/shards/1/move", `{"node":null}`, 400, `node: is missing; it must be the id of a node, or "" for none`},
		{"POST", "/shards/1/move", `{"node":7}`, 400, "node: must be a string"},
		{"POST", "/shards/1/move", `{"node":"a","force":true}`, 400, "force: unknown name"},
		{"POST", "/shards/1/move", `{"node":"a","node":""}`, 400, "node: given twice"},
		{"POST", "/shards/1/move", `["a"]`, 400, "the body: must be an object"},
		{"POST", "/shards/1/move", ``, 400, "the body: must be valid JSON"},
		{"POST", "/shards/1/move", `{"node":"a"` + strings.Repeat(" ", maxQuestion) + "}", 400, "the body must be at most 4096 bytes"},
		{"POST", "/shards/1/move?node=a", `{"node":"a"}`, 400, "the URL must have no parameters; what is asked for is said in the body"},
		{"GET", "/shards?mine=true", "", 400, "the URL must have no parameters"},
	} {
		c.ask(t, a.shardHandlers)
	}
	page := func(r *http.Request) { r.Header.Set("Origin", "https://page.example") }
	asked{"POST", "/shards/1/move", `{"node":"a"}`, 403, "this is not for browsers"}.ask(t, a.shardHandlers, page)
	for _, o := range a.service.Shards() {
		if o.Pinned != "" {
			t.Errorf("shard %d is pinned to %s", o.Shard, o.Pinned)
		}
	}
	asked{"POST", "/shards/1/move", `{"node":"a"}` + "\n", 200, ""}.ask(t, a.shardHandlers)
	if o := a.service.Shards()[1]; o.Pinned != "a" {
		t.Errorf("after a move: %+v", o)
	}
	asked{"POST", "/shards/1/move", `{"node":""}`, 200, ""}.ask(t, a.shardHandlers)
	if o := a.service.Shards()[1]; o.Pinned != "" {
		t.Errorf("after the pin was taken away: %+v", o)
	}
}

func TestAMoveThatTheStoreDidNotMakeSaysWhatHappened(t *testing.T) {
	cause := errors.New("it is away")
	for outcome, want := range map[nonce.Outcome]string{
		nonce.NotSent: "the shard was not moved",
		nonce.Aborted: "the shard was not moved",
		nonce.Unknown: "whether the shard was moved is unknown, and to move it again does no harm",
	} {
		w := httptest.NewRecorder()
		answering(func(*http.Request) (any, error) {
			return nil, moveError(&nonce.StoreError{Outcome: outcome, Err: cause})
		})(w, nil)
		if said := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(said, "it is away; "+want+`"`) {
			t.Errorf("%v: %d %q", outcome, w.Code, said)
		}
	}
}

// A member that is not known would be taken for one that is obeyed: a dry_run switched.
func TestAnOrderThatIsNotUnderstoodIsRefused(t *testing.T) {
	a := new(app) // without an engine: what is understood is refused with 409
	a.cfg = &Config{}
	a.cfg.Store = "sqlite:x.db"
	long := `{"to":"reliable"` + strings.Repeat(" ", maxQuestion) + "}"
	for _, c := range []asked{
		{"POST", "/engine/switch", `{"to":"performance","dry_run":true}`, 400, "dry_run: unknown name"},
		{"POST", "/engine/switch", `{"to":"performance","dryrun":true}`, 400, "dryrun: unknown name"},
		{"POST", "/engine/switch", `{"to":"performance","dryRun":true,"dryRun":false}`, 400, "dryRun: given twice"},
		{"POST", "/engine/switch", `{"to":"performance","dryRun":1}`, 400, "dryRun: must be true or false"},
		{"POST", "/engine/switch", `{"to":1}`, 400, "to: must be a string"},
		{"POST", "/engine/switch", `{"to":"up"}`, 400, `to: "up" is neither performance nor reliable`},
		{"POST", "/engine/switch", `{}`, 400, `to: "" is neither performance nor reliable`},
		{"POST", "/engine/switch", `{"to":"reliable"} {"to":"performance"}`, 400, "the body: must be valid JSON"},
		{"POST", "/engine/switch", `{"to":"reliable"}x`, 400, "the body: must be valid JSON"},
		{"POST", "/engine/switch", ``, 400, "the body: must be valid JSON"},
		{"POST", "/engine/switch", `["reliable"]`, 400, "the body: must be an object"},
		{"POST", "/engine/switch", long, 400, "the body must be at most 4096 bytes"},
		{"POST", "/engine/switch?dryRun=true", `{"to":"reliable"}`, 400, "the URL must have no parameters; what is asked for is said in the body"},
		{"POST", "/engine/switch", `{"to":"performance","dryRun":true}` + "\n", 409, "*"},
		{"POST", "/engine/reconcile", `{"dryRun":true}`, 400, "dryRun: unknown name"},
		{"POST", "/engine/replay", `{"dead":true}`, 400, "dead: unknown name"},
		{"POST", "/engine/replay", `{}`, 409, "*"},
	} {
		c.ask(t, a.engineHandlers)
	}
}

// What is not understood is asked of nobody: a misspelled filter would list everything.
func TestAQuestionForSignersThatIsNotUnderstoodIsRefused(t *testing.T) {
	a := &app{cfg: new(Config)} // it has no service: who asks it has understood
	for query, want := range map[string]string{
		"filter=gaps":                `filter: "gaps" must be all, gap, unknown, overdue, repeated or stopped`,
		"filter=GAP":                 `filter: "GAP" must be all, gap, unknown, overdue, repeated or stopped`,
		"filter=gap&filter=all":      `filter: given twice`,
		"limit=0":                    `limit: must be 1 to 1000`,
		"limit=1001":                 `limit: must be 1 to 1000`,
		"limit=-1":                   `limit: must be 1 to 1000`,
		"limit=ten":                  `limit: must be 1 to 1000`,
		"limit=1e2":                  `limit: must be 1 to 1000`,
		"limit=99999999999999999999": `limit: must be 1 to 1000`,
		"state=gap":                  `"state": there are filter, after, limit and others`,
		"Filter=gap":                 `"Filter": there are filter, after, limit and others`,
		strings.Repeat("x", 100):     `"` + strings.Repeat("x", 40) + `": there are filter, after, limit and others`,
		"filter=%zz":                 `the parameters cannot be read`,
		"filter=gap;limit=5":         `the parameters cannot be read`,
	} {
		asked{http.MethodGet, "/signers?" + query, "", http.StatusBadRequest, want}.ask(t, a.signerHandlers)
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		h, w := http.NewServeMux(), httptest.NewRecorder()
		a.signerHandlers(h)
		if h.ServeHTTP(w, httptest.NewRequest(method, "/signers", nil)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}
