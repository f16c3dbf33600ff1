package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/target"
)

func quickChurn(g *target.Gateway, more ...string) []string {
	return append([]string{
		"churn", "--url=" + g.URL, "--rate=100", "--requests=2", "--duration=1s", "--signers=10", "--min-acknowledged=10",
	}, more...)
}

func TestAGatewayIsAfterTheChurnWhatItWasBefore(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	d := drill(t, t.Context(), quickChurn(g, "--metrics="+g.Metrics, "--json=-"), exitOK)
	got := decode[result.Run](t, d)
	if got.Command != "churn" || got.Opened != 100 || got.Methods["connect"].Acknowledged != 100 || got.Acknowledged != 200 {
		t.Errorf("%+v; want 100 visitors with two requests each", got)
	}
	for _, name := range []string{"connections of the gateway", "goroutines of the gateway", "memory of the gateway"} {
		if v := verdict(t, got.Verdicts, name); !v.Passed || v.Unknown {
			t.Errorf("%+v, want that it was judged and passed", v)
		}
	}
}

// gaugesPage is a /metrics page with what a churn looks at.
func gaugesPage(t *testing.T, value func(name string) int64) (url string) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		for _, name := range []string{"noncegate_connections", "go_goroutines", "process_resident_memory_bytes"} {
			fmt.Fprintf(w, "# TYPE %s gauge\n%s %d\n", name, name, value(name))
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestLongAGatewayThatKeepsSomethingFailsTheChurn(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	for kept, verdictOn := range map[string]string{
		"noncegate_connections": "connections of the gateway", "go_goroutines": "goroutines of the gateway",
		"process_resident_memory_bytes": "memory of the gateway",
	} {
		t.Run(kept, func(t *testing.T) {
			var reads atomic.Int64
			url := gaugesPage(t, func(name string) int64 {
				if name == kept {
					return (100 << 20) * reads.Add(1) // one reading after the other
				}
				return 100 << 20
			})
			drill(t, t.Context(), quickChurn(g, "--metrics="+url, "--settle=200ms"), exitFailure, "FAIL    "+verdictOn)
		})
	}
}

func TestWhatAnEarlierDrillLeftBehindIsNotWhatThereWasBefore(t *testing.T) {
	var visited atomic.Bool
	url := target.Serve(t, func(c *target.Conn, _ int, message []byte) error {
		visited.CompareAndSwap(false, true)
		return c.Reply(`{"jsonrpc":"2.0","id":1,"result":{"nonce":1,"attempt":1,"holdMs":60000}}`)
	})
	var reads atomic.Int64
	metrics := gaugesPage(t, func(name string) int64 {
		switch {
		case name != "go_goroutines":
			return 1
		case visited.Load():
			return 500 // it keeps something, though less than it has still had at first
		case reads.Add(1) < 3:
			return 1000
		}
		return 100
	})
	drill(t, t.Context(), []string{
		"churn", "--url=" + url, "--metrics=" + metrics, "--rate=100", "--requests=1", "--duration=500ms", "--min-acknowledged=1", "--settle=1500ms",
	}, exitFailure, "FAIL    goroutines of the gateway afterwards: 500 (want: at most 120, as before)", "at most 1,000 at a time (--max-open)")
}

func TestAChurnWithoutFiguresOfTheGatewayFails(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	drill(t, t.Context(), quickChurn(g), exitFailure, "FAIL    what the clients left behind: not known: no /metrics was asked")
	drill(t, t.Context(), quickChurn(g, "--metrics=http://127.0.0.1:1/metrics"), exitFailure, "FAIL    what the clients left behind: not known: read")
}
