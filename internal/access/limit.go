package access

import (
	"container/list"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// An address may be wrong this often at once, and this often again each minute.
	// Whoever guesses gets nowhere with it; whoever has put an old key into a dozen
	// processes is let in a minute after mending it.
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
	mu     sync.Mutex
	byAddr map[netip.Prefix]*list.Element
	recent list.List // of *suspect, the latest at the front
}

// suspect is an address with a count of what it may still get wrong.
type suspect struct {
	addr    netip.Prefix
	left    float64   // below zero when more were wrong at the same time
	at      time.Time // when left was right
	pending int       // credentials that are looked at
}

func newFailures() *failures { return &failures{byAddr: map[netip.Prefix]*list.Element{}} }

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
	e, ok := f.byAddr[addr]
	if !ok {
		return // forgotten meanwhile
	}
	s := e.Value.(*suspect)
	s.pending = max(0, s.pending-1)
	if wrong {
		s.left--
	}
}

func (f *failures) suspectLocked(addr netip.Prefix, now time.Time) *suspect {
	if e, ok := f.byAddr[addr]; ok {
		f.recent.MoveToFront(e)
		return e.Value.(*suspect)
	}
	if f.recent.Len() >= failureAddresses {
		oldest := f.recent.Remove(f.recent.Back()).(*suspect)
		delete(f.byAddr, oldest.addr)
	}
	s := &suspect{addr: addr, left: failureBurst, at: now}
	f.byAddr[addr] = f.recent.PushFront(s)
	return s
}

// remote is where a request comes from: an IPv4 address, or the 64 bits of an IPv6
// address that are given out together. The zero Prefix stands for all that have none,
// such as Unix sockets.
func remote(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	bits := 32
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return prefix
}
