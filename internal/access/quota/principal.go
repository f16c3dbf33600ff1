package quota

import (
	"sync/atomic"
	"time"
)

// maxIdle bounds the principals, and the addresses, that are remembered although
// they have no connection. At some 300 bytes each they are 5 MiB; with more, the one
// that left first comes back with a full bucket.
const maxIdle = 1 << 14

// Principals are the accounts of those who have a connection.
type Principals struct{ accounts *table[string, account] }

// Account is what one principal has had. Each connection of it has the same one.
type Account struct {
	of    *Principals
	entry *entry[string, account]
}

type account struct {
	requests      bucket
	subscriptions atomic.Int64
	names         atomic.Int64
}

// NewPrincipals makes an empty table.
func NewPrincipals() *Principals {
	return &Principals{newTable[string](maxIdle, func(a *account, now time.Time) bool { return a.requests.full(now) })}
}

// Enter counts a connection of a principal, of which there may be so many; 0: any
// number. false: it has them.
func (p *Principals) Enter(principal string, most int, now time.Time) (*Account, bool) {
	e, ok := p.accounts.use(principal, now, func(_ *account, uses int) bool { return most == 0 || uses < most })
	if !ok {
		return nil, false
	}
	return &Account{of: p, entry: e}, true
}

// Len is how many principals are remembered.
func (p *Principals) Len() int { return p.accounts.len() }

// Leave ends a connection. It is called once for each Enter.
func (a *Account) Leave(now time.Time) { a.of.accounts.leave(a.entry, now) }

// Request takes n requests, all or none. wait is how long until there are so many.
func (a *Account) Request(r Rate, n int, now time.Time) (wait time.Duration, ok bool) {
	return a.entry.E.requests.take(r, n, now)
}

// Subscribe counts a subscription, of which there may be so many; 0: any number.
// false: it has them.
func (a *Account) Subscribe(most int) bool { return within(&a.entry.E.subscriptions, 1, most) }

// Name counts n signers that a subscription names, of which there may be so many in
// all. false: with them there would be more.
func (a *Account) Name(n, most int) bool { return within(&a.entry.E.names, n, most) }

// Unname gives n of them back.
func (a *Account) Unname(n int) { a.entry.E.names.Add(int64(-n)) }

// within adds n to what is counted, unless that makes it more than most; 0: any number.
func within(count *atomic.Int64, n, most int) bool {
	if now := count.Add(int64(n)); most > 0 && now > int64(most) {
		count.Add(int64(-n))
		return false
	}
	return true
}

// Unsubscribe ends n subscriptions.
func (a *Account) Unsubscribe(n int) { a.entry.E.subscriptions.Add(int64(-n)) }
