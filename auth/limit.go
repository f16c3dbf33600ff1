package auth

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
	addr netip.Prefix
	left float64
	at   time.Time // when left was right
}

func newFailures() *failures { return &failures{byAddr: map[netip.Prefix]*list.Element{}} }

// take counts a credential of an address as wrong before it is looked at, and reports
// whether it may be. What looked right is given back: so many that come at the same
// time are not more than may come one after the other.
func (f *failures) take(addr netip.Prefix, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.suspectLocked(addr, now)
	s.left = min(failureBurst, s.left+float64(now.Sub(s.at))/float64(failureRefill))
	s.at = now
	if s.left < 1 {
		return false
	}
	s.left--
	return true
}

// giveBack undoes a take.
func (f *failures) giveBack(addr netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.byAddr[addr]; ok {
		s := e.Value.(*suspect)
		s.left = min(failureBurst, s.left+1)
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
