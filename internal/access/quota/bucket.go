package quota

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is what a token bucket lets through: so many a second on average, and as many
// as Burst at once. The zero Rate is no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// limited reports whether there is a limit at all.
func (r Rate) limited() bool { return r.PerSecond > 0 }

// bucket is a token bucket that only ever says yes or no at once. It begins full.
type bucket struct {
	mu    sync.Mutex // guards what follows, and makes looking and taking one step
	limit rate.Limiter
	rate  Rate // of limit; the zero Rate: it has none yet
}

// take takes n tokens at a rate that may be another one than the last time. false:
// there are not enough tokens, and wait is when there will be; nothing was taken. More
// than r.Burst are never there.
func (b *bucket) take(r Rate, n int, now time.Time) (wait time.Duration, ok bool) {
	if !r.limited() {
		return 0, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setLocked(r, now)
	if missing := float64(n) - b.limit.TokensAt(now); missing > 0 {
		return time.Duration(math.Ceil(missing / r.PerSecond * float64(time.Second))), false
	}
	return 0, b.limit.AllowN(now, n)
}

// setLocked gives the bucket its rate. What was taken stays taken.
func (b *bucket) setLocked(r Rate, now time.Time) {
	switch {
	case r == b.rate:
		return
	case !b.rate.limited():
		b.limit = *rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)
	default:
		b.limit.SetLimitAt(now, rate.Limit(r.PerSecond))
		b.limit.SetBurstAt(now, r.Burst)
	}
	b.rate = r
}

// full reports whether a new bucket would be the same as this one.
func (b *bucket) full(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.rate.limited() || b.limit.TokensAt(now) >= float64(b.rate.Burst)
}
