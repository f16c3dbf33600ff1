package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"noncegate/wire"
)

// What a gateway with a chain says of a signer that a nonce blocks.
const (
	chainStatus = `{"signer":"s","next":30,"floor":7,"held":2,"unknown":1,"released":0,"consumed":28,"lowestHeld":7,"fencingToken":4,"version":90,` +
		`"chain":{"mined":7,"final":4,"window":16,"head":812,"gap":{"nonce":7,"since":"2026-11-20T18:31:00.000Z","status":"UNKNOWN","attempt":2,"blocked":3}}}`
	chainHolds = `[{"nonce":7,"status":"UNKNOWN","attempt":2,"heldUntil":"2026-11-20T18:30:00.000Z","requestId":"payout-7","holder":"worker-3","updatedAt":"2026-11-20T18:30:00.000Z"}]`
	chainRows  = `[{"nonce":28,"status":"CONSUMED","attempt":1,"txHash":"0xbb","txHashes":["0xbb","0xaa"],"holder":"worker-4","chain":"sent","updatedAt":"2026-11-20T18:33:30.000Z"},` +
		`{"nonce":29,"status":"HELD","attempt":1,"holder":"worker-4","heldUntil":"2026-11-20T18:35:00.000Z","updatedAt":"2026-11-20T18:33:40.000Z"}]`
)

func TestSignerShowPrintsWhatTheChainSaysWhoHoldsAndHowFarEachTransactionIs(t *testing.T) {
	url, asked := answering(t, map[string][]string{
		wire.MethodStatus: {chainStatus},
		wire.MethodList:   {`{"allocations":` + chainHolds + `,"nextFrom":8}`, `{"allocations":` + chainRows + `}`},
	})
	want := strings.Join([]string{
		`signer  s`,
		`next    30       floor     7                         version   90`,
		`held    2        released  0                         consumed  28  unknown   1`,
		`mined   7        final     4                         window    16  at block  812`,
		`gap     nonce 7  since     2026-11-20T18:31:00.000Z  blocks    3   UNKNOWN`,
		`owner   nobody   token     4`,
		``,
		`open holds`,
		`NONCE  STATUS   ATTEMPT  UNTIL                     HOLDER    REQUEST   HASH OR REASON`,
		`7      UNKNOWN  2        2026-11-20T18:30:00.000Z  worker-3  payout-7  -`,
		`and 1 more`,
		``,
		`last nonces`,
		`NONCE  STATUS    CHAIN  ATTEMPT  CHANGED                   HOLDER    REQUEST  HASH OR REASON`,
		`29     HELD      -      1        2026-11-20T18:33:40.000Z  worker-4  -        -`,
		`28     CONSUMED  sent   1        2026-11-20T18:33:30.000Z  worker-4  -        0xbb and 1 before`,
	}, "\n") + "\n"
	if o := runArgs(t, "signer", "show", "s", "--limit=2", "--url", url); o.code != exitOK || o.stdout != want || o.stderr != "" {
		t.Errorf("exit %d, stderr %q, got\n%s\nwant\n%s", o.code, o.stderr, o.stdout, want)
	}
	if len(*asked) != 3 {
		t.Errorf("asked %v", *asked)
	}
}

func TestSignerShowSaysThatTheChainWasStoppedAndWhatItDoesNotKnow(t *testing.T) {
	for chain, want := range map[string][]string{
		`{"mined":7,"window":1,"head":812,"stopped":true}`: {"mined   7  final     -  window    1  at block  812",
			"chain   its final block fell: nothing is done by itself until the gateway is started again"},
		`{"mined":7,"final":0,"head":9,"gap":{"nonce":7,"since":"2026-11-20T18:31:00.000Z","blocked":1}}`: {"final     0 ", "never handed out"},
	} {
		url, _ := answering(t, map[string][]string{wire.MethodStatus: {strings.Replace(idleStatus, `"version":0}`, `"version":1`, 1) + `,"chain":` + chain + `}`}})
		o := runArgs(t, "signer", "show", "s", "--url", url)
		for _, part := range want {
			if o.code != exitOK || !strings.Contains(o.stdout, part) {
				t.Errorf("%s: exit %d, stderr %q: no %q in\n%s", chain, o.code, o.stderr, part, o.stdout)
			}
		}
	}
}

// privateSide is a fake private side that answers GET /signers.
func privateSide(t *testing.T, code int, answer string) (url string, asked chan *http.Request) {
	t.Helper()
	asked = make(chan *http.Request, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /signers", func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		w.WriteHeader(code)
		_, _ = w.Write([]byte(answer))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL, asked
}

const threeSigners = `{"node":"gateway-1","signers":[` +
	`{"signer":"eip155:1:0xaa","next":30,"floor":7,"held":2,"unknown":1,"released":1,"lowestReleased":9,"oldestHold":"2026-11-20T18:30:00.5Z","maxAttempt":4,"owner":"gateway-1","mined":7,"gap":7,"trouble":"gap","since":"2026-11-20T18:31:00Z"},` +
	`{"signer":"s","next":3,"floor":0,"held":0,"unknown":0,"released":0,"stopped":true},` +
	`{"signer":"t","next":1,"floor":0,"held":0,"unknown":0,"released":1,"lowestReleased":0,"maxAttempt":1},` +
	`{"signer":"u","next":1,"floor":0,"held":0,"unknown":0,"released":0,"unreadable":true}],"next":"u"}`

func TestSignerListPrintsATable(t *testing.T) {
	url, asked := privateSide(t, 200, threeSigners)
	want := strings.Join([]string{
		`SIGNER         NEXT  FLOOR  MINED  HELD  UNKNOWN  RELEASED  LOWEST RELEASED  HIGHEST ATTEMPT  OLDEST HOLD           OWNER      NOTE`,
		`eip155:1:0xaa  30    7      7      2     1        1         9                4                2026-11-20T18:30:00Z  gateway-1  nonce 7 blocks it, since 2026-11-20T18:31:00Z`,
		`s              3     0      -      0     0        0         -                -                -                     -          stopped: needs a floor`,
		`t              1     0      -      0     0        1         0                1                -                     -          -`,
		`u              1     0      -      0     0        0         -                -                -                     -          its row cannot be read`,
		`and more: --after u`,
	}, "\n") + "\n"
	o := runArgs(t, "signer", "list", "--filter=gap", "--limit=3", "--after=a b&c", "--admin-key=0123456789abcdef", "--admin", url)
	if o.code != exitOK || o.stdout != want || o.stderr != "" {
		t.Errorf("exit %d, stderr %q, got\n%s\nwant\n%s", o.code, o.stderr, o.stdout, want)
	}
	r := <-asked
	if got, want := r.URL.Query().Encode(), "after=a+b%26c&filter=gap&limit=3"; got != want || r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
		t.Errorf("asked for %s with %q, want %s", got, r.Header.Get("Authorization"), want)
	}
}

func TestSignerListPrintsJSONAndNothingAsASentence(t *testing.T) {
	url, asked := privateSide(t, 200, threeSigners)
	if o := runArgs(t, "signer", "list", "--json", "--admin", url); o.code != exitOK || o.stdout != threeSigners+"\n" {
		t.Errorf("exit %d, stderr %q, got\n%s\nwant\n%s", o.code, o.stderr, o.stdout, threeSigners)
	}
	if got, want := (<-asked).URL.RawQuery, "filter=all&limit=100"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	url, _ = privateSide(t, 200, `{"node":"gateway-1","signers":[]}`)
	if o := runArgs(t, "signer", "list", "--admin", url); o.code != exitOK || o.stdout != "no such signers\n" {
		t.Errorf("exit %d, stderr %q, stdout %q", o.code, o.stderr, o.stdout)
	}
}

func TestSignerListSaysWhyItWasRefused(t *testing.T) {
	for _, c := range []struct {
		code         int
		answer, want string
	}{
		{503, `{"error":"the store does not answer"}`, "gateway: the store does not answer\n"},
		{401, "no key was given\n", "gateway: URL answered 401 Unauthorized: no key was given; --admin-key must be that of the gateway\n"},
	} {
		url, _ := privateSide(t, c.code, c.answer)
		o := runArgs(t, "signer", "list", "--admin", url)
		if want := strings.ReplaceAll(c.want, "URL", url); o.code != exitFailure || o.stderr != want || o.stdout != "" {
			t.Errorf("exit %d, stdout %q, stderr %q, want %q", o.code, o.stdout, o.stderr, want)
		}
	}
}

func TestSignerFloorRaisesTheFloor(t *testing.T) {
	result := `{"signer":"s","floor":9,"next":12}`
	url, asked := answering(t, map[string][]string{wire.MethodSetFloor: {result, result}})
	if o := runArgs(t, "signer", "floor", "s", "7", "--url", url); o.code != exitOK || o.stdout != "s: floor 9, next 12\n" {
		t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
	}
	if o := runArgs(t, "signer", "floor", "s", "7", "--json", "--url", url); o.code != exitOK || o.stdout != result+"\n" {
		t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
	}
	if want := `nonce_setFloor {"signer":"s","floor":7}`; (*asked)[0] != want {
		t.Errorf("asked %s, want %s", (*asked)[0], want)
	}
}

// Without --attempt the current one is read first, so that who acts on what was seen a
// moment ago does not end the hold of somebody later.
func TestANonceIsMarkedOfTheAttemptThatIsNamedOrOfTheCurrentOne(t *testing.T) {
	const hash = "0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"
	released, consumed := `{"signer":"s","nonce":7,"attempt":2,"status":"RELEASED"}`, `{"signer":"s","nonce":7,"attempt":2,"status":"CONSUMED"}`
	const look = `nonce_list {"signer":"s","from":7,"limit":1}`
	for args, c := range map[string]struct{ result, says, asks string }{
		"release s 7": {released, "is RELEASED", look + `, nonce_markRecyclable {"signer":"s","nonce":7,"reason":"operator","attempt":2}`},
		"release s 7 --reason=lost --unsent --attempt=2": {released, "is RELEASED",
			`nonce_markRecyclable {"signer":"s","nonce":7,"reason":"lost","attempt":2,"unsent":true}`},
		"consume s 7 --yes":                         {consumed, "is CONSUMED", look + `, nonce_markUsed {"signer":"s","nonce":7,"attempt":2}`},
		"consume s 7 --attempt=2 --tx-hash=" + hash: {consumed, "is CONSUMED", `nonce_markUsed {"signer":"s","nonce":7,"txHash":"` + hash + `","attempt":2}`},
	} {
		url, asked := answering(t, map[string][]string{
			wire.MethodList:           {`{"allocations":[{"nonce":7,"status":"UNKNOWN","attempt":2,"updatedAt":"2026-11-20T18:33:00.000Z"}]}`},
			wire.MethodMarkRecyclable: {c.result}, wire.MethodMarkUsed: {c.result},
		})
		o := runArgs(t, append(append([]string{"signer"}, strings.Fields(args)...), "--url", url)...)
		if o.code != exitOK || o.stdout != "s: nonce 7, attempt 2, "+c.says+"\n" || o.stderr != "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", args, o.code, o.stdout, o.stderr)
		}
		if got := strings.Join(*asked, ", "); got != c.asks {
			t.Errorf("%s: asked %s\nwant %s", args, got, c.asks)
		}
	}
}

// TestANonceThatWasPerhapsNeverSentIsConsumedOnlyByAWord: it may leave a hole for ever.
func TestANonceThatWasPerhapsNeverSentIsConsumedOnlyByAWord(t *testing.T) {
	for row, refused := range map[string]bool{
		`"status":"UNKNOWN"`: true, `"status":"HELD"`: true, `"status":"RELEASED"`: true,
		`"status":"HELD","txHash":"0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"`: false,
		`"status":"RELEASED","chain":"mined"`: false,
	} {
		url, asked := answering(t, map[string][]string{
			wire.MethodList:     {`{"allocations":[{"nonce":7,"attempt":2,"updatedAt":"2026-11-20T18:33:00.000Z",` + row + `}]}`},
			wire.MethodMarkUsed: {`{"signer":"s","nonce":7,"attempt":2,"status":"CONSUMED"}`},
		})
		o := runArgs(t, "signer", "consume", "s", "7", "--url", url)
		if (o.code == exitFailure) != refused || refused && (!strings.Contains(o.stderr, "say --yes") || len(*asked) != 1) || !refused && len(*asked) != 2 {
			t.Errorf("%s: exit %d, %q, asked %q", row, o.code, o.stderr, *asked)
		}
	}
}

func TestANonceOfWhichNothingIsKnownIsNotMarked(t *testing.T) {
	for _, page := range []string{`{"allocations":[]}`, `{"allocations":[{"nonce":8,"status":"HELD","attempt":1,"updatedAt":"2026-11-20T18:33:00.000Z"}]}`} {
		for _, command := range []string{"release", "consume"} {
			url, _ := answering(t, map[string][]string{wire.MethodList: {page}})
			o := runArgs(t, "signer", command, "s", "7", "--url", url)
			if o.code != exitFailure || o.stdout != "" || o.stderr != "gateway: nothing is known of nonce 7 of s\n" {
				t.Errorf("%s: exit %d, stdout %q, stderr %q", command, o.code, o.stdout, o.stderr)
			}
		}
	}
}

func TestAWrongArgumentOfASignerCommandIsOneSentence(t *testing.T) {
	for args, want := range map[string]string{
		"list --filter=gaps":       `--filter "gaps" must be all, gap, unknown, overdue, repeated or stopped`,
		"list --limit=0":           `--limit 0 must be at least 1`,
		"list --limit=1001":        `--limit 1001 must be at most 1000`,
		"list --admin=gw:8081":     `--admin "gw:8081" must be a URL that starts with http:// or https://`,
		"floor s":                  `expected "<floor>"`,
		"floor s five":             `<floor>: "five" is not a whole number`,
		"floor s -5":               `an argument is below zero; none may be`,
		"release s 5 --attempt=-1": `--attempt -1 must not be negative`,
		"consume s 5 --url=gw":     `--url "gw" must be a URL that starts with ws://, wss://, http:// or https://`,
		"consume s 5 --timeout=0s": `--timeout 0s must be at least 1ms`,
		"consume s 5 --cert=c":     `--cert and --cert-key belong together`,
	} {
		o := runArgs(t, append([]string{"signer"}, strings.Fields(args)...)...)
		if o.code != exitUsage || o.stderr != "gateway: "+want+"\n" || o.stdout != "" {
			t.Errorf("%s: exit %d, stdout %q\n got %swant gateway: %s", args, o.code, o.stdout, o.stderr, want)
		}
	}
}

// What is not understood is asked of nobody: a misspelled filter would list everything.
func TestAQuestionForSignersThatIsNotUnderstoodIsRefused(t *testing.T) {
	a := &app{cfg: new(Config)} // it has no service: who asks it has understood
	h := http.NewServeMux()
	a.signerHandlers(h)
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
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8081/signers?"+query, nil))
		got := w.Body.String()
		if sentence := strings.ReplaceAll(want, `"`, `\"`); w.Code != http.StatusBadRequest || got != `{"error":"`+sentence+`"}`+"\n" {
			t.Errorf("%s: %d %swant %s", query, w.Code, got, want)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(method, "/signers", nil)); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}
