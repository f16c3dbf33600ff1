package quota

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func TestABucketLetsABurstThroughAndThenItsRate(t *testing.T) {
	type step struct {
		rate Rate
		n    int
		at   float64
		wait time.Duration // 0: it is granted; below 0: it never will be
	}
	ten, narrow, wider := Rate{PerSecond: 10, Burst: 5}, Rate{PerSecond: 100, Burst: 1}, Rate{PerSecond: 100, Burst: 10}
	for name, steps := range map[string][]step{
		"a burst":                 {{ten, 1, 0, 0}, {ten, 4, 0, 0}, {ten, 1, 0, 100 * time.Millisecond}},
		"a refusal costs nothing": {{ten, 5, 0, 0}, {ten, 1, 0, 100 * time.Millisecond}, {ten, 1, 0, 100 * time.Millisecond}, {ten, 1, 0.1, 0}},
		"several at once":         {{ten, 5, 0, 0}, {ten, 3, 0.1, 200 * time.Millisecond}, {ten, 3, 0.3, 0}},
		"a long pause":            {{ten, 5, 0, 0}, {ten, 6, 1000, -1}, {ten, 5, 1000, 0}},
		"no limit meanwhile":      {{narrow, 1, 0, 0}, {Rate{}, 1000, 0, 0}, {narrow, 1, 0, 10 * time.Millisecond}},
		"a wider one has to fill": {{narrow, 1, 0, 0}, {wider, 10, 1, 90 * time.Millisecond}, {wider, 10, 1.1, 0}},
	} {
		var b bucket
		for i, s := range steps {
			if wait, ok := b.take(s.rate, s.n, at(s.at)); ok != (s.wait == 0) || s.wait > 0 && wait != s.wait {
				t.Errorf("%s, step %d: got %v after %v, want a wait of %v", name, i+1, ok, wait, s.wait)
			}
		}
	}
}

// Whatever is asked for, no more is granted than the rate and one burst allow, and
// who never asks for more than his rate is never refused.
func TestNoMoreIsGrantedThanRateAndBurst(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		r := Rate{PerSecond: 1 + 99*random.Float64(), Burst: 1 + random.IntN(50)}
		var greedy, modest bucket
		now, granted, next := 0.0, 0, 0.0
		for now < 20 {
			now += random.Float64() / 50
			n := 1 + random.IntN(r.Burst)
			if _, ok := greedy.take(r, n, at(now)); ok {
				granted += n
			}
			for ; next <= now; next += 1.0001 / r.PerSecond {
				if _, ok := modest.take(r, 1, at(next)); !ok {
					t.Fatalf("%+v: who keeps to his rate is refused at %v", r, next)
				}
			}
		}
		if allowed := r.PerSecond*now + float64(r.Burst) + 1e-6; float64(granted) > allowed {
			t.Errorf("%+v: %d granted in %v s, at most %v are allowed", r, granted, now, allowed)
		}
	}
}

func TestAPrincipalHasSoManyConnectionsAndNoMore(t *testing.T) {
	p := NewPrincipals()
	first, _ := p.Enter("ada", 2, at(0))
	for i, c := range []struct {
		name       string
		most       int
		left, want bool // the first has left; it comes in
	}{{"ada", 2, false, true}, {"ada", 2, false, false}, {"bob", 2, false, true}, {"ada", 2, true, true}, {"ada", 0, false, true}} {
		if c.left {
			first.Leave(at(1))
		}
		if _, ok := p.Enter(c.name, c.most, at(1)); ok != c.want {
			t.Errorf("number %d, %s with %d at most: %v", i+2, c.name, c.most, ok)
		}
	}
}

func TestConnectionsOfAPrincipalShareItsQuota(t *testing.T) {
	p := NewPrincipals()
	one, _ := p.Enter("ada", 0, at(0))
	two, _ := p.Enter("ada", 0, at(0))
	r := Rate{PerSecond: 1, Burst: 2}
	for _, a := range []*Usage{one, two} {
		if _, ok := a.Request(r, 1, at(0)); !ok {
			t.Fatal("refused within the burst")
		}
	}
	if _, ok := one.Request(r, 1, at(0)); ok {
		t.Error("each connection has a quota of its own")
	}
	for i, want := range []bool{true, true, false} {
		if got := []*Usage{one, two, one}[i].Subscribe(2); got != want {
			t.Errorf("subscription %d: got %v", i+1, got)
		}
	}
	two.Unsubscribe(1)
	if !one.Subscribe(2) {
		t.Error("the slot of a subscription that ended is not free")
	}
}

func TestComingBackDoesNotFillABucket(t *testing.T) {
	p := NewPrincipals()
	r := Rate{PerSecond: 1, Burst: 10}
	a, _ := p.Enter("ada", 0, at(0))
	a.Request(r, 10, at(0))
	a.Leave(at(0))
	a, _ = p.Enter("ada", 0, at(1))
	if _, ok := a.Request(r, 2, at(1)); ok {
		t.Error("a new connection has a full bucket")
	}
	a.Leave(at(1))
	if p.usages.len() != 1 {
		t.Error("forgotten too soon")
	}
	b, _ := p.Enter("bob", 0, at(60)) // whoever comes pays for the tidying
	if p.usages.len() != 1 {
		t.Errorf("%d principals are remembered, one of them for nothing", p.usages.len())
	}
	b.Leave(at(60))
	if p.usages.len() != 0 {
		t.Error("who asked for nothing is remembered")
	}
}

func TestWhoHasLeftIsRememberedUpToABound(t *testing.T) {
	p := NewPrincipals()
	r := Rate{PerSecond: 1e-3, Burst: 10}
	for i := range 2 * maxIdle {
		a, _ := p.Enter(fmt.Sprint(i), 0, at(0))
		a.Request(r, 10, at(0))
		a.Leave(at(0))
	}
	if p.usages.len() != maxIdle {
		t.Errorf("%d are remembered, want %d", p.usages.len(), maxIdle)
	}
}

func TestSignersHaveAQuotaEachUpToABound(t *testing.T) {
	if NewSigners(SignerConfig{}) != nil {
		t.Error("a table without a limit")
	}
	s := NewSigners(SignerConfig{Rate: Rate{PerSecond: 1, Burst: 1}, MaxSigners: 160})
	for _, name := range []string{"a", "b"} {
		if _, ok := s.Request(name, at(0)); !ok {
			t.Errorf("%s: refused the first", name)
		}
		if wait, ok := s.Request(name, at(0)); ok || wait != time.Second {
			t.Errorf("%s: got %v after %v", name, ok, wait)
		}
	}
	for i := range 10_000 {
		s.Request(fmt.Sprint(i), at(0))
	}
	if s.len() > 160 {
		t.Errorf("%d signers are remembered, at most 160 may be", s.len())
	}
}

func tcp(ip string) string { return net.JoinHostPort(ip, "1234") }

func TestSocketsThatWaitToBeLetInAreBounded(t *testing.T) {
	a := NewAddresses(AddressConfig{Waiting: 3, WaitingEach: 2})
	var slots []*Slot
	for i, c := range []struct {
		from string
		want Refusal
	}{
		{"192.0.2.1", Granted}, {"192.0.2.1", Granted}, {"192.0.2.1", TooMany},
		{"::ffff:192.0.2.1", TooMany}, // the same address
		{"2001:db8::1", Granted},
		{"2001:db8::2", Crowded}, {"198.51.100.1", Crowded},
	} {
		p, why := a.Arrive(tcp(c.from), at(0))
		if why != c.want {
			t.Errorf("socket %d, of %s: got %d, want %d", i+1, c.from, why, c.want)
		}
		if p != nil {
			slots = append(slots, p)
		}
	}
	if a.Waiting() != 3 {
		t.Errorf("%d wait", a.Waiting())
	}
	for _, p := range slots {
		p.Leave(at(0))
	}
	if a.Waiting() != 0 || a.hosts.len() != 0 {
		t.Errorf("%d wait, %d addresses are remembered", a.Waiting(), a.hosts.len())
	}
}

func TestNewSocketsOfAnAddressHaveARate(t *testing.T) {
	a := NewAddresses(AddressConfig{Sockets: Rate{PerSecond: 1, Burst: 2}})
	for i, c := range []struct {
		from string
		at   float64
		want Refusal
	}{ // a subscriber has a network
		{"2001:db8:0:1::1", 0, Granted}, {"2001:db8:0:1::2", 0, Granted}, {"2001:db8:0:1::3", 0, TooFast},
		{"2001:db8:0:2::1", 0, Granted}, {"2001:db8:0:1::1", 1, Granted},
	} {
		p, why := a.Arrive(tcp(c.from), at(c.at))
		if why != c.want {
			t.Errorf("socket %d: got %d, want %d", i+1, why, c.want)
		}
		if p != nil {
			p.Leave(at(c.at))
		}
	}
}

func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	a := NewAddresses(AddressConfig{Connections: 1})
	p, _ := a.Enter(tcp("192.0.2.1"), at(0))
	if _, why := a.Enter(tcp("192.0.2.1"), at(0)); why != Connections {
		t.Errorf("got %d", why)
	}
	if _, why := a.Enter("@", at(0)); why != Granted {
		t.Error("a socket without an address is refused")
	}
	p.Leave(at(0))
	if _, why := a.Enter(tcp("192.0.2.1"), at(0)); why != Granted {
		t.Error("the slot of one that left is not free")
	}
}

func TestCountsComeOutEvenWhenManyComeAndGo(t *testing.T) {
	p, a := NewPrincipals(), NewAddresses(AddressConfig{Waiting: 5, WaitingEach: 3, Connections: 2})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			from := tcp(fmt.Sprintf("192.0.2.%d", i%3))
			for range 1000 {
				socket, _ := a.Arrive(from, at(0))
				if socket == nil {
					continue
				}
				if connection, _ := a.Enter(from, at(0)); connection != nil {
					if usage, ok := p.Enter("ada", 3, at(0)); ok {
						if usage.Subscribe(1) {
							usage.Unsubscribe(1)
						}
						usage.Leave(at(0))
					}
					connection.Leave(at(0))
				}
				socket.Leave(at(0))
			}
		})
	}
	all.Wait()
	if a.Waiting() != 0 || a.hosts.len() != 0 || p.usages.len() != 0 {
		t.Errorf("left behind: %d waiting, %d addresses, %d principals", a.Waiting(), a.hosts.len(), p.usages.len())
	}
}

func TestTheNetworkThatAnAddressCountsAs(t *testing.T) {
	for remoteAddr, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32", "[2001:db8:1:2:3::4%eth0]:80": "2001:db8:1:2::/64",
		"@": "invalid Prefix", "": "invalid Prefix", "host:80": "invalid Prefix",
	} {
		if got := NetworkOf(remoteAddr).String(); got != want {
			t.Errorf("%q: got %s, want %s", remoteAddr, got, want)
		}
	}
}

// FuzzNetworkOf looks for addresses that panic.
func FuzzNetworkOf(f *testing.F) {
	for _, addr := range []string{"192.0.2.1:80", "[::1%lo]:80", "[::ffff:1.2.3.4]:1", "", ":", "@"} {
		f.Add(addr)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		p := NetworkOf(addr)
		if p.IsValid() && p.Bits() != 32 && p.Bits() != 64 {
			t.Error(p)
		}
	})
}
