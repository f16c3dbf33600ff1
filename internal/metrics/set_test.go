package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"noncegate/backpressure"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var degraded = wire.EngineStats{State: "DEGRADED", Generation: 4, Shards: 3, Unshipped: 17, BehindMs: 1500}

// exercise makes every metric other than it began.
func exercise(s *Set) {
	for _, stage := range []*Stage{s.EncodeQueue, s.Encode, s.PostDBQueue, s.WriteQueue, s.WorkerQueue, s.Commit} {
		stage.Observe(3 * time.Millisecond)
	}
	s.BatchSize.Observe(7)
	s.Connections.Add(5)
	s.Rejected(wire.StageWorker, 2)
	s.Dropped(backpressure.DropSlow, 2)
	s.Dropped(backpressure.DropMessages, 1)
	s.Dropped(DropPostDBFull, 4)
	s.Kicked(backpressure.KickSlow)
	s.Kicked(KickIdle)
	s.EngineFrom(func() *wire.EngineStats { e := degraded; return &e })
}

func TestEveryLabelValueShowsZeroFromTheStart(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	NewNonce(reg, New(reg))
	const want = `
# HELP noncegate_rejected_total Requests refused as server_busy (busy_reject in ws_perf).
# TYPE noncegate_rejected_total counter
noncegate_rejected_total{stage="connection"} 0
noncegate_rejected_total{stage="encode"} 0
noncegate_rejected_total{stage="forward"} 0
noncegate_rejected_total{stage="guard"} 0
noncegate_rejected_total{stage="inflight"} 0
noncegate_rejected_total{stage="postdb"} 0
noncegate_rejected_total{stage="quota"} 0
noncegate_rejected_total{stage="worker"} 0
# HELP noncegate_fence_rejects_total Operations refused because ownership was lost.
# TYPE noncegate_fence_rejects_total counter
noncegate_fence_rejects_total{op="allocate"} 0
noncegate_fence_rejects_total{op="extend"} 0
noncegate_fence_rejects_total{op="floor"} 0
noncegate_fence_rejects_total{op="mark_recyclable"} 0
noncegate_fence_rejects_total{op="mark_signed"} 0
noncegate_fence_rejects_total{op="mark_used"} 0
noncegate_fence_rejects_total{op="repair"} 0
`
	err := testutil.GatherAndCompare(reg, strings.NewReader(want), "noncegate_rejected_total", "noncegate_fence_rejects_total")
	expect.Check(t, err)
}

func TestEachCounterCountsUnderItsOwnLabel(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New(reg)
	s.Kicked(backpressure.KickHardCap)
	s.Dropped(backpressure.DropSlow, 3)
	n := NewNonce(reg, s)
	n.LeaseAcquire(lease.AcquireTakeover)
	n.LeaseAcquire(lease.AcquireTakeover)
	n.LeaseRenew(nonce.RenewLate)
	n.FenceReject(nonce.KindSetFloor)
	n.Swept(4)
	n.WentBack()
	n.Invariant()
	n.SweepsPaused(true)
	expect.Metrics(t, reg, map[string]float64{
		"lease_acquire_total{takeover}": 2, "lease_acquire_total{acquired}": 0, "lease_renew_total{late}": 1,
		"fence_rejects_total{floor}": 1, "fence_rejects_total{allocate}": 0, "dropped_total{slow}": 3, "holds_expired_total": 4,
		"kicked_total{hard_cap}": 1, "store_went_back_total": 1, "invariant_alarms_total": 1, "sweeps_paused": 1,
	})
}

func TestAGroupOfGaugesIsReadOnceForAll(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	New(reg)
	reads := 0.0
	Gauges(reg, []Named{{"a_bytes", "A."}, {"b_bytes", "B."}}, func() []float64 { reads++; return []float64{reads, -reads} })
	const first = `
# HELP noncegate_a_bytes A.
# TYPE noncegate_a_bytes gauge
noncegate_a_bytes 1
# HELP noncegate_b_bytes B.
# TYPE noncegate_b_bytes gauge
noncegate_b_bytes -1
`
	expect.Check(t, testutil.GatherAndCompare(reg, strings.NewReader(first), "noncegate_a_bytes", "noncegate_b_bytes"))
}

func TestTheHelpOfEachStageNamesItsTwinInWsPerf(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	New(reg)
	families, err := reg.Gather()
	expect.Must(t, err)
	twins := map[string]string{
		"noncegate_encode_queue_seconds": "encodeQueueMs",
		"noncegate_encode_seconds":       "encodeMs",
		"noncegate_postdb_queue_seconds": "postDbQueueMs",
		"noncegate_write_queue_seconds":  "writeQueueMs",
		"noncegate_worker_queue_seconds": "workerQueueMs",
		"noncegate_commit_seconds":       "commitMs",
		"noncegate_commit_batch_size":    "commitBatchSize",
		"noncegate_rejected_total":       "busy_reject",
		"noncegate_dropped_total":        "drop_unwritable",
		"noncegate_kicked_total":         "kick_slow",
	}
	keys := keysOf(t, wire.StatsResult{})
	for _, f := range families {
		twin, ok := twins[f.GetName()]
		if !ok {
			continue
		}
		delete(twins, f.GetName())
		if !strings.Contains(f.GetHelp(), twin+" in ws_perf") {
			t.Errorf("help of %s does not name %s: %q", f.GetName(), twin, f.GetHelp())
		}
		if _, ok := keys[twin]; !ok {
			t.Errorf("%s is no key of wire.StatsResult", twin)
		}
	}
	for name := range twins {
		t.Errorf("%s is not registered", name)
	}
}

func TestAnIntervalHasPercentilesWithinOnePerCentAndAnExactMaximum(t *testing.T) {
	s := New(prometheus.NewRegistry())
	for i := 1; i <= 1000; i++ {
		s.Commit.Observe(time.Duration(i) * time.Millisecond)
	}
	s.Commit.Observe(1000_123_456 * time.Nanosecond)
	got := s.roll().CommitMs
	if got.Count != 1001 || got.Max != 1000.123456 {
		t.Errorf("count %d, max %v; want 1001, 1000.123456", got.Count, got.Max)
	}
	for _, p := range []struct{ got, want float64 }{{got.P50, 500}, {got.P95, 950}, {got.P99, 990}} {
		if p.got < p.want*0.99 || p.got > p.want*1.01 {
			t.Errorf("percentile %v, want %v within 1 %%", p.got, p.want)
		}
	}
}

func TestValuesOutOfRangeAreCountedAtItsEnds(t *testing.T) {
	s := New(prometheus.NewRegistry())
	s.Encode.Observe(-time.Second)
	s.Encode.ObserveN(time.Hour, 3)
	got := s.roll().EncodeMs
	if want := float64(time.Hour / time.Millisecond); got.Count != 4 || got.Max != want {
		t.Errorf("count %d, max %v; want 4, %v", got.Count, got.Max, want)
	}
	if minute := 60_000.0; got.P99 < minute || got.P99 > minute*1.01 {
		t.Errorf("p99 %v, want about %v", got.P99, minute)
	}
	for range 2 { // intervals take turns with two histograms
		if got := s.roll().EncodeMs; got != (wire.Figure{}) {
			t.Errorf("a later interval holds %+v, want nothing", got)
		}
	}
}

func TestRunReportsEachIntervalApartAndStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := New(prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			s.Run(ctx, 10*time.Second, slog.New(slog.NewJSONHandler(&out, nil)))
		}()

		exercise(s)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if got := s.Stats(); got != (wire.StatsResult{}) {
			t.Errorf("before the first interval ended: %+v, want nothing", got)
		}

		time.Sleep(time.Second)
		synctest.Wait()
		first := s.Stats()
		if first.IntervalMs != 10_000 || first.Connections != 5 || first.BusyReject != 2 ||
			first.DropUnwritable != 3 || first.KickSlow != 1 || first.CommitMs.Count != 1 ||
			first.CommitMs.Max != 3 || first.CommitBatchSize.P50 != 7 {
			t.Errorf("first interval: %+v", first)
		}

		time.Sleep(10 * time.Second)
		synctest.Wait()
		quiet := s.Stats()
		if got := quiet.Engine; got == nil || *got != degraded {
			t.Errorf("the engine in it: %+v, want %+v", got, degraded)
		}
		quiet.Engine = nil
		if want := (wire.StatsResult{IntervalMs: 10_000, Connections: 5}); quiet != want {
			t.Errorf("a quiet interval: %+v, want %+v", quiet, want)
		}

		cancel()
		<-returned
		if got := strings.Count(out.String(), "\n"); got != 1 {
			t.Errorf("%d log lines, want one, none for the interval without requests:\n%s", got, out.String())
		}
	})
}

func TestTheLogLineIsStatsResultAsJSON(t *testing.T) {
	s := New(prometheus.NewRegistry())
	exercise(s)
	var out bytes.Buffer
	stats := s.roll()
	slog.New(slog.NewJSONHandler(&out, nil)).LogAttrs(t.Context(), slog.LevelInfo, Message, attrs(stats)...)

	var line map[string]any
	expect.Must(t, json.Unmarshal(out.Bytes(), &line))
	if line["msg"] != "ws_perf" {
		t.Errorf("msg %q, want ws_perf", line["msg"])
	}
	for _, k := range []string{"time", "level", "msg"} {
		delete(line, k)
	}
	if want := keysOf(t, stats); !reflect.DeepEqual(line, want) {
		t.Errorf("line %v\nwant %v", line, want)
	}
}

func keysOf(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	expect.Must(t, err)
	var keys map[string]any
	expect.Must(t, json.Unmarshal(text, &keys))
	return keys
}

func TestNothingIsLostBetweenIntervals(t *testing.T) {
	s := New(prometheus.NewRegistry())
	const each = 5000
	var observers sync.WaitGroup
	for range 4 {
		observers.Go(func() {
			for range each {
				s.WriteQueue.Observe(time.Microsecond)
				s.Rejected(wire.StageEncode, 1)
			}
		})
	}
	var observed, rejected int64
	add := func() {
		r := s.roll()
		observed += r.WriteQueueMs.Count
		rejected += r.BusyReject
	}
	done := make(chan struct{})
	go func() { observers.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		add() // once more after the last observation
	}
	if observed != 4*each || rejected != 4*each {
		t.Errorf("intervals add up to %d observed and %d rejected, want %d each", observed, rejected, 4*each)
	}
}

func TestAnUndeclaredLabelMakesNoSeriesAndIsSeen(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New(reg)
	before, err := testutil.GatherAndCount(reg)
	expect.Must(t, err)
	s.Dropped("because", 3)
	expect.Metrics(t, reg, map[string]float64{"undeclared_labels_total": 3})
	if after, err := testutil.GatherAndCount(reg); err != nil || after != before {
		t.Errorf("%d series, %v; want %d", after, err, before)
	}
}

func TestObservingDoesNotAllocate(t *testing.T) {
	s := New(prometheus.NewRegistry())
	if n := testing.AllocsPerRun(100, func() {
		s.Encode.Observe(time.Microsecond)
		s.BatchSize.Observe(3)
		s.Rejected(wire.StageWorker, 1)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestEveryReasonToDropOrToKickIsDeclared(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := New(reg)
	for _, r := range []backpressure.DropReason{backpressure.DropSlow, backpressure.DropNoRoom, backpressure.DropMessages, backpressure.DropEncode} {
		s.Dropped(r, 1)
	}
	for _, r := range []backpressure.KickReason{backpressure.KickHardCap, backpressure.KickTooOld, backpressure.KickSlow, backpressure.KickWriteTimeout} {
		s.Kicked(r)
	}
	expect.Metrics(t, reg, map[string]float64{"undeclared_labels_total": 0})
}
