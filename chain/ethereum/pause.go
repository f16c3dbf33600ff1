package ethereum

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// pause is how a node is left alone that wanted fewer requests. It is guarded by node.mu.
type pause struct {
	until time.Time
	pace  *backoff.ExponentialBackOff // of pauses for which the node named no time
	of    string                      // what is not asked meanwhile
}

func newPause(of string) *pause {
	p := &pause{of: of, pace: &backoff.ExponentialBackOff{
		InitialInterval: time.Second, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: time.Minute,
	}}
	p.pace.Reset()
	return p
}

func (p *pause) lasts() bool { return p.until.After(time.Now()) }

// pauseOf is the pause that a refusal begins: one to a call of others stops calls of others
// alone, not the polls, the counts and the transactions.
func (n *node) pauseOf(how asking) *pause {
	if how.foreign {
		return n.foreignPause
	}
	return n.pause
}

// backOff leaves the node alone for as long as it asked for, or for a pause that grows.
func (n *node) backOff(p *pause, wait time.Duration) {
	n.mu.Lock()
	now := time.Now()
	was := p.until.After(now)
	if !was { // one growth for all that were under way
		pause := p.pace.NextBackOff()
		if wait > 0 {
			pause = wait + time.Duration(rand.Int64N(int64(wait)/10+1)) // #nosec G404 -- so that not all ask at once; nothing secret
		}
		p.until = now.Add(pause)
	} else if at := now.Add(wait); at.After(p.until) {
		p.until = at
	}
	until := p.until
	n.noteLocked(errBackingOff)
	n.mu.Unlock()
	if !was {
		n.log.Info("node wants fewer requests", "not_asked", p.of, "pause", until.Sub(now).Round(time.Millisecond))
	}
}

// relax ends the growth of pauses once a request was answered after one.
func (n *node) relax(p *pause) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.until.IsZero() && !p.lasts() {
		p.until = time.Time{}
		p.pace.Reset()
	}
}

// backingOff reports whether the node wants to be left alone.
func (n *node) backingOff() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pause.lasts()
}

// takesOthers reports whether the node may be asked for what others want.
func (n *node) takesOthers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.foreignPause.lasts()
}
