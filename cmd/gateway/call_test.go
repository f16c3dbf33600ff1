package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

// request is what a fake gateway reads.
type request struct {
	ID     wire.Raw `json:"id"`
	Method string   `json:"method"`
	Params wire.Raw `json:"params"`
}

// fakeGateway answers each request with the frames that answer returns, ID
// standing for the request's id; without any it closes the connection.
func fakeGateway(t *testing.T, answer func(request) []string) (url string) {
	t.Helper()
	var mu sync.Mutex // one answer at a time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				return
			}
			var req request
			if err := wire.Unmarshal(data, &req); err != nil {
				t.Errorf("request %s: %v", data, err)
				return
			}
			mu.Lock()
			frames := answer(req)
			mu.Unlock()
			for _, frame := range frames {
				frame = strings.ReplaceAll(frame, "ID", string(req.ID))
				if conn.WriteMessage(websocket.TextMessage, []byte(frame)) != nil {
					return
				}
			}
			if len(frames) == 0 {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func TestCallPrintsTheResultAsItCame(t *testing.T) {
	const result = `{"next":7, "held":0.0,"unheardOf":null}`
	url := fakeGateway(t, func(r request) []string {
		if r.Method != "nonce_status" || string(r.Params) != `{"signer":"s"}` {
			t.Errorf("called %s with %s", r.Method, r.Params)
		}
		return []string{`{"jsonrpc":"2.0","id":ID,"result":` + result + `}`}
	})
	o := runArgs(t, "call", "--url", url, "nonce_status", `{"signer":"s"}`)
	if o.code != exitOK || o.stdout != result+"\n" || o.stderr != "" {
		t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
	}
}

func TestCallNeedsNoParams(t *testing.T) {
	url := fakeGateway(t, func(r request) []string {
		if len(r.Params) != 0 {
			t.Errorf("params %s, want none", r.Params)
		}
		return []string{`{"jsonrpc":"2.0","id":ID,"result":true}`}
	})
	if o := runArgs(t, "call", "gateway_info", "--url", url); o.code != exitOK || o.stdout != "true\n" {
		t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
	}
}

func TestARefusalOfACallIsPrintedAsItsJSON(t *testing.T) {
	url := fakeGateway(t, func(request) []string {
		return []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32014,"message":"not_found: no such allocation","data":{"reason":"not_found"}}}`}
	})
	o := runArgs(t, "call", "nonce_markUsed", `["s",1,"0x1"]`, "--url", url)
	want := `{"code":-32014,"message":"not_found: no such allocation","data":{"reason":"not_found"}}` + "\n"
	if o.code != exitFailure || o.stderr != want || o.stdout != "" {
		t.Errorf("exit %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
	}
}

func TestACallOfUnknownOutcomeIsSaidToBeSo(t *testing.T) {
	for name, answer := range map[string][]string{
		"no answer":         nil,
		"the store is away": {`{"jsonrpc":"2.0","id":ID,"error":{"code":-32012,"message":"unavailable: away","data":{"reason":"unavailable","outcome":"unknown"}}}`},
	} {
		url := fakeGateway(t, func(request) []string { return answer })
		o := runArgs(t, "call", "nonce_allocate", `{"signer":"s"}`, "--url", url)
		if o.code != exitFailure || !strings.HasPrefix(o.stderr, "gateway: nonce_allocate: outcome unknown") {
			t.Errorf("%s: exit %d, stderr %q", name, o.code, o.stderr)
		}
	}
}

func TestAGatewayThatIsAwayIsOneSentence(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	url := "ws" + strings.TrimPrefix(server.URL, "http")
	server.Close()
	for _, command := range [][]string{{"call", "gateway_info"}, {"watch"}, {"nodes"}, {"signer", "show", "s"}} {
		o := runArgs(t, append(command, "--url", url)...)
		if o.code != exitFailure || !strings.HasPrefix(o.stderr, "gateway: dial "+url) || strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("%s: exit %d, stderr %q", command, o.code, o.stderr)
		}
	}
}

func TestWrongArgumentsOfTheToolsAreOneSentence(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string // the beginning
	}{
		{[]string{"call"}, `expected "<method>`},
		{[]string{"call", "m", "{"}, `call: PARAMS is not JSON: `},
		{[]string{"call", "m", "7"}, `call: PARAMS must be a JSON object or array`},
		{[]string{"call", "m", "--timeout=0s"}, `--timeout 0s must be at least 1ms`},
		{[]string{"call", "m", "--url=gw"}, `--url "gw" must be a URL that starts with ws://, wss://, http:// or https://`},
		{[]string{"nodes", "--url=gw"}, `--url "gw" must be a URL that starts with ws://, wss://, http:// or https://`},
		{[]string{"nodes", "--timeout=0s"}, `--timeout 0s must be at least 1ms`},
		{[]string{"signer", "show"}, `expected "<signer>"`},
		{[]string{"signer", "show", "s", "--limit=1001"}, `--limit 1001 must be 1 to 1000`},
		{[]string{"call", "m", "--timeout", "-5s"}, `--timeout -5s must be at least 1ms`},
		{[]string{"nodes", "--timeout", "-5s"}, `--timeout -5s must be at least 1ms`},
		{[]string{"signer", "show", "s", "--timeout", "-5s"}, `--timeout -5s must be at least 1ms`},
		{[]string{"signer", "show", "s", "--limit", "-3"}, `--limit -3 must be 1 to 1000`},
		{[]string{"signer", "show", "s", "--limit", "-h"}, `--limit: needs a value`},
		{[]string{"engine", "status", "--timeout", "-5s"}, `--timeout -5s must be at least 1ms`},
		{[]string{"engine", "switch", "reliable", "--timeout", "-5s"}, `--timeout -5s must be at least 1ms`},
		{[]string{"serve", "--workers", "-1"}, `--workers -1 must be at least 1`},
		{[]string{"--workers", "-1"}, `unknown flag --workers; settings follow a command, such as gateway serve`},
		{[]string{"help", "bogus"}, `help: there is no command "bogus"; gateway help lists them`},
		{[]string{"help", "key", "make"}, `help: there is no command "key make"; gateway help lists them`},
		{[]string{"watch", "--url=gw"}, `--url "gw" must be a URL that starts with ws://, wss://, http:// or https://`},
	} {
		o := runArgs(t, tt.args...)
		if o.code != exitUsage || !strings.HasPrefix(o.stderr, "gateway: "+tt.want) || strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("%q: exit %d\n got %swant gateway: %s", tt.args, o.code, o.stderr, tt.want)
		}
	}
}

func event(nonce, missed string) string {
	return `{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":"0x1","result":` +
		`{"type":"allocated","signer":"s","nonce":` + nonce + `,"attempt":1,"version":1,"at":"2026-11-20T18:33:56.123Z","missed":` + missed + `}}}`
}

func TestWatchPrintsEventsComesBackAndSaysWhatIsMissing(t *testing.T) {
	var subscribed int
	url := fakeGateway(t, func(r request) []string {
		switch {
		case r.Method != wire.MethodSubscribe && subscribed == 0:
			t.Errorf("called %s before subscribing", r.Method)
		case r.Method != wire.MethodSubscribe:
			return nil // leaving
		case string(r.Params) != `["events",{"signers":["s"]}]`:
			t.Errorf("subscribed with %s", r.Params)
		}
		subscribed++
		live := `{"jsonrpc":"2.0","id":ID,"result":"0x1"}`
		if subscribed == 1 {
			return []string{live, event("1", "0"), "this ends the connection"}
		}
		return []string{live, event("2", "3")}
	})
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	exit := make(chan int, 1)
	go func() {
		exit <- run(ctx, []string{"watch", "s", "--url", url}, stdout, &stderr)
		stdout.Close()
	}()

	var lines []string
	for scan := bufio.NewScanner(out); scan.Scan(); {
		if lines = append(lines, scan.Text()); len(lines) == 2 {
			interrupt()
		}
	}
	want := []string{
		`{"type":"allocated","signer":"s","nonce":1,"attempt":1,"version":1,"at":"2026-11-20T18:33:56.123Z"}`,
		`{"type":"allocated","signer":"s","nonce":2,"attempt":1,"version":1,"at":"2026-11-20T18:33:56.123Z","missed":3}`,
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("printed\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if code := <-exit; code != exitOK {
		t.Errorf("exit %d after an interrupt", code)
	}
	for _, said := range []string{"any number of events may be missing", "missed=3"} {
		if !strings.Contains(stderr.String(), said) {
			t.Errorf("stderr does not say %q:\n%s", said, stderr.String())
		}
	}
}

func TestACredentialInTheURLOfACommandIsOneAndIsNotShown(t *testing.T) {
	t.Parallel()
	const key = "nck_hidden"
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"call", "m", "--url=ws://any:" + key + "@h/ws", "--token=x"}, "--token and a user in --url are two credentials; give one of them"},
		{[]string{"watch", "--url=ws://" + key + "@h/ws"}, "--url has a user that is not NAME:KEY, with an API key; the name may be any"},
		{[]string{"nodes", "--url=ftp://any:" + key + "@h"}, `--url "…@h" must be a URL that starts with ws://`},
		{[]string{"nodes", "--url=any:" + key + "@h"}, `--url "…@h" must be a URL that starts with ws://`},
		{[]string{"nodes", "--url=ws://any:" + key + "@h:x"}, `--url "…@h:x" must be a URL that starts with ws://`},
		{[]string{"serve", "--advertise-url=ws://any:" + key + "@h/ws"}, "--advertise-url must have no user: clients and other nodes are told it"},
	} {
		o := runArgs(t, c.args...)
		if o.code != exitUsage || !strings.HasPrefix(o.stderr, "gateway: "+c.want) || strings.Contains(o.stderr, key) {
			t.Errorf("%q: exit %d, stderr %q", c.args, o.code, o.stderr)
		}
	}
}
