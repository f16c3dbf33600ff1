package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"noncegate/client"
	"noncegate/internal/access/apikey"
	"noncegate/internal/admin"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
)

// operators is a gateway with three principals, its keys by their names, and what it has logged.
type operators struct {
	*testing.T
	*app
	keys map[string]string
	log  expect.Buffer
}

func newOperators(t *testing.T, more ...string) *operators {
	o := &operators{T: t, keys: map[string]string{"": "", "admin key": "0123456789abcdef"}}
	rights := settings(t, `principals:
  ops: [{rights: [allocate, read, mark-any, mark, repair, admin, subscribe], signers: ["*"]}]
  reader: [{rights: [read], signers: ["*"]}]
  nothing: []
`)
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "nonces.db")
	for _, who := range []string{"ops", "reader", "nothing"} {
		o.keys[who] = strings.TrimSpace(runArgs(t, "key", "create", who, store).stdout)
	}
	o.app = begun(t, slog.New(slog.NewTextHandler(&o.log, nil)), append(more, store, "--rights="+rights, "--admin-key=0123456789abcdef",
		"--hold-ttl=10m")...)
	return o
}

// holds has ops hold so many nonces of a signer.
func (o *operators) holds(signer string, count int, hold time.Duration) {
	o.Helper()
	c, err := client.Dial(o.Context(), "ws://"+o.listener.Addr().String()+"/ws",
		client.Config{Header: http.Header{"Authorization": {"Bearer " + o.keys["ops"]}}})
	expect.Must(o, err)
	defer c.Close()
	_, err = c.Allocate(o.Context(), client.AllocateRequest{Signer: signer, Count: count, Hold: hold})
	expect.Must(o, err)
}

// session is a session of one of the keys.
func (o *operators) session(who string) (token string) {
	o.Helper()
	return o.tokenIn(asked{"POST", "session", `{}`, 200, ""}.ask(o.T, o.app, o.keys[who]))
}

func (o *operators) tokenIn(body string) string {
	var said struct{ Token, Ticket, Key, ID string }
	expect.Must(o, json.Unmarshal([]byte(body), &said))
	switch {
	case said.Token != "":
		return said.Token
	case said.Ticket != "":
		return said.Ticket
	case said.Key != "":
		return said.Key
	}
	return said.ID
}

// stored is what the store has, but for who owns what.
func (o *operators) stored() any {
	figures, err := o.store.Signers(o.Context(), nonce.SignersQuery{Filter: nonce.AllSigners, Limit: 100})
	expect.Must(o, err)
	owners, err := o.store.Owners(o.Context())
	expect.Must(o, err)
	var pins []string
	for _, shard := range owners.Shards {
		pins = append(pins, shard.Pinned)
	}
	for i := range figures {
		figures[i].Owner = "" // by leases, which begin and are renewed meanwhile
	}
	keys, err := o.store.(apikey.Store).Keys(o.Context(), 0)
	expect.Must(o, err)
	return []any{figures, pins, keys.Keys}
}

// Each act is refused to those who may not, says as a dry run what it would do and changes nothing, is refused when what was seen
// has changed, is done, and is in the audit with what it was before and after.
func TestActsOfOperators(t *testing.T) {
	o := newOperators(t)
	o.holds("s", 5, 9*time.Minute)
	// One who has let go of nothing: the key that is revoked below.
	spare := o.tokenIn(asked{"POST", "key/create", `{"principal":"reader","ttl":"1h","reason":"rota"}`, 200, ""}.ask(t, o.app, o.keys["ops"]))
	id, _, err := apikey.Parse(spare)
	expect.Must(t, err)
	version := func(body string, changed int64) string {
		return strings.ReplaceAll(body, "VERSION", string(rune('1'+changed)))
	}
	for _, c := range []struct {
		path, body string // without the closing brace
		stale      string // a member that is not so any more
		would      string
		answer     string // contained
		line       string // of the audit
	}{
		{"signer/floor", `{"signer":"s","floor":1,"version":VERSION`, `{"signer":"s","floor":1,"version":77`,
			"the floor of s goes from 0 to 1, and its next nonce from 5 to 5",
			`{"signer":"s","floor":1,"next":5}`, `method="POST /admin/v1/signer/floor" signer=s nonce=1 outcome=ok before=0 after=1 why=because`},
		{"signer/release", `{"signer":"s","nonce":1,"attempt":1`, `{"signer":"s","nonce":1,"attempt":2`,
			"nonce 1 of s, attempt 1, which is HELD, becomes RELEASED",
			`"attempt":1,"status":"RELEASED"}`,
			`method="POST /admin/v1/signer/release" signer=s nonce=1 outcome=ok before=HELD after=RELEASED why=because`},
		{"signer/consume", `{"signer":"s","nonce":2,"attempt":1,"sure":true`, `{"signer":"s","nonce":2,"attempt":2,"sure":true`,
			"nonce 2 of s, attempt 1, which is HELD, becomes CONSUMED", `"status":"CONSUMED"}`,
			`nonce=2 outcome=ok before=HELD after=CONSUMED why=because`},
		{"signer/repair", `{"signer":"s","nonce":3,"attempt":1`, `{"signer":"s","nonce":3,"attempt":2`,
			"nonce 3 of s, which is HELD, becomes yours with a new attempt",
			`"nonce":3,"attempt":2,"status":"HELD","heldUntil":`, `nonce=3 outcome=ok before=HELD after="HELD, attempt 2" why=because`},
		{"signer/repair", `{"signer":"s","nonce":4,"attempt":1,"thenRelease":true`, `{"signer":"s","nonce":4,"attempt":2,"thenRelease":true`,
			"nonce 4 of s, which is HELD, becomes yours with a new attempt, and is given back at once", `"nonce":4,"attempt":2,"status":"RELEASED"}`,
			`nonce=4 outcome=ok before=HELD after="RELEASED, attempt 2" why=because`},
		{"shard/move", `{"shard":1,"node":"a","token":1`, `{"shard":1,"node":"a","token":9`, "shard 1, which a has, is pinned to a",
			`"pinned":"a"}}`,
			`method="POST /admin/v1/shard/move" outcome=ok before="not pinned" after=a why=because`},
		{"key/revoke", `{"id":"` + id + `"`, "", "the API key " + id +
			" of reader, which is live, is not good any more, and the connections that it let in are closed",
			`"state":"revoked"`, `method="POST /admin/v1/key/revoke" outcome=ok before=live after=revoked why=because`},
	} {
		body := version(c.body, 0)
		for who, why := range map[string]string{"admin key": "an act needs a principal", "reader": "is missing", "nothing": "is missing"} {
			if said := (asked{"POST", c.path, body + `,"dryRun":true}`, 403, "*"}).ask(t, o.app, o.keys[who]); !strings.Contains(said, why) {
				t.Errorf("%s for %s: %s", c.path, who, said)
			}
		}
		before := o.stored()
		said := asked{"POST", c.path, body + `,"dryRun":true}`, 200, ""}.ask(t, o.app, o.keys["ops"])
		if !strings.Contains(said, `"dryRun":true,"wouldDo":"`+c.would+`","before":{`) {
			t.Errorf("%s, dry: %s", c.path, said)
		}
		if c.stale != "" {
			for _, dry := range []string{"true", "false"} {
				asked{"POST", c.path, c.stale + `,"dryRun":` + dry + "}", 409, "*"}.ask(t, o.app, o.keys["ops"])
			}
		}
		if after := o.stored(); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: a dry run, or a refusal, has changed %+v to %+v", c.path, before, after)
		}
		said = asked{"POST", c.path, body + `,"reason":"because"}`, 200, ""}.ask(t, o.app, o.keys["ops"])
		if !strings.Contains(said, c.answer) {
			t.Errorf("%s: %s, want %s", c.path, said, c.answer)
		}
		// Of two people the second is told: the version, the attempt, the state is another.
		path, second := c.path, body+"}"
		switch path {
		case "shard/move": // a pin is a preference
			continue
		case "signer/release":
			path = "signer/consume"
		case "signer/consume":
			path, second = "signer/release", strings.Replace(second, `,"sure":true`, "", 1)
		}
		asked{"POST", path, second, 409, "*"}.ask(t, o.app, o.keys["ops"])
	}
	asked{"GET", "me", "", 401, "*"}.ask(t, o.app, spare) // it was revoked
	lines := asked{"GET", "audit?limit=1000", "", 200, ""}.ask(t, o.app, o.keys["admin key"])
	if !strings.Contains(lines, `"outcome":"ok","before":"HELD","after":"RELEASED","why":"because"`) ||
		!strings.Contains(lines, `"outcome":"dry_run"`) {
		t.Error(lines)
	}
	expect.Must(t, o.stop(context.WithoutCancel(t.Context()))) // the audit is written
	for _, line := range []string{`before=0 after=1 why=because`, `before=HELD after="RELEASED, attempt 2" why=because`,
		`after=revoked why=because`} {
		if !strings.Contains(o.log.String(), line) {
			t.Errorf("no line has %s:\n%s", line, o.log.String())
		}
	}
}

// A link works once. A session has the rights of its key, looks only where the console may look only, and ends with a logout
// and with the key.
func TestSessionsOfTheConsole(t *testing.T) {
	o := newOperators(t)
	a := o.app
	ticket := o.tokenIn(asked{"POST", "ticket", `{}`, 200, ""}.ask(t, a, o.keys["ops"]))
	asked{"POST", "session", `{}`, 401, "a key is needed: the admin key, or an API key; or the link of gateway console"}.ask(t, a, "")
	token := o.tokenIn(asked{"POST", "session", `{"ticket":"` + ticket + `"}`, 200, ""}.ask(t, a, ""))
	asked{"POST", "session", `{"ticket":"` + ticket + `"}`, 401, "the ticket is not valid: it works once, for a minute"}.ask(t, a, "")
	if me := (asked{"GET", "me", "", 200, ""}).ask(t, a, token); !strings.Contains(me, `"principal":"ops","credential":"key:`) ||
		!strings.Contains(me, `"acts":true,"rights":[{"signers":"*","rights":[`+
			`"allocate","mark","mark-any","read","subscribe","admin","repair"]}]`) {
		t.Error(me)
	}
	me := asked{"GET", "me", "", 200, ""}.ask(t, a, o.session("admin key"))
	if !strings.Contains(me, `"credential":"admin-key","console":"on","acts":false,"why":"an act needs`) {
		t.Error(me)
	}
	asked{"GET", "overview", "", 403, "the right read on all signers is missing; nothing happened"}.ask(t, a, o.session("nothing"))
	for _, path := range []string{"overview", "findings", "settings", "audit", "principals", "keys", "nodes", "shards", "signers", "engine",
		"jobs"} {
		asked{"GET", path, "", 200, ""}.ask(t, a, o.session("reader"))
	}
	asked{"POST", "shard/move", `{"shard":1,"node":""}`, 200, ""}.ask(t, a, token)
	asked{"POST", "session/end", `{}`, 200, ""}.ask(t, a, token)
	asked{"POST", "shard/move", `{"shard":1,"node":""}`, 401, "the session has ended, or is none of this node"}.ask(t, a, token)

	token = o.session("ops")
	id, _, err := apikey.Parse(o.keys["ops"])
	expect.Must(t, err)
	asked{"POST", "key/revoke", `{"id":"` + id + `"}`, 200, ""}.ask(t, a, token)
	wait.Until(t, "the session ends with its key", func() bool {
		r := httptest.NewRequest("GET", "http://127.0.0.1/admin/v1/me", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		a.operators.Handler().ServeHTTP(w, r)
		return w.Code == http.StatusUnauthorized && strings.Contains(w.Body.String(), "the session has ended")
	})

	reads := newOperators(t, "--console=read")
	token = reads.session("ops")
	asked{"POST", "shard/move", `{"shard":1,"node":""}`, 403,
		"the console may look only at this gateway (--console); nothing happened"}.ask(t, reads.app, token)
	asked{"POST", "shard/move", `{"shard":1,"node":""}`, 200, ""}.ask(t, reads.app, reads.keys["ops"]) // a command
	off := newOperators(t, "--console=off")
	asked{"POST", "session", `{}`, 403, "the console is off at this gateway (--console)"}.ask(t, off.app, off.keys["ops"])
}

// What a page opens at the admin address is the clients' protocol, with the rights of the session.
func TestEventsAtTheAdminAddress(t *testing.T) {
	o := newOperators(t, "--origins=https://app.example")
	ticket := o.tokenIn(asked{"POST", "wsTicket", `{}`, 200, ""}.ask(t, o.app, o.session("reader")))
	url := "ws://" + o.admin.Addr().String() + "/ws?ticket=" + ticket
	origin := http.Header{"Origin": {"http://" + o.admin.Addr().String()}}
	c, err := client.Dial(t.Context(), url, client.Config{Header: origin, OwnerConnections: -1})
	expect.Must(t, err)
	defer c.Close()
	if _, err := c.Status(t.Context(), "s"); err != nil {
		t.Error(err)
	}
	if _, err := c.SetFloor(t.Context(), "s", 1); err == nil || !strings.Contains(err.Error(), "the right admin on this signer is missing") {
		t.Error(err)
	}
	for name, bad := range map[string]client.Config{
		"the ticket a second time": {Header: origin, OwnerConnections: -1},
		"another origin":           {Header: http.Header{"Origin": {"https://page.example"}}, OwnerConnections: -1},
	} {
		at := url
		if name != "the ticket a second time" {
			at = strings.Replace(url, ticket, o.tokenIn(asked{"POST", "wsTicket", `{}`, 200, ""}.ask(t, o.app, o.session("reader"))), 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
		if c, err := client.Dial(ctx, at, bad); err == nil {
			c.Close()
			t.Errorf("let in by %s", name)
		}
		cancel()
	}
	asked{"GET", "signer?signer=s", "", 200, ""}.ask(t, o.app, o.keys["reader"]) // whatever --origins says
}

func TestJobsOfOperators(t *testing.T) {
	o := newOperators(t)
	a, ops := o.app, o.keys["ops"]
	asked{"POST", "job", `{"kind":"floors","floors":[{"signer":"f","floor":3}]}`, 403,
		"the right admin on all signers is missing; nothing happened"}.ask(t, a, o.keys["reader"])
	for body, why := range map[string]string{
		`{"kind":"all"}`:    `kind: "all" must be releaseUnknown or floors`,
		`{"kind":"floors"}`: "floors: is missing; it must be signers with their floors",
		`{"kind":"floors","floors":[{"signer":"a b",` +
			`"floor":3}]}`: `floors[0]: "a b" with 3 is no signer with a floor of 0 or higher`,
		`{"kind":"releaseUnknown","principal":"ops","olderThan":"soon"}`:             `olderThan: "soon" must be a duration, such as 1h`,
		`{"kind":"releaseUnknown","olderThan":"1s"}`:                                 "principal: is missing; it must be who holds them",
		`{"kind":"floors","floors":[],"reason":"` + strings.Repeat("x", 4096) + `"}`: "reason: must be at most 256 bytes, and has 4096",
	} {
		asked{"POST", "job", body, 400, why}.ask(t, a, ops)
	}
	floors := `{"kind":"floors","floors":[{"signer":"f","floor":3},{"signer":"<b>g</b>","floor":4}],"reason":"restored"`
	before := o.stored()
	dry := asked{"POST", "job", floors + `,"dryRun":true}`, 200, ""}.ask(t, a, ops)
	if !strings.Contains(dry, `"count":2,"dryRun":true,"wouldDo":"the floors of 2 signers are raised"`) {
		t.Error(dry)
	}
	if !reflect.DeepEqual(before, o.stored()) {
		t.Error("a dry run has changed something")
	}
	id := o.tokenIn(asked{"POST", "job", floors + "}", 200, ""}.ask(t, a, ops))
	var said admin.JobResult
	wait.Until(t, "the job is done", func() bool {
		expect.Must(t, json.Unmarshal([]byte(asked{"GET", "job?id=" + id, "", 200, ""}.ask(t, a, ops)), &said))
		return said.Job.State == "done"
	})
	if said.Job.Done != 2 || said.Job.Left != 0 || said.Job.Principal != "ops" || len(said.Outcomes) != 2 ||
		said.Outcomes[1].Signer != "<b>g</b>" || said.Outcomes[1].Outcome != "done" {
		t.Errorf("%+v", said)
	}
	asked{"POST", "job/cancel", `{"id":"` + id + `"}`, 409, "conflict: the job is done"}.ask(t, a, ops)
	asked{"GET", "job?id=x", "", 404, `id: "x" is none of the last 10 jobs of this node`}.ask(t, a, ops)
	if list := (asked{"GET", "signers?prefix=" + "%3Cb", "", 200, ""}).ask(t, a, ops); !strings.Contains(list, `"next":4,"floor":4`) ||
		strings.Contains(list, `"signer":"f"`) {
		t.Error(list)
	}
}

// A drain ends the process as a signal does.
func TestADrainEndsTheGateway(t *testing.T) {
	o := newOperators(t)
	asked{"POST", "node/drain", `{"node":"b"}`, 409, `node: this is "a"; ask the node itself that is to end`}.ask(t, o.app, o.keys["ops"])
	said := asked{"POST", "node/drain", `{"node":"a","dryRun":true}`, 200, ""}.ask(t, o.app, o.keys["ops"])
	if !regexp.MustCompile(`"wouldDo":"node a answers .* its process ends`).MatchString(said) {
		t.Error(said)
	}
	select {
	case <-o.ended:
		t.Fatal("a dry run has ended it")
	default:
	}
	asked{"POST", "node/drain", `{"node":"a","reason":"upgrade"}`, 200, ""}.ask(t, o.app, o.keys["ops"])
	if err := o.untilTheEnd(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// Settings in force say where each is from, and no secret.
func TestSettingsInForceHaveNoSecrets(t *testing.T) {
	t.Setenv("NONCEGATE_NODE_SECRET", "a-secret-of-the-nodes")
	o := newOperators(t, "--redis-lost-after=31s")
	said := asked{"GET", "settings", "", 200, ""}.ask(t, o.app, o.keys["admin key"])
	for _, part := range []string{
		`{"name":"redis-lost-after","value":"31s","from":"flag"}`, `{"name":"node-secret","from":"environment","secret":true}`,
		`{"name":"admin-key","from":"flag","secret":true}`,
		`{"name":"lease-ttl","value":"5s","from":"default"}`,
	} {
		if !strings.Contains(said, part) {
			t.Errorf("%s is not in %s", part, said)
		}
	}
	if strings.Contains(said, "0123456789abcdef") || strings.Contains(said, "a-secret") {
		t.Error(said)
	}
	for value, want := range map[string]string{"https://u:word@idp.example/keys": "https://u:xxxxx@idp.example/keys", "a:b": "a:b", "": ""} {
		if got := withoutPassword(value); got != want {
			t.Errorf("%q is shown as %q", value, got)
		}
	}
}
