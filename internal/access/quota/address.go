package quota

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// AddressConfig bounds what may come from one address before and after a client is
// let in. 0 is no limit in each.
type AddressConfig struct {
	// Sockets is how many new ones a second.
	Sockets Rate
	// Waiting bounds the sockets whose client was not let in yet, of all addresses;
	// WaitingEach those of one.
	Waiting, WaitingEach int
	// Connections bounds those of one address that were let in.
	Connections int
}

// Refusal is why a socket or a connection is not wanted.
type Refusal uint8

// The refusals.
const (
	Granted     Refusal = iota
	TooFast             // new sockets come too fast
	TooMany             // this address has too many that were not let in yet
	Crowded             // all addresses together have
	Connections         // this address has as many connections as it may
)

// Addresses counts sockets by the address they come from, which is given with its
// port, see NetworkOf.
type Addresses struct {
	cfg     AddressConfig
	waiting atomic.Int64
	hosts   *table[netip.Prefix, host]
}

type host struct {
	sockets              bucket
	waiting, connections int // guarded by the table's lock
}

// NewAddresses makes an empty table.
func NewAddresses(cfg AddressConfig) *Addresses {
	return &Addresses{cfg: cfg, hosts: newTable[netip.Prefix](maxIdle, func(h *host, now time.Time) bool { return h.sockets.full(now) })}
}

// Slot is what one socket counts for.
type Slot struct {
	of      *Addresses
	entry   *entry[netip.Prefix, host]
	entered bool // as a connection, else as a socket that waits
}

// Arrive counts a socket that was accepted as waiting. Its slot is left whatever
// became of it.
func (a *Addresses) Arrive(from string, now time.Time) (*Slot, Refusal) {
	why := Granted
	e, ok := a.hosts.use(NetworkOf(from), now, func(h *host, _ int) bool {
		switch _, inTime := h.sockets.take(a.cfg.Sockets, 1, now); {
		case !inTime:
			why = TooFast
		case a.cfg.WaitingEach > 0 && h.waiting >= a.cfg.WaitingEach:
			why = TooMany
		case a.cfg.Waiting > 0 && a.waiting.Load() >= int64(a.cfg.Waiting):
			why = Crowded
		default:
			h.waiting++
			a.waiting.Add(1)
		}
		return why == Granted
	})
	if !ok {
		return nil, why
	}
	return &Slot{of: a, entry: e}, Granted
}

// Enter counts a connection of a client that was let in. The socket's own slot is
// left as it is.
func (a *Addresses) Enter(from string, now time.Time) (*Slot, Refusal) {
	e, ok := a.hosts.use(NetworkOf(from), now, func(h *host, _ int) bool {
		if a.cfg.Connections > 0 && h.connections >= a.cfg.Connections {
			return false
		}
		h.connections++
		return true
	})
	if !ok {
		return nil, Connections
	}
	return &Slot{of: a, entry: e, entered: true}, Granted
}

// Entered reports whether the slot is that of a connection.
func (s *Slot) Entered() bool { return s.entered }

// Leave gives a slot back. It is called once.
func (s *Slot) Leave(now time.Time) {
	t := s.of.hosts
	t.mu.Lock()
	if s.entered {
		s.entry.E.connections--
	} else {
		s.entry.E.waiting--
		s.of.waiting.Add(-1)
	}
	t.mu.Unlock()
	t.leave(s.entry, now)
}

// Waiting is how many sockets wait to be let in.
func (a *Addresses) Waiting() int { return int(a.waiting.Load()) }

// NetworkOf is what an address with its port counts as: an IPv4 address, or the 64 bits
// of an IPv6 address that are given out together. The zero Prefix stands for all that
// have none, such as Unix sockets.
func NetworkOf(from string) netip.Prefix {
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return netip.Prefix{}
	}
	ip := at.Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
