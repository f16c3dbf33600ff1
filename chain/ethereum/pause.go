package ethereum

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// use is what a request to a node is for. A node that wants fewer requests of one use is
// still asked for the others: a client's calls must not hold up heads, counts and sends.
type use uint8

const (
	usePolls  use = iota // heads, final blocks, and the blocks between
	useCounts            // what the gateway asks about accounts and transactions
	useSends             // transactions
	useCalls             // calls and subscriptions of others
	uses
)

// String returns the word for logs.
func (u use) String() string {
	return [...]string{"polls", "counts", "sends", "calls"}[u]
}

// pause is for how long a node is left alone with one use.
type pause struct {
	until time.Time
	pace  *backoff.ExponentialBackOff // of pauses in a row
}

func newPauses() (all [uses]pause) {
	for u := range all {
		all[u].pace = &backoff.ExponentialBackOff{
			InitialInterval: time.Second, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: time.Minute,
		}
		all[u].pace.Reset()
	}
	return all
}

// pausedUntil returns when the node is asked again for a use; zero: now.
func (n *node) pausedUntil(u use) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pausedUntilLocked(u)
}

func (n *node) pausedUntilLocked(u use) time.Time {
	if until := n.pauses[u].until; until.After(time.Now()) {
		return until
	}
	return time.Time{}
}

// paused reports whether the node is left alone with a use.
func (n *node) paused(u use) bool { return !n.pausedUntil(u).IsZero() }

// backOff leaves the node alone with a use for as long as it asked for, or for a pause that
// grows.
func (n *node) backOff(u use, wait time.Duration) {
	n.mu.Lock()
	now := time.Now()
	p := &n.pauses[u]
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
		n.log.Info("node wants fewer requests", "not_asked", u.String(), "pause", until.Sub(now).Round(time.Millisecond))
	}
}

// relax ends the growth of pauses once a request of the use was answered after one.
func (n *node) relax(u use) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := &n.pauses[u]; !p.until.IsZero() && !p.until.After(time.Now()) {
		p.until = time.Time{}
		p.pace.Reset()
	}
}
