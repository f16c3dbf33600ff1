package cluster

import (
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/nonce"
	"noncegate/wire"
)

func TestAnUpgradeSaysWhoDialsWhomTheStoreAndTheSecret(t *testing.T) {
	linked(t, Config{Store: func() string { return "here" }}, func(t *testing.T, w *world, f *far) {
		if from, to, secret := f.Header.Get("Noncegate-Node"), f.Header.Get("Noncegate-Node-To"), f.Header.Get("Noncegate-Node-Secret"); from != "self" || to != "a" || secret != "sesame" {
			t.Errorf("from %q to %q with %q", from, to, secret)
		}
		if store := f.Header.Get("Noncegate-Node-Store"); store != "here" {
			t.Errorf("of the store %q", store)
		}
		if link, err := strconv.ParseInt(f.Header.Get("Noncegate-Node-Link"), 10, 64); err != nil || link <= 0 {
			t.Errorf("link %d, %v", link, err)
		}
	})
}

// TestLinksOfALaterStartHaveHigherNumbers, so that the process which a later start has replaced
// ends none of its links.
func TestLinksOfALaterStartHaveHigherNumbers(t *testing.T) {
	last := int64(0)
	for start := range int64(2) {
		r := &Router{self: "self", ctx: t.Context(), served: make(chan struct{})}
		r.Serve(start+1, nil)
		for _, to := range []string{"a", "b", "a"} { // the registry may name a node, not name it, and name it again
			p := newPeer(r, node(to, 1))
			defer p.cancel(nil)
			link, err := strconv.ParseInt(p.header().Get(wire.HeaderNodeLink), 10, 64)
			if err != nil || link <= last {
				t.Errorf("start %d: link %d after %d, %v", start+1, link, last, err)
			}
			last = link
		}
	}
}

func TestWithoutASecretNodesAreDialledOverLoopbackOnly(t *testing.T) {
	for url, want := range map[string]bool{
		"ws://127.0.0.1:1/ws": true, "http://localhost:1": true, "ws://[::1]:1": true, "ws://127.9.9.9": true,
		"ws://10.0.0.1:1/ws": false, "wss://example.org": false, "ws://127.0.0.1.example.org": false, "ws://[2001:db8::1]": false,
	} {
		if _, err := address(url, false); (err == nil) != want {
			t.Errorf("%s: %v", url, err)
		}
		if _, err := address(url, true); err != nil {
			t.Errorf("%s with a secret: %v", url, err)
		}
	}
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.Router.cfg.Secret = ""
		f.Cut()
		time.Sleep(time.Minute)
		if n := w.logged("--node-secret"); n != 1 || w.dials() != 1 {
			t.Errorf("said so %d times and dialled %d times, want once each", n, w.dials())
		}
		if err := forwardTo(w.Router, w.svc, "a", "", allocation("s")); err != nonce.ErrPeerAway {
			t.Errorf("forward: %v", err)
		}
	})
}

func TestAnAddressIsAWebSocketURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://h:1": "ws://h:1/ws", "https://h/": "wss://h/ws", "ws://h/other?x=1": "ws://h/other?x=1",
		"ftp://h": "", "ws://": "", "": "", "ws://user@h": "", "ws://%zz": "",
	} {
		if got, err := address(raw, true); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", raw, got, err, want)
		}
	}
}

func TestSettingsThatContradictEachOtherAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Queue: -1}, {Queue: maxQueue + 1}, {Timeout: time.Millisecond}, {BackoffMin: time.Second, BackoffMax: time.Millisecond},
	} {
		if _, err := New("self", cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
