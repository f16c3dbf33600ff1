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
)

// sharded is a gateway of this process, named a, with the four shards of a SQLite file.
func sharded(t *testing.T) *app {
	t.Helper()
	cfg := runArgs(t, "serve", "--node-id=a", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=sqlite:"+filepath.Join(t.TempDir(), "nonces.db")).cfg
	a, err := start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
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

// fakeShards is a private side that answers as it is told, and says what it was asked.
func fakeShards(t *testing.T, code int, answer string) (url string, asked *string) {
	t.Helper()
	asked = new(string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body strings.Builder
		if err := json.NewEncoder(&body).Encode(readJSON(t, r)); err != nil {
			t.Error(err)
		}
		*asked = r.Method + " " + r.URL.Path + " " + strings.TrimSpace(body.String())
		w.WriteHeader(code)
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

func readJSON(t *testing.T, r *http.Request) (body any) {
	t.Helper()
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
	}
	return body
}

const threeShards = `{"node":"a","shards":[` +
	`{"id":0,"owner":"a","url":"ws://a/ws","token":3,"mine":true,"preferred":"a","pinned":""},` +
	`{"id":1,"owner":"gateway-2","url":"ws://b/ws","token":12,"mine":false,"preferred":"a","pinned":"a"},` +
	`{"id":2,"owner":"","url":"","token":4,"mine":false,"preferred":"","pinned":""}]}`

func TestShardListPrintsATableOrJSON(t *testing.T) {
	url, asked := fakeShards(t, 200, threeShards)
	want := strings.Join([]string{
		`SHARD  OWNER      TOKEN  HEIR  PINNED  URL`,
		`0      a          3      a     -       ws://a/ws`,
		`1      gateway-2  12     a     a       ws://b/ws`,
		`2      -          4      -     -       -`,
	}, "\n") + "\n"
	if o := runArgs(t, "shard", "list", "--admin", url); o.code != exitOK || o.stdout != want || o.stderr != "" {
		t.Errorf("exit %d, stderr %q, got\n%s\nwant\n%s", o.code, o.stderr, o.stdout, want)
	}
	if *asked != "GET /shards null" {
		t.Errorf("it asked %s", *asked)
	}
	if o := runArgs(t, "shard", "list", "--json", "--admin", url); o.code != exitOK || o.stdout != threeShards+"\n" {
		t.Errorf("exit %d, stderr %q, stdout %s", o.code, o.stderr, o.stdout)
	}
}

func TestShardMoveSaysWhatBecomesOfIt(t *testing.T) {
	for _, c := range []struct{ args, shard, asked, want string }{
		{"3 b", `{"id":3,"owner":"a","preferred":"b","pinned":"b"}`, `{"node":"b"}`, "shard 3 is pinned to b; a has it still, and gives it to b"},
		{"3 b", `{"id":3,"owner":"a","preferred":"b","pinned":"b","mine":true,"stopped":2}`, `{"node":"b"}`,
			"shard 3 is pinned to b; a keeps it until the signers of it that are stopped, 2, have a safe floor, and gives it to b then"},
		{"3 b", `{"id":3,"owner":"b","preferred":"b","pinned":"b"}`, `{"node":"b"}`, "shard 3 is pinned to b, and b has it"},
		{"3 b", `{"id":3,"owner":"","preferred":"b","pinned":"b"}`, `{"node":"b"}`, "shard 3 is pinned to b; b takes it"},
		{"3 --unpin", `{"id":3,"owner":"b","preferred":"a","pinned":""}`, `{"node":""}`, "shard 3 is not pinned; b has it still, and gives it to a"},
		{"3 --unpin", `{"id":3,"owner":"","preferred":"","pinned":""}`, `{"node":""}`, "shard 3 is not pinned, and no node should have it"},
	} {
		url, asked := fakeShards(t, 200, `{"node":"a","shard":`+c.shard+`}`)
		o := runArgs(t, append([]string{"shard", "move", "--admin", url}, strings.Fields(c.args)...)...)
		if o.code != exitOK || o.stdout != c.want+"\n" || *asked != "POST /shards/3/move "+c.asked {
			t.Errorf("%s: exit %d, stderr %q, it asked %s and said %s, want %s", c.args, o.code, o.stderr, *asked, o.stdout, c.want)
		}
	}
	url, _ := fakeShards(t, 409, `{"error":"node: \"b\" is no live node of mode worker-queue; there are a"}`)
	if o := runArgs(t, "shard", "move", "3", "b", "--admin", url); o.code != exitFailure || o.stderr != "gateway: node: \"b\" is no live node of mode worker-queue; there are a\n" {
		t.Errorf("refused: exit %d, stderr %q", o.code, o.stderr)
	}
}

func TestAMoveThatSaysTooLittleOrTooMuchIsNotSent(t *testing.T) {
	for args, want := range map[string]string{
		"shard move 3":              "gateway: shard move: say the NODE that is to have the shard, or --unpin\n",
		"shard move 3 b --unpin":    "gateway: shard move: NODE and --unpin contradict each other: give one of them\n",
		"shard move three b":        "gateway: <shard>: \"three\" is not a whole number\n",
		"shard move -- -3 b":        "gateway: shard move: -3 is no shard: they are numbered from 0\n",
		"shard list --admin=ftp://": "gateway: --admin \"ftp://\" must be a URL that starts with http:// or https://\n",
	} {
		if o := runArgs(t, strings.Fields(args)...); o.code != exitUsage || o.stderr != want {
			t.Errorf("%s: exit %d, stderr %q, want %q", args, o.code, o.stderr, want)
		}
	}
}

func TestAnAnswerThatCannotBeReadDoesNotSayWhatHappened(t *testing.T) {
	for answer, why := range map[string]string{
		"":             "EOF",
		"<html>":       "invalid character '<' looking for beginning of value",
		`{"shards":[{`: "unexpected EOF",
	} {
		url, _ := fakeShards(t, 200, answer)
		want := "gateway: the gateway at " + url + " gave no answer that can be read: " + why
		if o := runArgs(t, "shard", "list", "--admin", url); o.code != exitFailure || o.stderr != want+"\n" || o.stdout != "" {
			t.Errorf("list of %q: exit %d, stdout %q, stderr %q", answer, o.code, o.stdout, o.stderr)
		}
		want += "; whether it did what it was asked is unknown\n"
		if o := runArgs(t, "shard", "move", "1", "--unpin", "--admin", url); o.code != exitFailure || o.stderr != want || o.stdout != "" {
			t.Errorf("move of %q: exit %d, stdout %q, stderr %q", answer, o.code, o.stdout, o.stderr)
		}
	}
}

func TestShardMovePrintsJSON(t *testing.T) {
	const answer = `{"node":"a","shard":{"id":1,"owner":"a","url":"ws://a/ws","token":3,"mine":true,"preferred":"b","pinned":"b"}}`
	url, _ := fakeShards(t, 200, answer)
	if o := runArgs(t, "shard", "move", "1", "b", "--json", "--admin", url+"/"); o.code != exitOK || o.stdout != answer+"\n" {
		t.Errorf("exit %d, stderr %q, stdout %s", o.code, o.stderr, o.stdout)
	}
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
