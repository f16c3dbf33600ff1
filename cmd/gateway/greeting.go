package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// greeting is what a person who starts the gateway needs next.
func (a *app) greeting() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Noncegate listens on ws://%s/ws  (metrics: http://%s/metrics)\n", a.listener.Addr(), a.admin.Addr())
	if a.router != nil {
		fmt.Fprintf(&b, "Other nodes reach it at %s  (--advertise-url)\n", a.url)
	}
	fmt.Fprintf(&b, "Get a nonce from another terminal:\n\n  ./bin/gateway call --url ws://%s/ws nonce_allocate '{\"signer\":\"eip155:1:0x52908400098527886e0f7030069857d2e4169ee7\"}'\n\n", a.listener.Addr())
	return b.String()
}

// exposures are what to warn of at the start: the gateway is open to more than this
// host, or closed to the nodes that its URL is meant for. shared: there may be other
// nodes.
func exposures(listen net.Addr, advertised string, shared, secret bool) (warnings []string) {
	if at, err := netip.ParseAddrPort(listen.String()); err == nil && !at.Addr().Unmap().IsLoopback() {
		warnings = append(warnings, "listening beyond loopback without authentication: whoever reaches this address may take every nonce")
	}
	if u, err := url.Parse(advertised); shared && !secret && err == nil && !onThisHost(u.Hostname()) {
		warnings = append(warnings, "other nodes cannot reach this one at its advertised URL without --node-secret, which nodes need beyond loopback")
	}
	return warnings
}

func onThisHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// clientHandler serves gateway on /ws and says so to whoever asks for something else.
func clientHandler(gateway http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", gateway)
	mux.HandleFunc("/ws", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a WebSocket is opened by GET", http.StatusMethodNotAllowed)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the gateway is on /ws", http.StatusNotFound)
	})
	return mux
}
