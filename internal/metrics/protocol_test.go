package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/wire"
)

func TestRequestsAndRefusalsCountUnderTheirOwnLabel(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New(reg)
	s.Requests(wire.MethodStatus).Add(3)
	s.Requests(MethodUnknown).Inc()
	s.Refused("conflict")
	s.NodeRefused("not_owner")
	s.UnknownOutcomes.Inc()
	s.UpgradeRefused(UpgradeFull)
	s.ConnectionsOpened.Inc()
	s.Closed(CloseRestart)
	got := gathered(t, reg)
	for series, want := range map[string]float64{
		`noncegate_requests_total{method="nonce_status"}`:        3,
		`noncegate_requests_total{method="unknown"}`:             1,
		`noncegate_requests_total{method="nonce_allocate"}`:      0,
		`noncegate_refused_total{reason="conflict"}`:             1,
		`noncegate_refused_total{reason="server_busy"}`:          0,
		`noncegate_refused_total{reason="not_owner"}`:            0,
		`noncegate_node_refused_total{reason="not_owner"}`:       1,
		`noncegate_unknown_outcomes_total`:                       1,
		`noncegate_upgrade_refused_total{reason="full"}`:         1,
		`noncegate_upgrade_refused_total{reason="origin"}`:       0,
		`noncegate_connections_opened_total`:                     1,
		`noncegate_connections_closed_total{reason="restart"}`:   1,
		`noncegate_connections_closed_total{reason="too_large"}`: 0,
		`noncegate_undeclared_labels_total`:                      0,
	} {
		if got, ok := got[series]; !ok || got != want {
			t.Errorf("%s = %v (%v), want %v", series, got, ok, want)
		}
	}
}

func TestAMethodNobodyDeclaredIsSeen(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	New(reg).Requests("nonce_new").Inc()
	if got := gathered(t, reg)["noncegate_undeclared_labels_total"]; got != 1 {
		t.Errorf("%v events under undeclared labels, want 1", got)
	}
}

func TestTheStoreIsAwayFromAFailedHeartbeatToTheNextAnsweredOne(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New(reg)
	for i, step := range []struct {
		result BeatResult
		away   float64
	}{{BeatAnswered, 0}, {BeatFailed, 1}, {BeatFailed, 1}, {BeatAnswered, 0}} {
		s.Heartbeat(step.result)
		if got := gathered(t, reg)["noncegate_store_away"]; got != step.away {
			t.Errorf("after beat %d: store_away is %v, want %v", i, got, step.away)
		}
	}
	got := gathered(t, reg)
	if got[`noncegate_heartbeats_total{result="answered"}`] != 2 || got[`noncegate_heartbeats_total{result="failed"}`] != 2 {
		t.Errorf("heartbeats: %v", got)
	}
}

func TestAGroupOfGaugesIsReadOnceForAll(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	New(reg)
	reads := 0.0
	Gauges(reg, []Named{{"a_bytes", "A."}, {"b_bytes", "B."}}, func() []float64 { reads++; return []float64{reads, -reads} })
	got := gathered(t, reg)
	if got["noncegate_a_bytes"] != 1 || got["noncegate_b_bytes"] != -1 {
		t.Errorf("a %v, b %v; want 1, -1 of the first read", got["noncegate_a_bytes"], got["noncegate_b_bytes"])
	}
}
