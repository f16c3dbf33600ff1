package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestWhoIsExposedOrNotReachedIsWarned(t *testing.T) {
	const beyond, plain = "listening beyond loopback without authentication", "listening beyond loopback without TLS"
	const unreached, clear = "other nodes cannot reach this one", "other nodes reach this one without TLS"
	for _, c := range []struct {
		listen, url  string
		shared       bool
		secret, cert string
		want         []string
		rights       string
	}{
		{listen: "127.0.0.1:8080", url: "ws://127.0.0.1:8080/ws", rights: "r"},
		{listen: "127.0.0.1:8080", url: "ws://127.0.0.1:8080/ws", shared: true, rights: "r", secret: "s"},
		{listen: "127.0.0.1:8080", url: "ws://127.0.0.1:8080/ws", shared: true, rights: "r", want: []string{"without --node-secret no other node is let in"}},
		{listen: "127.0.0.1:8080", url: "ws://127.0.0.1:8080/ws", shared: true},
		{listen: "[::1]:8080", url: "ws://localhost:8080/ws", shared: true},
		{listen: "0.0.0.0:8080", url: "ws://db1:8080/ws", want: []string{beyond, plain}},
		{listen: "0.0.0.0:8080", url: "wss://db1:8080/ws", cert: "c", want: []string{beyond}},
		{listen: "[::]:8080", url: "ws://db1:8080/ws", shared: true, want: []string{beyond, plain, unreached}},
		{listen: "10.0.0.7:8080", url: "ws://10.0.0.7:8080/ws", shared: true, secret: "s", want: []string{beyond, plain, clear}},
		{listen: "10.0.0.7:8080", url: "wss://10.0.0.7:8080/ws", shared: true, secret: "s", cert: "c", want: []string{beyond}},
		{listen: "127.0.0.1:8080", url: "wss://proxy.internal/ws", shared: true, want: []string{unreached}},
		{listen: "127.0.0.1:8080", url: "http://proxy.internal/ws", shared: true, secret: "s", want: []string{clear}},
	} {
		cfg := &Config{NodeSecret: c.secret, TLSConfig: TLSConfig{TLSCert: c.cert}, AccessConfig: AccessConfig{Rights: c.rights}}
		got := exposures(cfg, boundAddr{net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.listen))}, c.url, c.shared)
		for i := range max(len(got), len(c.want)) {
			if i >= len(got) || i >= len(c.want) || !strings.HasPrefix(got[i], c.want[i]) {
				t.Errorf("%+v: got %q", c, got)
				break
			}
		}
	}
}

func TestWhatIsNotTheGatewaysPathSaysWhereItIs(t *testing.T) {
	h := clientHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, c := range []struct {
		method, path string
		status       int
		says         string
	}{
		{"GET", "/ws", http.StatusTeapot, ""},
		{"POST", "/ws", http.StatusMethodNotAllowed, "GET"},
		{"GET", "/", http.StatusNotFound, "the gateway is on /ws"},
		{"GET", "/ws/more", http.StatusNotFound, "the gateway is on /ws"},
		{"POST", "/rpc", http.StatusNotFound, "the gateway is on /ws"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, w.Code, w.Body, c.status, c.says)
		}
	}
}

func TestTheFirstCallCanBePasted(t *testing.T) {
	const params = ` nonce_allocate '{"signer":"eip155:1:0x52908400098527886e0f7030069857d2e4169ee7"}'`
	for _, c := range []struct {
		scheme, listen string
		authenticated  bool
		want           string
	}{
		{"ws", "127.0.0.1:8080", false, "./bin/gateway call --url ws://127.0.0.1:8080/ws"},
		{"ws", "[::1]:8080", false, "./bin/gateway call --url ws://[::1]:8080/ws"},
		{"wss", "[::]:8443", true, "NONCEGATE_TOKEN=KEY ./bin/gateway call --url wss://HOST:8443/ws --ca FILE"},
		{"ws", "0.0.0.0:80", true, "NONCEGATE_TOKEN=KEY ./bin/gateway call --url ws://HOST:80/ws"},
	} {
		if got := firstCall(c.scheme, c.listen, c.authenticated, "eip155:1"); got != c.want+params {
			t.Errorf("%+v: %s", c, got)
		}
	}
	c := ChainConfig{Chain: []string{"eip155:11155111=ws://a", "eip155:10=ws://b"}}
	if got := firstCall("ws", "127.0.0.1:80", false, c.exampleChain()); !strings.Contains(got, `"signer":"eip155:11155111:0x`) {
		t.Errorf("with chains: %s", got)
	}
}
