package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// greeting is what a person who starts the gateway needs next.
func (a *app) greeting() string {
	client, admin := a.webSchemes()
	var b strings.Builder
	fmt.Fprintf(&b, "Noncegate listens on %s://%s/ws  (metrics: %s://%s/metrics)\n", client, a.listener.Addr(), admin, a.admin.Addr())
	if a.router != nil {
		fmt.Fprintf(&b, "Other nodes reach it at %s  (--advertise-url)\n", a.url)
	}
	fmt.Fprintf(&b, "Get a nonce from another terminal:\n\n  %s\n\n",
		firstCall(client, a.listener.Addr().String(), a.cfg.Authenticated(), a.cfg.exampleChain()))
	return b.String()
}

// firstCall is a command that can be pasted, but for the words in capitals.
func firstCall(scheme, listen string, authenticated bool, chain string) string {
	var b strings.Builder
	if authenticated {
		b.WriteString("NONCEGATE_TOKEN=KEY ")
	}
	if host, port, err := net.SplitHostPort(listen); err == nil {
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			listen = net.JoinHostPort("HOST", port) // what a certificate names
		}
	}
	fmt.Fprintf(&b, "./bin/gateway call --url %s://%s/ws", scheme, listen)
	if scheme == "wss" {
		b.WriteString(" --ca FILE")
	}
	b.WriteString(` nonce_allocate '{"signer":"` + chain + `:0x52908400098527886e0f7030069857d2e4169ee7"}'`)
	return b.String()
}

// exposures are what to warn of at the start: what --insecure-listen does without,
// what travels in the clear, or a gateway that is closed to the nodes that
// its URL is meant for. shared: there may be other nodes.
func exposures(c *Config, listen boundAddr, advertised string, shared bool) (warnings []string) {
	warn := func(text string) { warnings = append(warnings, text) }
	if !listen.loopback() {
		if !c.Authenticated() {
			warn("listening beyond loopback without authentication: whoever reaches this address may take every nonce")
		}
		if c.TLSCert == "" {
			warn("listening beyond loopback without TLS: whoever is on the way may read and change what is said")
		}
	}
	u, err := url.Parse(advertised)
	switch {
	case shared && c.NodeSecret == "" && c.Authenticated():
		warn("without --node-secret no other node is let in, because clients must say who they are: " +
			"run one node only, or give all of them the same")
	case !shared || err != nil || onThisHost(u.Hostname()):
	case c.NodeSecret == "":
		warn("other nodes cannot reach this one at its advertised URL without --node-secret, which nodes need beyond loopback")
	case u.Scheme == "ws" || u.Scheme == "http":
		warn("other nodes reach this one without TLS: what they say to each other travels in the clear")
	}
	return warnings
}

func onThisHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// clientHandler serves gateway on /ws and says so to a client that asks for something else.
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
