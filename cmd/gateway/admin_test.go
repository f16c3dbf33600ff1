package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"noncegate/client"
	"noncegate/internal/access/audit"
	"noncegate/internal/admin"
	"noncegate/test/lab/expect"
)

// sharded is a gateway of this process, named a, with the four shards of a SQLite file.
func sharded(t *testing.T) *app { return begun(t, slog.New(slog.DiscardHandler)) }

// begun is a gateway like that, with more settings.
func begun(t *testing.T, log *slog.Logger, more ...string) *app {
	t.Helper()
	args := []string{"serve", "--node-id=a", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=sqlite:" + filepath.Join(t.TempDir(), "nonces.db")}
	o := runArgs(t, append(args, more...)...)
	if o.cfg == nil {
		t.Fatal(o.stderr)
	}
	a, err := start(t.Context(), o.cfg, log)
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
	said               string // of "error"; "": it is none, "*": anything
}

// ask asks as somebody on this host does, with the token if it is not "".
func (c asked) ask(t *testing.T, a *app, token string) (body string) {
	t.Helper()
	r := httptest.NewRequest(c.method, "http://127.0.0.1"+admin.Prefix+c.path, strings.NewReader(c.body))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	a.operators.Handler().ServeHTTP(w, r)
	var said admin.Refusal
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != c.code || c.said != "*" && said.Error != c.said {
		t.Errorf("%s %s %.60s: %d %q, %v, want %d %q", c.method, c.path, c.body, w.Code, said.Error, err, c.code, c.said)
	}
	return w.Body.String()
}

// What is not understood changes nothing, and is asked of nobody: a misspelled filter would list everything, a member that
// is not known would be taken for one that is obeyed.
func TestAQuestionThatIsNotUnderstoodIsRefused(t *testing.T) {
	a := sharded(t)
	long := strings.Repeat(" ", 4096)
	for _, c := range []asked{
		{"POST", "shard/move", `{"shard":"x","node":"a"}`, 400, `shard: must be a whole number`},
		{"POST", "shard/move", `{"shard":4,"node":"a"}`, 404, "shard: 4 is none of the shards of this database, which are 0 to 3"},
		{"POST", "shard/move", `{"shard":-1,"node":""}`, 404, "shard: -1 is none of the shards of this database, which are 0 to 3"},
		{"POST", "shard/move", `{"shard":1,"node":"b"}`, 409, `node: "b" is no live node of mode worker-queue; there are a`},
		{"POST", "shard/move", `{"node":"a"}`, 400, `shard: is missing; it must be the number of a shard`},
		{"POST", "shard/move", `{"shard":1,"node":null}`, 400, `node: is missing; it must be the id of a node, or "" for none`},
		{"POST", "shard/move", `{"shard":1,"node":7}`, 400, "node: must be a string"},
		{"POST", "shard/move", `{"shard":1,"node":"a","force":true}`, 400, "force: unknown name"},
		{"POST", "shard/move", `{"shard":1,"node":"a","node":""}`, 400, "node: given twice"},
		{"POST", "shard/move", `["a"]`, 400, "the body: must be an object"},
		{"POST", "shard/move", ``, 400, "the body: must be valid JSON"},
		{"POST", "shard/move", `{"shard":1,"node":"a"` + long + "}", 400, "the body must be at most 4096 bytes"},
		{"POST", "shard/move", `{"shard":1,"node":"a","reason":"` + long[:257] + `"}`, 400, "reason: must be at most 256 bytes, and has 257"},
		{"POST", "shard/move?node=a", `{"node":"a"}`, 400, "the URL must have no parameters; what is asked for is said in the body"},
		{"GET", "shards?mine=true", "", 400, "mine: unknown name"},
		{"POST", "engine/switch", `{"to":"performance","dry_run":true}`, 400, "dry_run: unknown name"},
		{"POST", "engine/switch", `{"to":"performance","dryRun":true,"dryRun":false}`, 400, "dryRun: given twice"},
		{"POST", "engine/switch", `{"to":"performance","dryRun":1}`, 400, "dryRun: must be true or false"},
		{"POST", "engine/switch", `{"to":"up"}`, 400, `to: "up" is neither performance nor reliable`},
		{"POST", "engine/switch", `{}`, 400, `to: "" is neither performance nor reliable`},
		{"POST", "engine/switch", `{"to":"reliable"} {"to":"performance"}`, 400, "the body: must be valid JSON"},
		{"POST", "engine/switch", `{"to":"performance","dryRun":true}` + "\n", 409, "*"},
		{"POST", "engine/reconcile", `{"dry":true}`, 400, "dry: unknown name"},
		{"POST", "engine/replay", `{}`, 409, "*"},
		{"GET", "signers?filter=gaps", "", 400, `filter: "gaps" must be all, gap, unknown, overdue, repeated or stopped`},
		{"GET", "signers?filter=GAP", "", 400, `filter: "GAP" must be all, gap, unknown, overdue, repeated or stopped`},
		{"GET", "signers?filter=gap&filter=all", "", 400, `filter: given twice`},
		{"GET", "signers?limit=0", "", 400, `limit: must be 1 to 1000`},
		{"GET", "signers?limit=1001", "", 400, `limit: must be 1 to 1000`},
		{"GET", "signers?limit=ten", "", 400, `limit: must be 1 to 1000`},
		{"GET", "signers?limit=99999999999999999999", "", 400, `limit: must be 1 to 1000`},
		{"GET", "signers?state=gap", "", 400, `state: unknown name`},
		{"GET", "signers?filter=%zz", "", 400, `the parameters cannot be read`},
		{"GET", "signers?filter=gap;limit=5", "", 400, `the parameters cannot be read`},
	} {
		c.ask(t, a, "")
	}
	for _, o := range a.service.Shards() {
		if o.Pinned != "" {
			t.Errorf("shard %d is pinned to %s", o.Shard, o.Pinned)
		}
	}
	for _, node := range []string{"a", ""} {
		asked{"POST", "shard/move", `{"shard":1,"node":"` + node + `"}`, 200, ""}.ask(t, a, "")
		if o := a.service.Shards()[1]; o.Pinned != node {
			t.Errorf("after a move to %q: %+v", node, o)
		}
	}
}

// Whoever may do nothing can ask for acts as often as he likes, and may not keep others' lines out of the audit.
func TestWhatDoesNotHappenDoesNotFillTheAudit(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "nonces.db")
	stranger := strings.TrimSpace(runArgs(t, "key", "create", "stranger", "--store="+store).stdout)
	rights := settings(t, "principals:\n  stranger: [{rights: [read], signers: [\"none\"]}]\n")
	closed := begun(t, slog.New(slog.DiscardHandler), "--store="+store, "--rights="+rights)
	open := sharded(t)
	for name, c := range map[string]struct {
		a *app
		asked
		token string
	}{
		"no JSON":       {open, asked{"POST", "shard/move?", "", 400, "*"}, ""},
		"not possible":  {open, asked{"POST", "engine/replay", "{}", 409, "*"}, ""},
		"without right": {closed, asked{"POST", "engine/replay", "no JSON", 403, "the right admin on all signers is missing; nothing happened"}, stranger},
		"without name":  {closed, asked{"POST", "signer/floor", "no JSON", 403, "an act needs a principal: use an API key (--token); the admin key has no principal"}, ""},
	} {
		log, err := audit.New(slog.DiscardHandler, audit.Config{Level: audit.Refusals, Queue: 100, LoginsRefused: 1, CallsRefused: 1e-9})
		expect.Must(t, err)
		with := c.a.adminConfig(c.a.ready)
		with.Audit = log
		c.a.operators = admin.New(with)
		for range 5 {
			c.ask(t, c.a, c.token)
		}
		expect.Must(t, log.Stop(t.Context()))
		if n := log.Dropped(); n != 4 {
			t.Errorf("%s: of 5 lines %d were left out, want 4", name, n)
		}
	}
}

// What an operator says of a signer is a call of the clients' side: the rules of allocations hold.
func TestWhatAnOperatorSaysOfASignerIsDone(t *testing.T) {
	a := sharded(t)
	c, err := client.Dial(t.Context(), "ws://"+a.listener.Addr().String()+"/ws", client.Config{})
	expect.Must(t, err)
	defer c.Close()
	_, err = c.Allocate(t.Context(), client.AllocateRequest{Signer: "s", Count: 5})
	expect.Must(t, err)
	const hash = "0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"
	for _, c := range []struct {
		asked
		answer string // contained
	}{
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":0,"attempt":1}`, 409, "*"}, "Release it instead, or give --tx-hash; if it was sent, say --yes"},
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":0,"attempt":1,"sure":true}`, 200, ""}, `{"signer":"s","nonce":0,"attempt":1,"status":"CONSUMED"}`},
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":1,"attempt":1,"txHash":"` + hash + `"}`, 200, ""}, `"status":"CONSUMED"`},
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":1,"attempt":1}`, 200, ""}, `"status":"CONSUMED"`}, // its hash shows that it was sent
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":9,"attempt":1,"sure":true}`, 404, "not_found: this nonce was never handed out"}, ""},
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":9,"attempt":1}`, 404, "nothing is known of nonce 9 of s"}, ""},
		{asked{"POST", "signer/release", `{"signer":"s","nonce":9,"attempt":1}`, 404, "not_found: this nonce was never handed out"}, ""},
		{asked{"POST", "signer/release", `{"signer":"s","nonce":2}`, 400, "attempt: must be that of the nonce as it was seen, 1 or higher"}, ""},
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":2,"attempt":2}`, 409, "conflict: nonce 2 of s is HELD, attempt 1 now"}, ""},
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":2,"sure":true}`, 400, "attempt: must be that of the nonce as it was seen, 1 or higher"}, ""},
		{asked{"POST", "signer/release", `{"signer":"s","nonce":2,"attempt":2}`, 409, "*"}, "conflict: the attempt is not the nonce's current one; it is HELD, attempt 1"},
		{asked{"POST", "signer/release", `{"signer":"s","nonce":2,"attempt":1,"reason":"lost"}`, 200, ""}, `{"signer":"s","nonce":2,"attempt":1,"status":"RELEASED"}`},
		{asked{"POST", "signer/consume", `{"signer":"s","nonce":2,"attempt":1}`, 409, "*"}, "It is RELEASED, and the next client is given it"},
		{asked{"GET", "signer?signer=s", "", 200, ""}, `"nonce":2,"status":"RELEASED","attempt":1,"reason":"lost"`},
		{asked{"GET", "signer?signer=s&limit=1", "", 200, ""}, `"holds":[{"nonce":3,"status":"HELD"`},
		{asked{"GET", "signer?signer=s&limit=1&nonce=2", "", 200, ""}, `"last":[{"nonce":2,"status":"RELEASED"`},
		{asked{"GET", "signer?signer=s&nonce=-1", "", 400, "nonce: must be a whole number, 0 or higher"}, ""},
		{asked{"GET", "signer?signer=nobody", "", 200, ""}, `{"known":false,"holders":true,"status":{"signer":"nobody",`},
		{asked{"POST", "signer/floor", `{"signer":"s","floor":9}`, 200, ""}, `{"signer":"s","floor":9,"next":9}`},
		{asked{"POST", "signer/release", `{"signer":"s","nonce":3,"attempt":1}`, 200, ""}, `"attempt":1,"status":"CONSUMED"}`}, // below the floor
		{asked{"POST", "signer/floor", `{"signer":"","floor":9}`, 400, "*"}, "invalid_params: signer: "},
	} {
		if body := c.ask(t, a, ""); !strings.Contains(body, c.answer) {
			t.Errorf("%s %s: %s, want %s", c.path, c.body, body, c.answer)
		}
	}
}

// Where clients must say who they are, whoever changes something is named, and has the right; the audit has the reason.
func TestAnActNeedsAPrincipalAndItsRight(t *testing.T) {
	var log expect.Buffer
	rights := settings(t, `principals:
  ops: [{rights: [read, mark-any, admin], signers: ["*"]}]
  relayer: [{rights: [allocate, mark, read], signers: ["s*"]}]
`)
	keys := map[string]string{"": "", "admin key": "0123456789abcdef", "wrong": "0123456789abcdeX"}
	store := "sqlite:" + filepath.Join(t.TempDir(), "nonces.db")
	for _, who := range []string{"ops", "relayer"} {
		keys[who] = strings.TrimSpace(runArgs(t, "key", "create", who, "--store="+store).stdout)
	}
	a := begun(t, slog.New(slog.NewTextHandler(&log, nil)), "--store="+store, "--rights="+rights, "--admin-key=0123456789abcdef")
	const nobody, missing = "an act needs a principal: use an API key (--token); the admin key has no principal", "the right admin on all signers is missing; nothing happened"
	floor := `{"signer":"s","floor":3,"reason":"restored from a backup"}`
	for _, c := range []struct {
		who string
		asked
	}{
		{"admin key", asked{"POST", "signer/floor", floor, 403, nobody}},
		{"admin key", asked{"POST", "shard/move", `{"shard":1,"node":""}`, 403, nobody}},
		{"wrong", asked{"POST", "signer/floor", floor, 401, "the credential is not valid"}},
		{"relayer", asked{"POST", "signer/floor", floor, 403, "forbidden: the right admin on this signer is missing; nothing happened"}},
		{"relayer", asked{"POST", "shard/move", `{"shard":1,"node":""}`, 403, missing}},
		{"relayer", asked{"POST", "engine/replay", `{}`, 403, missing}},
		{"relayer", asked{"GET", "shards", "", 403, "the right read on all signers is missing; nothing happened"}},
		{"relayer", asked{"GET", "signer?signer=s", "", 200, ""}},
		{"relayer", asked{"GET", "signer?signer=other", "", 403, "forbidden: the right read on this signer is missing; nothing happened"}},
		{"ops", asked{"POST", "signer/floor", floor, 200, ""}},
		{"ops", asked{"POST", "shard/move", `{"shard":1,"node":"","reason":"tidy"}`, 200, ""}},
		{"ops", asked{"GET", "shards", "", 200, ""}},
		{"admin key", asked{"GET", "signer?signer=s", "", 200, ""}},
		{"admin key", asked{"GET", "engine", "", 200, ""}},
	} {
		c.ask(t, a, keys[c.who])
	}
	expect.Must(t, a.stop(context.WithoutCancel(t.Context()))) // the audit is written
	for _, line := range []string{
		`principal=ops credential=key:[^ ]+ remote=192.0.2.1:1234 method="POST /admin/v1/signer/floor" signer=s nonce=3 outcome=ok before=0 after=3 why="restored from a backup"`,
		`principal=ops credential=key:[^ ]+ remote=192.0.2.1:1234 method="POST /admin/v1/shard/move" outcome=ok before="not pinned" after="not pinned" why=tidy`,
		`principal=ops credential=key:[^ ]+ remote=192.0.2.1:1234 method=nonce_setFloor signer=s nonce=3 outcome=ok`,
		`principal=relayer credential=key:[^ ]+ remote=192.0.2.1:1234 method="POST /admin/v1/signer/floor" signer=s nonce=3 outcome=forbidden`,
		`credential=admin-key remote=192.0.2.1:1234 method="POST /admin/v1/signer/floor" outcome=forbidden`,
	} {
		if !regexp.MustCompile(line).MatchString(log.String()) {
			t.Errorf("no line has %s:\n%s", line, log.String())
		}
	}
}
