package metrics

import (
	"noncegate/backpressure"
	"noncegate/wire"
)

// RejectStage is the bounded stage that was full: data.stage of server_busy.
type RejectStage string

// The stages that refuse.
const (
	RejectConnection RejectStage = wire.StageConnection
	RejectInflight   RejectStage = wire.StageInflight
	RejectWorker     RejectStage = wire.StageWorker
	RejectEncode     RejectStage = wire.StageEncode
	RejectPostDB     RejectStage = wire.StagePostDB
	RejectForward    RejectStage = wire.StageForward
	RejectGuard      RejectStage = wire.StageGuard
	RejectQuota      RejectStage = wire.StageQuota
)

var rejectStages = []RejectStage{RejectConnection, RejectInflight, RejectWorker, RejectEncode, RejectPostDB, RejectForward, RejectGuard, RejectQuota}

// Reasons beside those of package backpressure.
const (
	DropPostDBFull backpressure.DropReason = "postdb_full" // no unreserved place in the post-DB pool
	KickIdle       backpressure.KickReason = "idle"        // nothing was heard from the client
)

// The client caused these: it does not read fast enough for what it asked for.
var (
	unwritable = []backpressure.DropReason{backpressure.DropSlow, backpressure.DropNoRoom, backpressure.DropMessages}
	slowKicks  = []backpressure.KickReason{backpressure.KickHardCap, backpressure.KickTooOld, backpressure.KickSlow, backpressure.KickWriteTimeout}
)

var (
	dropReasons = append([]backpressure.DropReason{backpressure.DropEncode, DropPostDBFull}, unwritable...)
	kickReasons = append([]backpressure.KickReason{KickIdle}, slowKicks...)
)

// AcquireResult is what became of an attempt to take a lease.
type AcquireResult string

// The results of an acquire.
const (
	AcquireNew      AcquireResult = "acquired" // nobody else had held it, or this node had
	AcquireTakeover AcquireResult = "takeover" // from another node, whose lease had ended
	AcquireHeld     AcquireResult = "held"     // another node holds it
	AcquireError    AcquireResult = "error"    // the store did not say
)

var acquireResults = []AcquireResult{AcquireNew, AcquireTakeover, AcquireHeld, AcquireError}

// RenewResult is what became of a lease that a write renewed.
type RenewResult string

// The results of a renewal.
const (
	RenewInTime RenewResult = "renewed"
	RenewLate   RenewResult = "late" // this node trusted it no longer, and nobody had taken it
)

var renewResults = []RenewResult{RenewInTime, RenewLate}

// FenceOp is the operation that a lost lease refused.
type FenceOp string

// The operations that can be fenced.
const (
	FenceAllocate       FenceOp = "allocate"
	FenceMarkUsed       FenceOp = "mark_used"
	FenceMarkRecyclable FenceOp = "mark_recyclable"
	FenceMarkSigned     FenceOp = "mark_signed"
	FenceExtend         FenceOp = "extend"
	FenceRepair         FenceOp = "repair"
	FenceSweep          FenceOp = "sweep"
	FenceAlign          FenceOp = "align"
	FenceFloor          FenceOp = "floor"
	FenceRelease        FenceOp = "release"
	FencePrune          FenceOp = "prune"
)

var fenceOps = []FenceOp{
	FenceAllocate, FenceMarkUsed, FenceMarkRecyclable, FenceMarkSigned, FenceExtend, FenceRepair,
	FenceSweep, FenceAlign, FenceFloor, FenceRelease, FencePrune,
}

// GuardFailure is why the lock of a guarded call was not given back.
type GuardFailure string

// The failures of giving back.
const (
	GuardMismatch GuardFailure = "value_mismatch" // it had ended, or is somebody else's
	GuardAway     GuardFailure = "away"           // nobody answered; it ends by itself
)

var guardFailures = []GuardFailure{GuardMismatch, GuardAway}

// ForwardResult is what became of a request that was to go to another node.
type ForwardResult string

// The results of forwarding.
const (
	ForwardAnswered   ForwardResult = "answered"
	ForwardBounced    ForwardResult = "bounced"    // not done there; it is routed again
	ForwardUnanswered ForwardResult = "unanswered" // sent and not answered; it is asked again
	ForwardExpired    ForwardResult = "expired"    // the same, and its time was over
	ForwardBusy       ForwardResult = "busy"       // as many as may be are under way there
	ForwardAway       ForwardResult = "away"       // that node does not answer
)

var forwardResults = []ForwardResult{ForwardAnswered, ForwardBounced, ForwardUnanswered, ForwardExpired, ForwardBusy, ForwardAway}
