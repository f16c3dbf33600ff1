package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/sqlite"
)

// beats is a store that answers each heartbeat with the next of its errors.
type beats struct {
	nonce.Store
	errs []error
}

func (b *beats) Renew(context.Context, lease.Holder, time.Duration) (lease.Renewal, error) {
	err := b.errs[0]
	b.errs = b.errs[1:]
	return lease.Renewal{}, err
}

func TestAHeartbeatThatIsNotAnsweredSaysThatTheStoreIsAway(t *testing.T) {
	reg := prometheus.NewRegistry()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := countRenewals(&beats{errs: []error{nil, errors.New("cut"), lease.ErrWentBack, context.Canceled}}, reg)
	for i, step := range []struct {
		ctx          context.Context
		away, failed float64
	}{
		{t.Context(), 0, 0},
		{t.Context(), 1, 1},
		{t.Context(), 0, 1}, // bad news is an answer
		{ended, 0, 1},       // and the end of this node none of the store's doing
	} {
		_, _ = r.Renew(step.ctx, lease.Holder{}, time.Second)
		if got := metricOf(t, reg, "noncegate_store_away", ""); got != step.away {
			t.Errorf("beat %d: store_away is %v, want %v", i, got, step.away)
		}
		if got := metricOf(t, reg, "noncegate_heartbeats_total", string(beatFailed)); got != step.failed {
			t.Errorf("beat %d: %v failed, want %v", i, got, step.failed)
		}
	}
}

func TestTheMetricsOfAGatewayAreThereFromTheStartAndCleanByPromlint(t *testing.T) {
	cfg := runArgs(t, "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=sqlite:"+filepath.Join(t.TempDir(), "nonces.db"), "--chain=eip155:1=http://127.0.0.1:1").cfg
	a, err := start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	problems, err := testutil.GatherAndLint(a.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, name := range []string{"noncegate_panics_total", "noncegate_unknown_commits_total", "noncegate_signers_stopped", "noncegate_signers_remembered",
		"noncegate_subscriptions", "noncegate_outbound_bytes", "noncegate_connections_paused",
		"noncegate_open_holds", "noncegate_unknown_holds", "noncegate_released_nonces", "noncegate_repeated_nonces", "noncegate_oldest_overdue_hold_seconds", "noncegate_signers_unreadable"} {
		if got := metricOf(t, a.registry, name, ""); got != 0 {
			t.Errorf("%s is %v at the start", name, got)
		}
	}
	for _, name := range []string{"noncegate_chain_gaps", "noncegate_chain_unknown_holds", "noncegate_chain_stopped", "noncegate_chain_head_number", "noncegate_chain_node_up"} {
		if got := metricOf(t, a.registry, name, "eip155:1"); got != 0 {
			t.Errorf("%s is %v at the start", name, got)
		}
	}
	for name, want := range map[string]float64{
		"noncegate_shards": sqlite.DefaultShards, "noncegate_signer_memory_bytes": 0, "noncegate_signer_memory_max_bytes": 512 << 20, "noncegate_lease_ttl_seconds": 5,
	} {
		if got := metricOf(t, a.registry, name, ""); got != want {
			t.Errorf("%s is %v at the start, want %v", name, got, want)
		}
	}
}

// metricOf is the value of a counter or gauge, the one with the label value where
// it has a label.
func metricOf(t *testing.T, reg prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s{%s}", name, label)
	return 0
}
