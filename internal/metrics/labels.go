package metrics

import (
	"noncegate/backpressure"
	"noncegate/wire"
)

// stages are those that refuse: data.stage of server_busy.
var stages = []string{
	wire.StageConnection, wire.StageInflight, wire.StageWorker, wire.StageEncode, wire.StagePostDB, wire.StageForward, wire.StageGuard, wire.StageQuota,
}

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
