// Package metrics keeps the figures of a gateway: how long each stage took, what
// was refused, dropped and kicked, and what became of leases and fences.
//
// Every duration is counted twice at one call. Prometheus sees a histogram in
// seconds since the start of the process; the ws_perf log line and
// gateway_stats see the last complete interval in milliseconds, with
// percentiles exact to one per cent and an exact maximum. Counters are one
// number read by both.
//
// What it promises: observing takes no allocation, waits for no I/O, and stays
// well below 100 ns; memory is fixed at New; label values are closed sets of
// constants, each present from the start, so that what never happened shows as
// 0. What it does not: it judges nothing, and never
// carries a signer, a connection or a request.
//
// The package starts no goroutine. Whoever calls Run owns the goroutine it runs
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

// Set is all figures of one gateway. Make it with New.
type Set struct {
	// The stages of a request's life. Each observation is the time one item
	// spent there.
	EncodeQueue *Stage // queued for encoding until encoding starts
	Encode      *Stage // encoding one message
	PostDBQueue *Stage // queued after a commit until the task runs
	WriteQueue  *Stage // encoded until its write starts
	WorkerQueue *Stage // queued at its shard until its batch is taken
	Commit      *Stage // one transaction of the store, commit included
	BatchSize   *Sizes // requests in one commit

	Connections  *Level // open WebSocket connections
	SweepsPaused *Level // 1 while a jump of the store's clock pauses sweeps
	StoreAway    *Level // 1 while the last heartbeat was not answered; Heartbeat sets it
	Halted       *Level // 1 once the node has stopped serving until its process ends

	ConnectionsOpened *Count // WebSocket connections that were accepted
	UnknownOutcomes   *Count // replies that leave open whether the work happened
	StoreWentBack     *Count // times the store showed less than was seen before
	InvariantAlarms   *Count // rows found not as the rules left them
	HoldsExpired      *Count // holds that were not marked in time

	Forward *Stage // from the shard that sends a request to another node to its answer

	// The locks of the duplicate-submit guard.
	GuardAcquired   *Count // taken
	GuardRefused    *Count // somebody else had it
	GuardUnanswered *Count // nobody said, and the call was refused
	GuardReleased   *Count // given back
	GuardKept       *Count // left until they end, as was asked for
	GuardHold       *Stage // from taken until given back, or the end of the call

	guardFailed family[GuardFailure]

	forwarded    family[ForwardResult]
	rejected     family[RejectStage]
	dropped      family[backpressure.DropReason]
	kicked       family[backpressure.KickReason]
	leaseAcquire family[AcquireResult]
	leaseRenew   family[RenewResult]
	fenceRejects family[FenceOp]

	requests       family[Method]
	refused        family[RefuseReason]
	nodeRefused    family[RefuseReason]
	upgradeRefused family[UpgradeReason]
	closed         family[CloseReason]
	heartbeats     family[BeatResult]
	loggedIn       family[Login]
	loginRefused   family[LoginRefusal]

	reg prometheus.Registerer

	began     time.Time                                // of the running interval; Run's alone
	seen      tally                                    // the counters at began; Run's alone
	engine    atomic.Pointer[func() *wire.EngineStats] // see EngineFrom
	published atomic.Pointer[wire.StatsResult]
}

// New makes the figures and registers them with reg. The first interval begins
// now. It panics when reg already has figures of these names: one registry
// serves one gateway.
func New(reg prometheus.Registerer) *Set {
	undeclared := newCount(reg, "undeclared_labels_total", "Events counted nowhere else because nobody declared their label value; any is a mistake of the program.")
	s := &Set{
		EncodeQueue: newStage(reg, "encode_queue_seconds", "Time a message waited until its encoding started (encodeQueueMs in ws_perf)."),
		Encode:      newStage(reg, "encode_seconds", "Time to encode one message (encodeMs in ws_perf)."),
		PostDBQueue: newStage(reg, "postdb_queue_seconds", "Time a task waited after its commit until it ran (postDbQueueMs in ws_perf)."),
		WriteQueue:  newStage(reg, "write_queue_seconds", "Time an encoded frame waited until its write started (writeQueueMs in ws_perf)."),
		WorkerQueue: newStage(reg, "worker_queue_seconds", "Time a request waited at its shard until its batch was taken (workerQueueMs in ws_perf)."),
		Commit:      newStage(reg, "commit_seconds", "Time of one transaction of the store, commit included (commitMs in ws_perf)."),
		BatchSize:   newSizes(reg, "commit_batch_size", "Requests in one commit (commitBatchSize in ws_perf)."),

		Connections:  newLevel(reg, "connections", "Open WebSocket connections."),
		SweepsPaused: newLevel(reg, "sweeps_paused", "1 while sweeps of due holds are paused because the store's clock jumped."),
		StoreAway:    newLevel(reg, "store_away", "1 while the last heartbeat was not answered by the store."),
		Halted:       newLevel(reg, "halted", "1 once the node has stopped serving: the store went back as a whole, or a later start of its node id exists."),

		ConnectionsOpened: newCount(reg, "connections_opened_total", "WebSocket connections that were accepted."),
		UnknownOutcomes:   newCount(reg, "unknown_outcomes_total", "Replies to clients: unavailable with outcome unknown: the work may or may not have happened, and only the same request id asks."),
		StoreWentBack:     newCount(reg, "store_went_back_total", "Times the store showed less than was seen before."),
		InvariantAlarms:   newCount(reg, "invariant_alarms_total", "Rows found not as the rules left them; any is an alarm."),
		HoldsExpired:      newCount(reg, "holds_expired_total", "Holds whose deadline passed without a mark: their nonces came back, or are unknown from then on."),

		Forward: newStage(reg, "forward_seconds", "Time from sending a request to the node that owns its signer to the answer."),

		GuardAcquired:   newCount(reg, "guard_acquired_total", "Locks taken for guarded calls."),
		GuardRefused:    newCount(reg, "guard_refused_total", "Locks of guarded calls that somebody else had. The call is duplicate_submit, unless its request id is known."),
		GuardUnanswered: newCount(reg, "guard_unanswered_total", "Locks of guarded calls of which nobody knows whether they were taken. The call is unavailable, unless its request id is known."),
		GuardReleased:   newCount(reg, "guard_released_total", "Locks given back at the end of their call."),
		GuardKept:       newCount(reg, "guard_kept_total", "Locks left until they end by themselves, because the call asked for it."),
		GuardHold:       newStage(reg, "guard_hold_seconds", "Time from taking the lock of a guarded call until it was given back, or could not be. Those that are kept are not in it."),

		guardFailed:  newFamily(reg, undeclared, "guard_release_failed_total", "reason", "Locks not given back at the end of their call: value_mismatch, it had ended before or is somebody else's; away, nobody answered, and it ends by itself.", guardFailures),
		forwarded:    newFamily(reg, undeclared, "forwarded_total", "result", "Requests sent to the node that owns their signer: answered there; bounced, to be routed again; unanswered, sent and not answered, asked again; expired, told unknown; busy, refused for want of a place; away, that node does not answer.", forwardResults),
		rejected:     newFamily(reg, undeclared, "rejected_total", "stage", "Requests refused as server_busy (busy_reject in ws_perf).", rejectStages),
		dropped:      newFamily(reg, undeclared, "dropped_total", "reason", "Notifications not delivered (slow, no_room and messages together are drop_unwritable in ws_perf).", dropReasons),
		kicked:       newFamily(reg, undeclared, "kicked_total", "reason", "Connections the gateway closed (all but idle are kick_slow in ws_perf).", kickReasons),
		leaseAcquire: newFamily(reg, undeclared, "lease_acquire_total", "result", "Attempts to take a shard.", acquireResults),
		leaseRenew:   newFamily(reg, undeclared, "lease_renew_total", "result", "Heartbeats that renewed the lease of this node; late: it had ended before.", renewResults),
		fenceRejects: newFamily(reg, undeclared, "fence_rejects_total", "op", "Operations refused because ownership was lost.", fenceOps),

		requests:       newFamily(reg, undeclared, "requests_total", "method", "Requests read, refused ones included; unknown is what is no method, or no request.", requestMethods),
		refused:        newFamily(reg, undeclared, "refused_total", "reason", "Error replies to clients, by data.reason.", refuseReasons),
		nodeRefused:    newFamily(reg, undeclared, "node_refused_total", "reason", "Error replies to other nodes, which route the request again or pass the answer on, by data.reason.", refuseReasons),
		upgradeRefused: newFamily(reg, undeclared, "upgrade_refused_total", "reason", "Clients not let in, before or at the WebSocket handshake.", upgradeReasons),
		closed:         newFamily(reg, undeclared, "connections_closed_total", "reason", "Connections that ended, by what ended them first.", closeReasons),
		heartbeats:     newFamily(reg, undeclared, "heartbeats_total", "result", "Heartbeats of this node to the store.", beatResults),
		loggedIn:       newFamily(reg, undeclared, "logins_total", "credential", "Credentials accepted, at the upgrade or for a ticket.", logins),
		loginRefused:   newFamily(reg, undeclared, "logins_refused_total", "reason", "Credentials not accepted, at the upgrade or for a ticket, by why.", loginRefusals),

		reg:   reg,
		began: time.Now(),
	}
	s.published.Store(&wire.StatsResult{})
	return s
}

// Rejected counts n requests refused at a bounded stage.
func (s *Set) Rejected(stage RejectStage, n int) { s.rejected.add(stage, n) }

// GuardReleaseFailed counts the lock of a guarded call that was not given back.
func (s *Set) GuardReleaseFailed(why GuardFailure) { s.guardFailed.add(why, 1) }

// Forwarded counts a request that was to go to another node.
func (s *Set) Forwarded(result ForwardResult) { s.forwarded.add(result, 1) }

// Dropped counts n notifications that will not be delivered.
func (s *Set) Dropped(reason backpressure.DropReason, n int) { s.dropped.add(reason, n) }

// Kicked counts a connection closed for the reason.
func (s *Set) Kicked(reason backpressure.KickReason) { s.kicked.add(reason, 1) }

// LeaseAcquire counts n signers whose lease was asked for.
func (s *Set) LeaseAcquire(result AcquireResult, n int) { s.leaseAcquire.add(result, n) }

// LeaseRenew counts n signers whose lease a write renewed.
func (s *Set) LeaseRenew(result RenewResult, n int) { s.leaseRenew.add(result, n) }

// FenceRejects counts n operations refused because ownership was lost.
func (s *Set) FenceRejects(op FenceOp, n int) { s.fenceRejects.add(op, n) }
