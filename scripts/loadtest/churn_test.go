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
	g := target.StartGateway(t, "--max-holds=0")
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

func TestAGatewayThatKeepsSomethingFailsTheChurn(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=0")
	for kept, verdictOn := range map[string]string{
		"noncegate_connections": "connections of the gateway", "go_goroutines": "goroutines of the gateway",
		"process_resident_memory_bytes": "memory of the gateway",
	} {
		t.Run(kept, func(t *testing.T) {
			var reads atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := reads.Add(1)
				w.Header().Set("Content-Type", "text/plain; version=0.0.4")
				for _, name := range []string{"noncegate_connections", "go_goroutines", "process_resident_memory_bytes"} {
					value := int64(100 << 20)
					if name == kept {
						value *= n // one reading after the other
					}
					fmt.Fprintf(w, "# TYPE %s gauge\n%s %d\n", name, name, value)
				}
			}))
			defer srv.Close()
			drill(t, t.Context(), quickChurn(g, "--metrics="+srv.URL, "--settle=200ms"), exitFailure, "FAIL    "+verdictOn)
		})
	}
}

func TestAGatewayWithoutMetricsIsSaidToBeSo(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=0")
	drill(t, t.Context(), quickChurn(g), exitOK, "PASS")
	drill(t, t.Context(), quickChurn(g, "--metrics=http://127.0.0.1:1/metrics"), exitOK, "unknown what the clients left behind")
}
