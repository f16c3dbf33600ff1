package engine

import (
	"context"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
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
	v.Waiting, v.Oldest, v.Dead = s.behind(lags)
	return v
}

// behind is how far the store is behind Redis. In RELIABLE no signer is entered, and
// what is in the queue counts no more: a replica that was promoted has there what its
// master had when they parted, until somebody goes up again and it is accepted.
func (s *seen) behind(lags []redisstore.Lag) (events int64, oldest time.Duration, dead int64) {
	for _, l := range lags {
		events, dead = events+l.Events, dead+l.Dead
		if !l.Oldest.IsZero() {
			oldest = max(oldest, s.now().Sub(l.Oldest))
		}
	}
	if s.State == nonce.StateReliable {
		return 0, 0, dead
	}
	return events, oldest, dead
}
