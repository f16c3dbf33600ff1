package report

import (
	"math"
	"math/rand/v2"
	"time"

	"noncegate/scripts/loadtest/result"
)

// sample is a run like a real one: two gateways, marks, subscribers, one second
// in which the database stalled, and a queue that grows. Its figures are made
// up, and the same each time.
func sample() *result.Run {
	random := rand.New(rand.NewPCG(3, 4))
	run := &result.Run{
		Command: "run", Name: "baseline",
		Started: time.Date(2026, 11, 20, 19, 27, 0, 0, time.UTC),
		Targets: []string{"ws://10.0.0.1:8080/ws", "ws://10.0.0.2:8080/ws"},
		Load: result.Load{
			Connections: 1000, Inflight: 4, Rate: 10_000, Signers: 1000, SignerBase: 42_000, Distribution: "uniform",
			Mix: map[string]float64{"nonce_allocate": 6, "nonce_markUsed": 3, "nonce_status": 1}, Subscribers: 10,
			RampUp: 2, Warmup: 3, Duration: 60,
		},
		Seconds: 60.02, Acknowledged: 599_321, PerSecond: 9985.4,
		Refused: map[string]int64{"server_busy": 412, "conflict": 3}, Failed: 64,
		LatencyMs: result.Latency{Count: 599_321, Mean: 2.41, P50: 1.92, P90: 4.1, P95: 5.66, P99: 12.9, P999: 88, Max: 431.5},
		Methods: map[string]result.Method{
			"nonce_allocate": {Acknowledged: 359_000, LatencyMs: result.Latency{Count: 359_000, Mean: 2.6, P50: 2.1, P90: 4.4, P95: 6, P99: 13.5, P999: 91, Max: 431.5}},
			"nonce_markUsed": {Acknowledged: 180_000, LatencyMs: result.Latency{Count: 180_000, Mean: 2.3, P50: 1.8, P90: 3.9, P95: 5.2, P99: 12, P999: 80, Max: 410}},
			"nonce_status":   {Acknowledged: 60_321, LatencyMs: result.Latency{Count: 60_321, Mean: 0.4, P50: 0.31, P90: 0.6, P95: 0.9, P99: 2.4, P999: 30, Max: 120}},
		},
		Events: &result.Events{Received: 5_390_000, Missed: 120, Unmatched: 7, LatencyMs: result.Latency{
			Count: 5_390_000, Mean: 3.4, P50: 2.8, P90: 5.9, P95: 7.7, P99: 19.4, P999: 130, Max: 502}},
		Opened: 1010, Lost: map[string]int64{"unexpected EOF": 2},
		Verify: &result.Verify{Allocations: 359_000, Signers: 1000, Repeats: 3590, Unanswered: 12},
	}
	for i := range 60 {
		second := result.Second{
			At: float64(i), Seconds: 1, Acknowledged: 9950 + random.Int64N(100),
			P50: 1.7 + 0.4*random.Float64(), P95: 5 + random.Float64(), P99: 11 + 4*random.Float64(), Max: 30 + 60*random.Float64(),
		}
		if i == 31 {
			second.Acknowledged, second.Refused, second.Failed = 5200, 412, 64
			second.P50, second.P95, second.P99, second.Max = 210, 390, 421, 431.5
		}
		run.Timeline = append(run.Timeline, second)
	}
	for i, url := range []string{"http://10.0.0.1:8081/metrics", "http://10.0.0.2:8081/metrics"} {
		run.Nodes = append(run.Nodes, sampleNode(random, url, i == 1))
	}
	return run
}

func sampleNode(random *rand.Rand, url string, grows bool) result.Node {
	n := result.Node{Metrics: url, Counters: map[string]float64{
		`noncegate_rejected_total{stage="worker"}`:            206,
		`noncegate_dropped_total{reason="slow"}`:              60,
		`noncegate_lease_acquire_total{result="acquired"}`:    500,
		`noncegate_commit_batch_size_count`:                   41_233,
		`process_cpu_seconds_total`:                           31.7,
		`promhttp_metric_handler_requests_total{code="200"}`:  61,
		`go_memstats_alloc_bytes_total`:                       8.123e9,
		`noncegate_commit_batch_size_sum`:                     299_660,
		`noncegate_encode_seconds_count`:                      299_660,
		`noncegate_lease_renew_total{result="renewed"}`:       240_000,
		`noncegate_fence_rejects_total{op="mark_recyclable"}`: 1,
	}}
	for i, name := range []string{"workerQueueMs", "commitMs", "encodeQueueMs", "writeQueueMs", "postDbQueueMs"} {
		base := []float64{1.4, 2.2, 0.08, 0.12, 0.3}[i]
		s := result.Stage{Name: name, Count: 299_660, P50: base / 2, P95: base, P99: 3 * base}
		for at := range 60 {
			v := base * (0.9 + 0.2*random.Float64())
			if at == 31 {
				v *= 40
			}
			if grows && name == "postDbQueueMs" {
				v += float64(at) / 2
			}
			s.Second = append(s.Second, result.Point{At: float64(at) + 0.4, Value: v})
		}
		s.Growth = result.Growth{FirstThird: base, LastThird: base, Why: "Theil–Sen slope +0.01 ms over the run, median of the last third +0 ms on the first's; margin of both 1 ms"}
		if grows && name == "postDbQueueMs" {
			s.Growth = result.Growth{SlopePerMinute: 30, FirstThird: 5, LastThird: 25, Grows: true, Why: "Theil–Sen slope +30 ms over the run, median of the last third +20 ms on the first's; margin of both 2.5 ms"}
		}
		n.Stages = append(n.Stages, s)
	}
	for at := range 61 {
		n.Memory = append(n.Memory, result.Point{At: float64(at), Value: (80 + 20*(1-math.Exp(-float64(at)/10)) + random.Float64()) * (1 << 20)})
	}
	return n
}
