package cluster

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/nonce"
)

// TestLinksOfALaterStartHaveHigherNumbers, so that the process which a later start has replaced
// ends none of its links.
func TestLinksOfALaterStartHaveHigherNumbers(t *testing.T) {
	last := int64(0)
	for start := range int64(2) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{}, "a")
			w.links.Store((start + 1) << 32) // as Serve does
			w.Nodes(w.nodes())
			for range 2 {
				f := <-w.fars["a"]
				if f.from.number <= last || f.from.node != "self" || f.from.to != "a" {
					t.Errorf("start %d: link %+v after %d", start+1, f.from, last)
				}
				last = f.from.number
				f.cut()
			}
		})
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
		f.cut()
		time.Sleep(time.Minute)
		if n, dials := w.logged("--node-secret"), len(w.net.Dials()); n != 1 || dials != 1 {
			t.Errorf("said so %d times and dialled %d times, want once each", n, dials)
		}
		o := w.allocation("s")
		if err := w.Forward("a", "", &o.Request, 0, o); err != nonce.ErrPeerAway {
			t.Errorf("forward: %v", err)
		}
	})
}

func TestLinksAreBesideTheAddressForClients(t *testing.T) {
	for raw, want := range map[string]string{
		"http://h:1": "ws://h:1/node", "https://h/": "wss://h/node", "ws://h/ws": "ws://h/node", "ws://h/one/ws?x=1": "ws://h/one/node?x=1",
		"ftp://h": "", "ws://": "", "": "", "ws://user@h": "", "ws://%zz": "",
	} {
		if got, err := address(raw, true); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", raw, got, err, want)
		}
	}
}

func TestSettingsThatContradictEachOtherAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Queue: -1}, {Queue: 2, MaxTotal: 1}, {Timeout: time.Millisecond},
	} {
		if _, err := New("self", cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
