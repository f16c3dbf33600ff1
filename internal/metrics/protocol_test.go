package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

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
