package quota

import (
	"sync/atomic"
	"time"
)

// maxIdle bounds the principals, and the addresses, that are remembered although
// they have no connection. At some 300 bytes each they are 5 MiB; with more, the one
// that left first comes back with a full bucket.
const maxIdle = 1 << 14

// Principals count what principals with a connection have had.
type Principals struct{ usages *table[string, usage] }

// Usage is what one principal has had. Each connection of it has the same one.
type Usage struct {
	of    *Principals
	entry *entry[string, usage]
}

type usage struct {
	requests      bucket
	signers       bucket // that were new
	subscriptions atomic.Int64
	names         atomic.Int64
}

// NewPrincipals makes an empty table.
func NewPrincipals() *Principals {
	return &Principals{newTable[string](maxIdle, func(u *usage, now time.Time) bool { return u.requests.full(now) && u.signers.full(now) })}
}

// Enter counts a connection of a principal, of which there may be so many; 0: any
// number. false: it has them.
func (p *Principals) Enter(principal string, limit int, now time.Time) (*Usage, bool) {
	e, ok := p.usages.use(principal, now, func(_ *usage, uses int) bool { return limit == 0 || uses < limit })
	if !ok {
		return nil, false
	}
	return &Usage{of: p, entry: e}, true
}

// Leave ends a connection. It is called once for each Enter.
func (u *Usage) Leave(now time.Time) { u.of.usages.leave(u.entry, now) }

// Request takes n requests, all or none. wait is how long until there are enough tokens.
func (u *Usage) Request(r Rate, n int, now time.Time) (wait time.Duration, ok bool) {
	return u.entry.E.requests.take(r, n, now)
}

// Subscribe counts a subscription, of which there may be so many; 0: any number.
// false: it has them.
func (u *Usage) Subscribe(limit int) bool { return within(&u.entry.E.subscriptions, 1, limit) }

// Name counts n signers that a subscription names, of which there may be so many in
// all. false: with them there would be more.
func (u *Usage) Name(n, limit int) bool { return within(&u.entry.E.names, n, limit) }

// Unname gives n of them back.
func (u *Usage) Unname(n int) { u.entry.E.names.Add(int64(-n)) }

// within adds n to what is counted, unless that makes it more than limit; 0: any number.
func within(count *atomic.Int64, n, limit int) bool {
	if now := count.Add(int64(n)); limit > 0 && now > int64(limit) {
		count.Add(int64(-n))
		return false
	}
	return true
}

// Unsubscribe ends n subscriptions.
func (u *Usage) Unsubscribe(n int) { u.entry.E.subscriptions.Add(int64(-n)) }
