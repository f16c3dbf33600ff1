package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

const (
	// windowPolls is over how many polls scripts are judged, and retryPolls retries.
	windowPolls = 20
	retryPolls  = 120
	// fewScripts is how many scripts say nothing of a percentile yet.
	fewScripts = 100
)

// health is what troubles there are. Who reports one waits for nothing but its lock.
type health struct {
	mu       sync.Mutex
	loss     error // the first one since the last change of state
	redisErr error // since the last poll
	scripts  window
	retries  window

	// Only the watch's. Durations are of looks that were taken: a process that was
	// stopped for a while has seen nothing meanwhile.
	looked    time.Time
	elapsed   time.Duration // between the last two looks, or what it may count for
	erring    bool          // Redis had errors in the last poll
	errorsFor time.Duration // and in every one for so long
	awayFor   time.Duration // polls of Redis failed for so long, one after the other
	lateFor   time.Duration // the flush has been late for so long, while the store answered
}

// window counts over the last polls.
type window struct {
	now  tally
	last []tally
}

type tally struct{ all, bad int }

// turn ends a poll, and sums up the last n of them.
func (w *window) turn(n int) (sum tally) {
	w.last = append(w.last, w.now)
	w.now = tally{}
	if len(w.last) > n {
		w.last = w.last[1:]
	}
	for _, t := range w.last {
		sum.all, sum.bad = sum.all+t.all, sum.bad+t.bad
	}
	return sum
}

func (h *health) tell(t nonce.Trouble, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t == nonce.TroubleLoss && h.loss == nil:
		h.loss = err
		if err == nil {
			h.loss = nonce.ErrLost
		}
	case t == nonce.TroubleRedis:
		h.redisErr = err
		if err == nil {
			h.redisErr = nonce.ErrLost
		}
	}
}

func (h *health) script(slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scripts.now.all++
	if slow {
		h.scripts.now.bad++
	}
}

func (h *health) retry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retries.now.bad++
}

// forget is for a new state, which begins without troubles.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loss, h.redisErr, h.scripts, h.retries = nil, nil, window{}, window{}
}

// look begins a look at everything.
func (h *health) look(poll time.Duration) {
	now := time.Now()
	h.elapsed = min(now.Sub(h.looked), 4*poll)
	if h.looked.IsZero() {
		h.elapsed = 0
	}
	h.looked = now
}

// watch looks once at the state and at Redis, and degrades where that shows trouble.
func (m *Manager) watch(ctx context.Context) {
	m.health.look(m.cfg.Poll)
	storeErr := m.read(ctx)
	lags, redisErr := m.lag(ctx)
	m.noteRedis(redisErr)
	m.noteLag(lags, redisErr == nil, storeErr == nil)
	t, err := m.trouble(storeErr == nil)
	if t == "" || storeErr != nil {
		return
	}
	if s := m.state.Load(); s.State == nonce.StatePerformance || s.State == nonce.StateDualWrite {
		m.degrade(ctx, s.Generation, t, err)
	}
}

func (m *Manager) lag(ctx context.Context) ([]redisstore.Lag, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Poll)
	defer cancel()
	return m.redis.Lag(ctx, m.shards)
}

// noteRedis judges whether Redis is gone.
func (m *Manager) noteRedis(err error) {
	if err == nil {
		m.health.awayFor = 0
		m.redisGone.Store(false)
		return
	}
	m.health.tell(nonce.TroubleRedis, err)
	if m.health.awayFor += m.health.elapsed; m.health.awayFor >= m.cfg.LostAfter && !m.redisGone.Swap(true) {
		m.log.Error("Redis is out of reach for so long that it counts as lost", "for", m.health.awayFor.String(), "error", err)
	}
}

// noteLag judges how far the flush is behind. Nothing is late because of a store that
// is away: hand-outs go on meanwhile as long as their grants last.
func (m *Manager) noteLag(lags []redisstore.Lag, known, store bool) {
	s := m.state.Load()
	now := s.now()
	for i, l := range lags {
		m.late[i].Store(store && !l.Oldest.IsZero() && now.Sub(l.Oldest) > m.cfg.FlushSLA)
	}
	events, oldest, dead := s.behind(lags)
	if known {
		m.figures.Lag(events, oldest, dead)
	}
	switch {
	case known && oldest <= m.cfg.LagLimit:
		m.health.lateFor = 0
	case known && store:
		m.health.lateFor += m.health.elapsed
	}
}

// trouble is the first reason to leave the performance engine; "": there is none.
func (m *Manager) trouble(store bool) (nonce.Trouble, error) {
	h := &m.health
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.redisErr == nil:
		h.errorsFor, h.erring = 0, false
	case h.erring:
		h.errorsFor += h.elapsed
	}
	redisErr := h.redisErr
	h.erring = redisErr != nil
	h.redisErr = nil
	scripts, retries := h.scripts.turn(windowPolls), h.retries.turn(retryPolls)
	if !store {
		h.retries = window{}
	}
	switch {
	case h.loss != nil:
		return nonce.TroubleLoss, h.loss
	case h.errorsFor >= m.cfg.RedisLimit:
		return nonce.TroubleRedis, fmt.Errorf("Redis has had errors for %v: %w", h.errorsFor, redisErr)
	case scripts.all >= fewScripts && scripts.bad*100 > scripts.all:
		return nonce.TroubleSlow, fmt.Errorf("%d of %d batches of Redis took longer than %v", scripts.bad, scripts.all, m.cfg.ScriptLimit)
	case h.lateFor >= m.cfg.LagLimit:
		return nonce.TroubleLag, fmt.Errorf("the flush has been more than %v late for %v", m.cfg.LagLimit, h.lateFor)
	case retries.bad > m.cfg.RetryLimit:
		return nonce.TroubleRetries, fmt.Errorf("the flush repeated %d times within %v", retries.bad, retryPolls*m.cfg.Poll)
	}
	return "", nil
}

// degrade leaves the performance engine because of a trouble. Where somebody else was
// faster, the next poll tells.
func (m *Manager) degrade(ctx context.Context, generation int64, t nonce.Trouble, cause error) {
	_, err := m.change(ctx, nonce.SwitchTerm{
		FromGeneration: generation, To: nonce.StateDegraded, Goal: nonce.StateReliable,
		Reason: string(t) + ": " + cause.Error(), Observe: m.cfg.Observe,
	})
	if err != nil {
		m.log.Warn("the performance engine could not be left", "reason", string(t), "cause", cause, "error", err)
		return
	}
	m.figures.Degraded(t)
	m.log.Error("the performance engine is left", "reason", string(t), "error", cause)
}
