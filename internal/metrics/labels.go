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
	DropPostDBFull backpressure.DropReason = "postdb_full" // no unreserved slot in the post-DB pool
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
