package guard

import (
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
)

// counters are what becomes of locks.
type counters struct {
	acquired, refused, unanswered, released, kept *metrics.Count

	releaseFailed metrics.Family[Failure]
	hold          prometheus.Histogram // seconds of locks that were given back, or could not be
}

func newCounters(reg prometheus.Registerer) *counters {
	return &counters{
		acquired: metrics.NewCount(reg, "guard_acquired_total", "Locks taken for guarded calls."),
		refused: metrics.NewCount(reg, "guard_refused_total",
			"Locks of guarded calls that somebody else had. The call is duplicate_submit, unless its request id is known."),
		unanswered: metrics.NewCount(reg, "guard_unanswered_total",
			"Locks of guarded calls of which nobody knows whether they were taken. The call is unavailable, unless its request id is known."),
		released: metrics.NewCount(reg, "guard_released_total", "Locks given back at the end of their call."),
		kept:     metrics.NewCount(reg, "guard_kept_total", "Locks left until they end by themselves, because the call asked for it."),
		releaseFailed: metrics.NewFamily(reg, "guard_release_failed_total", "reason",
			"Locks not given back at the end of their call: value_mismatch, it had ended before or is somebody else's; "+
				"away, nobody answered, and it ends by itself.", ValueMismatch, Away),
		hold: metrics.Seconds(reg, "guard_hold_seconds",
			"Time from taking the lock of a guarded call until it was given back, or could not be. Those that are kept are not in it."),
	}
}
