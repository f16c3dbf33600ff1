// Package metrics has the functions by which packages of a gateway create their metrics
// (NewCount, NewFamily, Gauge and others, each with a registerer), and Set, the metrics
// that the ws_perf log line and gateway_stats report as well: how long each stage took, and
// what was refused, dropped and kicked. All others are declared by the package that counts
// them; what nonce/service measures at the moment is here (Nonce), because it does not import
// Prometheus, and what can be read of it is a gauge or counter of cmd/gateway.
//
// Every duration of a Set is counted twice at one call. Prometheus sees a histogram in
// seconds since the start of the process; ws_perf and gateway_stats see the last complete
// interval in milliseconds, with percentiles exact to one per cent and an exact maximum.
// Counters are one number read by both.
//
// It promises: observing takes no allocation, waits for no I/O, and stays well below
// 100 ns; memory is fixed when metrics are created; label values are closed sets of
// constants, each present from the start, so that events that never happened show as 0.
// It evaluates nothing, and no label names a signer, a connection or a request.
//
// The package starts no goroutine. The caller of Run owns the goroutine it runs
// in, and there is one at a time. All other methods are safe for concurrent use.
package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/backpressure"
	"noncegate/wire"
)

const namespace = "noncegate"

// Set is what ws_perf and gateway_stats tell of one gateway. Make it with New.
type Set struct {
	// The stages of a request's life. Each observation is the time one item
	// spent there.
	EncodeQueue *Stage // queued for encoding until encoding starts
	Encode      *Stage // encoding one message
	PostDBQueue *Stage // queued after a commit until the task runs
	WriteQueue  *Stage // encoded until its write starts
	WorkerQueue *Stage // queued at its worker until its batch is taken
	Commit      *Stage // one transaction of the store, commit included
	BatchSize   *Sizes // requests in one commit

	Connections *Level // open WebSocket connections

	rejected Family[string]
	dropped  Family[backpressure.DropReason]
	kicked   Family[backpressure.KickReason]

	began     time.Time                                // of the running interval; Run's alone
	seen      tally                                    // the counters at began; Run's alone
	engine    atomic.Pointer[func() *wire.EngineStats] // see EngineFrom
	published atomic.Pointer[wire.StatsResult]
}

// New makes the metrics and registers them with reg. The first interval begins
// now. It panics when reg already has metrics of these names: one registry
// serves one gateway.
func New(reg prometheus.Registerer) *Set {
	s := &Set{
		EncodeQueue: newStage(reg, "encode_queue_seconds", "Time a message waited until its encoding started (encodeQueueMs in ws_perf)."),
		Encode:      newStage(reg, "encode_seconds", "Time to encode one message (encodeMs in ws_perf)."),
		PostDBQueue: newStage(reg, "postdb_queue_seconds", "Time a task waited after its commit until it ran (postDbQueueMs in ws_perf)."),
		WriteQueue:  newStage(reg, "write_queue_seconds", "Time an encoded frame waited until its write started (writeQueueMs in ws_perf)."),
		WorkerQueue: newStage(reg, "worker_queue_seconds", "Time a request waited at its worker until its batch was taken (workerQueueMs in ws_perf)."),
		Commit:      newStage(reg, "commit_seconds", "Time of one transaction of the store, commit included (commitMs in ws_perf)."),
		BatchSize:   newSizes(reg, "commit_batch_size", "Requests in one commit (commitBatchSize in ws_perf)."),

		Connections: NewLevel(reg, "connections", "Open WebSocket connections."),

		rejected: NewFamily(reg, "rejected_total", "stage", "Requests refused as server_busy (busy_reject in ws_perf).", stages...),
		dropped:  NewFamily(reg, "dropped_total", "reason", "Notifications not delivered (slow, no_room and messages together are drop_unwritable in ws_perf).", dropReasons...),
		kicked:   NewFamily(reg, "kicked_total", "reason", "Connections the gateway closed (all but idle are kick_slow in ws_perf).", kickReasons...),

		began: time.Now(),
	}
	s.published.Store(&wire.StatsResult{})
	return s
}

// Rejected counts n requests refused at a bounded stage.
func (s *Set) Rejected(stage string, n int) { s.rejected.Add(stage, n) }

// Dropped counts n notifications that will not be delivered.
func (s *Set) Dropped(reason backpressure.DropReason, n int) { s.dropped.Add(reason, n) }

// Kicked counts a connection closed for the reason.
func (s *Set) Kicked(reason backpressure.KickReason) { s.kicked.Inc(reason) }
