package engine

import (
	"context"
	"time"

	"noncegate/nonce"
)

// View is everything there is to say of the engines now. Where the store or Redis did
// not answer, the error says so, and the rest is what was known last, or zero.
type View struct {
	nonce.EngineCluster
	Counts   nonce.EngineCounts
	Waiting  int64         // unflushed events
	Oldest   time.Duration // age of the oldest of them
	Dead     int64         // dead letters
	StoreErr error
	RedisErr error
}

// Look asks the store and Redis.
func (m *Manager) Look(ctx context.Context) View {
	var v View
	v.StoreErr = m.read(ctx)
	if v.StoreErr == nil {
		v.Counts, v.StoreErr = m.counts(ctx)
	}
	s := m.state.Load()
	v.EngineCluster = s.EngineCluster
	lags, err := m.lag(ctx)
	v.RedisErr = err
	for _, l := range lags {
		v.Waiting, v.Dead = v.Waiting+l.Events, v.Dead+l.Dead
		if !l.Oldest.IsZero() {
			v.Oldest = max(v.Oldest, s.now().Sub(l.Oldest))
		}
	}
	return v
}
