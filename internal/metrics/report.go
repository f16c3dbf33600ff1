package metrics

import (
	"context"
	"log/slog"
	"time"

	"noncegate/wire"
)

// Message is the message of the log line that Run writes.
const Message = "ws_perf"

const perMs = float64(time.Millisecond)

// Stats returns the numbers of the last complete interval; before the first one
// has ended, all are zero.
func (s *Set) Stats() wire.StatsResult { return *s.published.Load() }

// Run ends an interval each time the given one has passed, publishes its numbers
// for Stats and writes them to log as one line at level info, whose keys are
// those of wire.StatsResult; an interval without requests has no line. It returns when ctx ends; the interval that was
// running then is not reported. interval must be positive; only one Run at a time.
func (s *Set) Run(ctx context.Context, interval time.Duration, log *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			stats := s.roll()
			if worked(stats) {
				log.LogAttrs(ctx, slog.LevelInfo, Message, attrs(stats)...)
			}
		}
	}
}

// worked reports whether anything was asked, answered, refused or dropped in an interval.
func worked(r *wire.StatsResult) bool {
	return r.EncodeMs.Count+r.EncodeQueueMs.Count+r.WriteQueueMs.Count+r.WorkerQueueMs.Count+r.CommitMs.Count+
		r.PostDBQueueMs.Count+r.BusyReject+r.DropUnwritable+r.KickSlow > 0
}

// tally is what the counters of ws_perf stood at.
type tally struct{ busyReject, dropUnwritable, kickSlow int64 }

func (s *Set) tally() tally {
	return tally{
		busyReject:     s.rejected.sum(stages),
		dropUnwritable: s.dropped.sum(unwritable),
		kickSlow:       s.kicked.sum(slowKicks),
	}
}

// roll ends the running interval and publishes its numbers.
func (s *Set) roll() *wire.StatsResult {
	now, counts := time.Now(), s.tally()
	stats := &wire.StatsResult{
		IntervalMs:      now.Sub(s.began).Milliseconds(),
		Connections:     s.Connections.n.Load(),
		EncodeQueueMs:   s.EncodeQueue.cut(perMs),
		EncodeMs:        s.Encode.cut(perMs),
		PostDBQueueMs:   s.PostDBQueue.cut(perMs),
		WriteQueueMs:    s.WriteQueue.cut(perMs),
		WorkerQueueMs:   s.WorkerQueue.cut(perMs),
		CommitMs:        s.Commit.cut(perMs),
		BusyReject:      counts.busyReject - s.seen.busyReject,
		DropUnwritable:  counts.dropUnwritable - s.seen.dropUnwritable,
		KickSlow:        counts.kickSlow - s.seen.kickSlow,
		CommitBatchSize: s.BatchSize.cut(1),
		Engine:          s.engineStats(),
	}
	s.began, s.seen = now, counts
	s.published.Store(stats)
	return stats
}

// EngineFrom says where each interval reads what it says of the performance engine. Without it
// they say nothing of one.
func (s *Set) EngineFrom(read func() *wire.EngineStats) { s.engine.Store(&read) }

func (s *Set) engineStats() *wire.EngineStats {
	if read := s.engine.Load(); read != nil {
		return (*read)()
	}
	return nil
}

// attrs is the ws_perf line: the keys of wire.StatsResult, in its order.
func attrs(r *wire.StatsResult) []slog.Attr {
	line := []slog.Attr{
		slog.Int64("intervalMs", r.IntervalMs),
		slog.Int64("connections", r.Connections),
		percentiles("encodeQueueMs", r.EncodeQueueMs),
		percentiles("encodeMs", r.EncodeMs),
		percentiles("postDbQueueMs", r.PostDBQueueMs),
		percentiles("writeQueueMs", r.WriteQueueMs),
		percentiles("workerQueueMs", r.WorkerQueueMs),
		percentiles("commitMs", r.CommitMs),
		slog.Int64("busy_reject", r.BusyReject),
		slog.Int64("drop_unwritable", r.DropUnwritable),
		slog.Int64("kick_slow", r.KickSlow),
		percentiles("commitBatchSize", r.CommitBatchSize),
	}
	if e := r.Engine; e != nil {
		line = append(line, slog.GroupAttrs("engine",
			slog.String("state", e.State),
			slog.Int64("generation", e.Generation),
			slog.Int64("shards", e.Shards),
			slog.Int64("unshipped", e.Unshipped),
			slog.Int64("behindMs", e.BehindMs),
		))
	}
	return line
}

func percentiles(key string, f wire.Figure) slog.Attr {
	return slog.GroupAttrs(key,
		slog.Int64("count", f.Count),
		slog.Float64("p50", f.P50),
		slog.Float64("p95", f.P95),
		slog.Float64("p99", f.P99),
		slog.Float64("max", f.Max),
	)
}
