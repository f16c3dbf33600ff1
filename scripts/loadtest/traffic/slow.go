package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/wait"
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

// Slow are clients that misbehave on purpose beside a Load: subscribed to the
// events of all signers, and sending. What they send and receive is counted
// nowhere else.
type Slow struct {
	URLs      []string      // as in Load
	Access    access.Access // as in Load
	Clients   int
	Behaviour Behaviour // what they do once they are told to
	// Rate is how many allocations a second they send together, above 0. One
	// that the gateway does not read from sends less.
	Rate    float64
	Signers Signers // the accounts they allocate of
}

// Validate returns a *FieldError for the first field that breaks its rule.
func (s *Slow) Validate() error {
	return validate(s.URLs, []rule{
		{"clients", outside(s.Clients, 1, maxConnections), "must be 1 to 1000000"},
		{"behaviour", s.Behaviour != StopReading && s.Behaviour != Trickle && s.Behaviour != Vanish, "must be stop, trickle or vanish"},
		{"rate", !(s.Rate > 0 && s.Rate <= 1e9), "must be above 0 and at most 1000000000 requests a second"},
		{"signers", outside(s.Signers.Count, 1, maxSigners), "must be 1 to 1000000000"},
	})
}

// SlowClients are the clients of a Slow. Each has a goroutine; Stop ends them.
type SlowClients struct {
	slow   Slow
	begun  chan struct{} // closed: they misbehave
	once   sync.Once
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	counts result.Slow
}

// Start opens the connections and leaves them idle until Misbehave. The caller
// must call Stop. ctx bounds only the opening.
func (s Slow) Start(ctx context.Context) (*SlowClients, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	g := &SlowClients{slow: s, begun: make(chan struct{})}
	g.counts = result.Slow{Clients: s.Clients, Behaviour: string(s.Behaviour), Ended: make(map[string]int64)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	sockets, err := openAll(ctx, s.Clients, g.open)
	if err != nil {
		g.cancel()
		return nil, fmt.Errorf("open the slow clients: %w", err)
	}
	for i, first := range sockets {
		c := &slowClient{SlowClients: g, number: i, rng: rand.New(rand.NewPCG(uint64(s.Signers.Base), uint64(i)))}
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
	return g.sofar()
}

func (g *SlowClients) sofar() result.Slow {
	g.mu.Lock()
	defer g.mu.Unlock()
	counts := g.counts
	counts.Ended = maps.Clone(counts.Ended)
	return counts
}

func (g *SlowClients) count(change func(*result.Slow)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.counts)
}

const (
	// slowReadBuffer is what the kernel keeps for a slow client. It is small, so
	// that what is not read fills the gateway's side soon.
	slowReadBuffer = 4 << 10
	// A slow client looks at its connection each slowTick, or more often to send;
	// a trickling one then reads trickleBytes. Neither waits for the other side.
	slowTick     = 250 * time.Millisecond
	trickleBytes = 4
	noWait       = time.Millisecond
	// A vanishing one lives for half of vanishAfter to one and a half of it. Of
	// those that fell silent it keeps maxSilent open, and resets older ones.
	vanishAfter = time.Second
	maxSilent   = 4
	// comeBackAfter is the pause before a client comes back that was thrown out,
	// spread by half of itself to both sides.
	comeBackAfter = time.Second
	// closeSlowConsumer is the close code of a client that was too slow.
	closeSlowConsumer = 4001
	// maxLeftOver is how much of what it did not read a client reads at its end.
	maxLeftOver = 256 << 10
)

var errVanish = errors.New("it vanishes")

// open opens a connection. The kernel keeps little of what clients do not read
// that will not read.
func (g *SlowClients) open(ctx context.Context, i int) (*socket, error) {
	s, err := dial(ctx, g.slow.URLs[i%len(g.slow.URLs)], g.slow.Access, 0)
	if err != nil {
		return nil, err
	}
	if tcp := s.tcp(); tcp != nil && g.slow.Behaviour != Vanish {
		if err := tcp.SetReadBuffer(slowReadBuffer); err != nil {
			s.conn.Close()
			return nil, fmt.Errorf("receive buffer: %w", err)
		}
	}
	return s, nil
}

// slowClient is one client over all its connections. Its goroutine runs live.
type slowClient struct {
	*SlowClients
	number int
	rng    *rand.Rand
	silent []*socket // that it fell silent on, oldest first
}

// live is the client's goroutine: one connection after the other.
func (c *slowClient) live(s *socket) {
	defer c.forgetSilent(0)
	select {
	case <-c.begun:
	case <-c.ctx.Done():
		s.goodbye()
		s.conn.Close()
		return
	}
	for s != nil {
		why := c.session(s)
		closed, _ := errors.AsType[*closedError](why)
		kicked := closed != nil && closed.code == closeSlowConsumer
		pause := time.Duration(0)
		switch {
		case errors.Is(why, errVanish) && c.rng.IntN(2) == 0: // in silence
			c.silent = append(c.silent, s)
			c.forgetSilent(maxSilent)
		case errors.Is(why, errVanish):
			s.reset()
		default:
			s.reset()
			if c.ctx.Err() == nil || kicked { // before, and it has only now read it
				c.count(func(n *result.Slow) {
					n.Ended[reason(why)]++
					if kicked {
						n.Kicked++
					}
				})
			}
			pause = c.spread(comeBackAfter)
		}
		s = c.comeBack(pause)
	}
}

// spread is d, spread by half of itself to both sides.
func (c *slowClient) spread(d time.Duration) time.Duration {
	return d/2 + time.Duration(c.rng.Int64N(int64(d)))
}

// comeBack opens the next connection, however long it takes; nil once Stop was
// called.
func (c *slowClient) comeBack(after time.Duration) *socket {
	for wait.For(c.ctx, after) == nil {
		s, err := c.open(c.ctx, c.number)
		if err == nil {
			c.count(func(n *result.Slow) { n.Reconnects++ })
			return s
		}
		if c.ctx.Err() == nil {
			c.count(func(n *result.Slow) { n.Ended["not let in again: "+reason(err)]++ })
		}
		after = c.spread(comeBackAfter)
	}
	return nil
}

// session misbehaves on one connection until the other side ends it, it is time
// to vanish, or Stop is called, and says why it ended: at best by the close frame
// that the client had not read.
func (c *slowClient) session(s *socket) error {
	err := c.misbehave(s)
	if _, closed := errors.AsType[*closedError](err); closed || errors.Is(err, errVanish) {
		return err
	}
	s.conn.SetDeadline(time.Now().Add(lastWords))
	for range maxLeftOver / readBytes {
		why := c.take(s, readBytes)
		if _, closed := errors.AsType[*closedError](why); closed {
			return why
		}
		if why != nil {
			break
		}
	}
	return cmp.Or(err, c.ctx.Err())
}

// misbehave subscribes, and then sends at the client's share of the rate and reads
// as the behaviour says.
func (c *slowClient) misbehave(s *socket) error {
	s.conn.SetDeadline(time.Now().Add(dialTimeout))
	if err := s.subscribe(); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	s.conn.SetDeadline(time.Time{})
	_, plain := s.conn.(*net.TCPConn)
	if !plain { // a write that ends early breaks a TLS connection, so there it waits
		defer context.AfterFunc(c.ctx, func() { s.conn.SetDeadline(time.Now()) })()
	}
	interval := time.Duration(float64(c.slow.Clients) / c.slow.Rate * float64(time.Second))
	tick := time.NewTicker(max(min(interval, slowTick), time.Microsecond))
	defer tick.Stop()
	next, vanish := time.Now().Add(interval), time.Now().Add(c.spread(vanishAfter))
	var out []byte // what the other side did not take yet
	for {
		select {
		case <-c.ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		if len(out) == 0 && !now.Before(next) {
			out = appendFrame(nil, finText, []byte(allocation(c.slow.Signers.Name(c.rng.IntN(c.slow.Signers.Count)))))
			next = next.Add(interval)
		}
		s.conn.SetReadDeadline(now.Add(noWait))
		if plain {
			s.conn.SetWriteDeadline(now.Add(noWait))
		}
		n, err := s.conn.Write(out)
		out = out[n:]
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			err = c.read(s)
		}
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case c.slow.Behaviour == Vanish && now.After(vanish):
			return errVanish
		}
	}
}

// read reads as the behaviour says what there is.
func (c *slowClient) read(s *socket) error {
	switch c.slow.Behaviour {
	case StopReading:
		return nil
	case Trickle:
		return c.take(s, trickleBytes)
	}
	for {
		if err := c.take(s, readBytes); err != nil {
			return err
		}
	}
}

// take reads at most n bytes and looks for what the client missed.
func (c *slowClient) take(s *socket, n int) error {
	if err := s.readAtMost(n); err != nil {
		return err
	}
	for op, payload, ok := s.next(); ok; op, payload, ok = s.next() {
		if op != finText {
			if err := s.control(op, payload); err != nil {
				return err
			}
		} else if note, err := parseNotice(payload); err == nil && note.missed > 0 { // else a reply
			c.count(func(n *result.Slow) { n.Missed += note.missed })
		}
	}
	return nil
}

// forgetSilent resets the oldest silent connections but for the latest n.
func (c *slowClient) forgetSilent(n int) {
	for len(c.silent) > n {
		c.silent[0].reset()
		c.silent = c.silent[1:]
	}
}

// tcp is the TCP connection beneath, nil when there is none.
func (s *socket) tcp() *net.TCPConn {
	conn := s.conn
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	tcp, _ := conn.(*net.TCPConn)
	return tcp
}

// reset ends a connection without a close frame, and without the end of the
// bytes that a closed socket would send.
func (s *socket) reset() {
	if tcp := s.tcp(); tcp != nil {
		tcp.SetLinger(0)
		tcp.Close()
	}
	s.conn.Close()
}
