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
	"noncegate/test/lab/expect"
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
		t.Log("beat", i)
		expect.Metrics(t, reg, map[string]float64{"store_away": step.away, "heartbeats_total{" + string(beatFailed) + "}": step.failed})
	}
}

func TestTheMetricsOfAGatewayAreThereFromTheStartAndCleanByPromlint(t *testing.T) {
	cfg := runArgs(t, "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=sqlite:"+filepath.Join(t.TempDir(), "nonces.db"), "--chain=eip155:1=http://127.0.0.1:1").cfg
	a, err := start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	defer func() {
		expect.Check(t, a.stop(t.Context()))
	}()
	problems, err := testutil.GatherAndLint(a.registry)
	expect.Must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, name := range []string{"panics_total", "unknown_commits_total", "signers_stopped", "signers_remembered", "subscriptions", "outbound_bytes",
		"connections_paused", "open_holds", "unknown_holds", "released_nonces", "repeated_nonces", "oldest_overdue_hold_seconds", "signers_unreadable",
		"signer_memory_bytes", "chain_gaps", "chain_unknown_holds", "chain_stopped", "chain_head_number"} {
		expect.Metrics(t, a.registry, map[string]float64{name: 0})
	}
	expect.Metrics(t, a.registry, map[string]float64{"shards": sqlite.DefaultShards, "signer_memory_max_bytes": 512 << 20, "lease_ttl_seconds": 5})
}
