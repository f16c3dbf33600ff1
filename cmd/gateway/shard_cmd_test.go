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
	"noncegate/nonce/service"
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

// asked is a request to the shards of a gateway, and what it must be answered.
type asked struct {
	method, path, body string
	code               int
	said               string // of "error"
}

func (c asked) ask(t *testing.T, a *app, change ...func(*http.Request)) {
	t.Helper()
	mux := http.NewServeMux()
	a.shardHandlers(mux)
	r := httptest.NewRequest(c.method, "http://127.0.0.1"+c.path, strings.NewReader(c.body))
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	var said engineRefusal
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != c.code || said.Error != c.said {
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
		c.ask(t, a)
	}
	asked{"POST", "/shards/1/move", `{"node":"a"}`, 403, "this is not for browsers"}.ask(t, a, func(r *http.Request) { r.Header.Set("Origin", "https://page.example") })
	for _, o := range a.shards(t) {
		if o.Pinned != "" {
			t.Errorf("shard %d is pinned to %s", o.Shard, o.Pinned)
		}
	}
	asked{"POST", "/shards/1/move", `{"node":"a"}` + "\n", 200, ""}.ask(t, a)
	if o := a.shards(t)[1]; o.Pinned != "a" {
		t.Errorf("after a move: %+v", o)
	}
	asked{"POST", "/shards/1/move", `{"node":""}`, 200, ""}.ask(t, a)
	if o := a.shards(t)[1]; o.Pinned != "" {
		t.Errorf("after the pin was taken away: %+v", o)
	}
}

func (a *app) shards(t *testing.T) []service.Ownership {
	t.Helper()
	return a.service.Shards()
}

func TestAMoveThatTheStoreDidNotMakeSaysWhatHappened(t *testing.T) {
	cause := errors.New("it is away")
	for outcome, want := range map[nonce.Outcome]string{
		nonce.NotSent: "the shard was not moved",
		nonce.Aborted: "the shard was not moved",
		nonce.Unknown: "whether the shard was moved is unknown, and to move it again does no harm",
	} {
		code, said := moveRefusal(&nonce.StoreError{Outcome: outcome, Err: cause})
		if code != http.StatusServiceUnavailable || !strings.Contains(said, "it is away; ") || !strings.HasSuffix(said, "; "+want) {
			t.Errorf("%v: %d %q", outcome, code, said)
		}
	}
}
