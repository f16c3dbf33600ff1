package traffic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
)

// Behaviour is how clients misbehave.
type Behaviour string

const (
	// StopReading reads nothing any more, neither events nor replies.
	StopReading Behaviour = "stop"
	// Trickle reads a few bytes a second.
	Trickle Behaviour = "trickle"
	// Vanish reads, and after a second or so disconnects without a close: half of
	// the times by a reset, half by falling silent; then it comes back.
	Vanish Behaviour = "vanish"
)

func (b Behaviour) valid() bool { return b == StopReading || b == Trickle || b == Vanish }

// Slow are clients that misbehave on purpose beside a Load: subscribed to the
// events of all signers, and sending. What they send and receive is counted
// nowhere else.
type Slow struct {
	// URLs are the targets, as in Load.
	URLs []string
	// Access is how connections are let in.
	Access access.Access
	// Clients is how many there are.
	Clients int
	// Behaviour is what they do once they are told to.
	Behaviour Behaviour
	// Rate is how many allocations a second they send together, above 0. One
	// that the gateway does not read from sends less.
	Rate float64
	// Signers are the accounts they allocate of.
	Signers Signers
}

// Validate returns a *FieldError for the first field that breaks its rule.
func (s *Slow) Validate() error {
	return validate(s.URLs, []rule{
		{"Clients", outside(s.Clients, 1, maxConnections), "must be 1 to 1000000"},
		{"Behaviour", !s.Behaviour.valid(), "must be stop, trickle or vanish"},
		{"Rate", !(s.Rate > 0 && s.Rate <= 1e9), "must be above 0 and at most 1000000000 requests a second"},
		{"Signers", outside(s.Signers.Count, 1, maxSigners), "must be 1 to 1000000000"},
	})
}

// SlowClients are the clients of a Slow. Each has a goroutine, and a second one
// that reads; Stop ends them.
type SlowClients struct {
	slow   Slow
	begun  chan struct{} // closed: they misbehave
	ctx    context.Context
	cancel context.CancelFunc
	once   sync.Once
	wg     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	counts slowCounts
}

type slowCounts struct {
	result.Slow
	missed int64
}

// Start opens the connections and leaves them idle until Misbehave. The caller
// must call Stop. ctx bounds only the opening.
func (s Slow) Start(ctx context.Context) (*SlowClients, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	g := &SlowClients{slow: s, begun: make(chan struct{})}
	g.counts.Slow = result.Slow{Clients: s.Clients, Behaviour: string(s.Behaviour), Ended: make(map[string]int64)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	sockets, err := openAll(ctx, s.Clients, g.open)
	if err != nil {
		g.cancel()
		return nil, fmt.Errorf("open the slow clients: %w", err)
	}
	for i, first := range sockets {
		c := &slowClient{group: g, number: i, rng: rand.New(rand.NewPCG(uint64(s.Signers.Base), uint64(i)))}
		g.wg.Go(func() { c.live(first) })
	}
	return g, nil
}

// Misbehave lets them subscribe, send, and misbehave from now on. It may be
// called more than once, and does not wait.
func (g *SlowClients) Misbehave() { g.once.Do(func() { close(g.begun) }) }

// Stop ends all clients, waits for them, and says what became of them. Those
// that read nothing read what there is first, for a moment, which tells whether
// the gateway had closed them. It may be called again, with the same answer.
func (g *SlowClients) Stop() result.Slow {
	g.cancel()
	g.wg.Wait()
	return g.sofar().Slow
}

// Missed is how many events the gateway told them they had missed. It is
// complete after Stop.
func (g *SlowClients) Missed() int64 { return g.sofar().missed }

func (g *SlowClients) sofar() (is slowCounts) {
	g.count(func(c *slowCounts) { is = *c })
	return is
}

func (g *SlowClients) stopped() bool { return g.ctx.Err() != nil }

func (g *SlowClients) count(change func(*slowCounts)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.counts)
}

// ended counts a connection that the other side ended, by why.
func (g *SlowClients) ended(why error) {
	g.count(func(c *slowCounts) {
		c.Ended[reason(why)]++
		if kicked(why) {
			c.Kicked++
		}
	})
}
