package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"noncegate/internal/access/quota"
)

const (
	// An address may be wrong this often at once, and this often again each minute.
	// That is too few to guess a key; a dozen processes with an old key are let in a
	// minute after it was mended.
	failureBurst  = 20
	failureRefill = 3 * time.Second
	// lookedAt bounds the credentials of an address that are looked at, at a time. It
	// is above what a proxy's clients have under way when all come back, and all that
	// may be wrong at once beyond failureBurst: each counts in the end.
	lookedAt = 128
	// failureAddresses bounds the table, at about 200 bytes each. When it is full,
	// the address that was seen least recently is forgotten.
	failureAddresses = 16_384
)

// failures bounds how often the credentials of an address may be wrong.
type failures struct {
	mu     sync.Mutex // guards byAddr and what is in it
	byAddr *simplelru.LRU[netip.Prefix, *suspect]
}

// suspect is an address with a count of what it may still get wrong.
type suspect struct {
	left    float64   // below zero when more were wrong at the same time
	at      time.Time // when left was right
	pending int       // credentials that are looked at
}

func newFailures() *failures {
	byAddr, _ := simplelru.NewLRU[netip.Prefix, *suspect](failureAddresses, nil) // fails for a size below 1
	return &failures{byAddr: byAddr}
}

// admission is whether a credential of an address is looked at.
type admission uint8

const (
	lookAt  admission = iota
	tooBusy           // lookedAt others are
	tooWrong
)

// take counts a credential of an address as being looked at, unless it must not be.
// What is taken is given to done.
func (f *failures) take(addr netip.Prefix, now time.Time) admission {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.suspectLocked(addr, now)
	s.left = min(failureBurst, s.left+float64(now.Sub(s.at))/float64(failureRefill))
	s.at = now
	switch {
	case s.left < 1:
		return tooWrong
	case s.pending >= lookedAt:
		return tooBusy
	}
	s.pending++
	return lookAt
}

// done says what became of a credential that was taken.
func (f *failures) done(addr netip.Prefix, wrong bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.byAddr.Peek(addr)
	if !ok {
		return // forgotten meanwhile
	}
	s.pending = max(0, s.pending-1)
	if wrong {
		s.left--
	}
}

func (f *failures) suspectLocked(addr netip.Prefix, now time.Time) *suspect {
	s, ok := f.byAddr.Get(addr)
	if !ok {
		s = &suspect{left: failureBurst, at: now}
		f.byAddr.Add(addr, s)
	}
	return s
}

// Guesses count the wrong credentials of addresses where a Gate does not. Its methods may be called by any goroutine.
type Guesses struct{ f *failures }

// NewGuesses makes an empty table.
func NewGuesses() *Guesses { return &Guesses{newFailures()} }

// Wrong counts a wrong credential of an address, and reports whether there were too many before it: more than
// failureBurst, or one each failureRefill.
func (g *Guesses) Wrong(remote string) (tooMany bool) {
	addr := quota.NetworkOf(remote)
	if g.f.take(addr, time.Now()) != lookAt {
		return true
	}
	g.f.done(addr, true)
	return false
}
