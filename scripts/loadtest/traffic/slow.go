package traffic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.counts
}

func (g *SlowClients) stopped() bool { return g.ctx.Err() != nil }

func (g *SlowClients) count(change func(*result.Slow)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.counts)
}

// ended counts a connection that the other side ended, by why.
func (g *SlowClients) ended(why error) {
	g.count(func(c *result.Slow) {
		c.Ended[reason(why)]++
		if kicked(why) {
			c.Kicked++
		}
	})
}

const (
	// slowReadBuffer is what the kernel keeps for a slow client. It is small, so
	// that what is not read fills the gateway's side soon.
	slowReadBuffer = 4 << 10
	// A trickling client reads trickleBytes each trickleEvery.
	trickleBytes = 4
	trickleEvery = 250 * time.Millisecond
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

// kicked reports whether a connection ended with the close code of a client
// that was too slow.
func kicked(why error) bool {
	closed, ok := errors.AsType[*closedError](why)
	return ok && closed.code == closeSlowConsumer
}

// slowClient is one client over all its connections. Its goroutine runs live.
type slowClient struct {
	group  *SlowClients
	number int
	rng    *rand.Rand
	silent []*socket // that it fell silent on, oldest first
}

// open opens a connection. The kernel keeps little of what clients do not read
// that will not read.
func (g *SlowClients) open(ctx context.Context, i int) (*socket, error) {
	url := g.slow.URLs[i%len(g.slow.URLs)]
	s, err := dial(ctx, url, g.slow.Access, 0)
	if err != nil {
		return nil, err
	}
	if tcp := s.tcp(); tcp != nil && g.slow.Behaviour != Vanish {
		if err := tcp.SetReadBuffer(slowReadBuffer); err != nil {
			s.conn.Close()
			return nil, fmt.Errorf("receive buffer of %s: %w", url, err)
		}
	}
	return s, nil
}

// tcp is the TCP connection beneath, nil when there is none.
func (s *socket) tcp() *net.TCPConn {
	conn := s.conn
	if t, ok := conn.(*tls.Conn); ok {
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

// live is the client's goroutine: one connection after the other.
func (c *slowClient) live(s *socket) {
	defer c.forgetSilent(0)
	select {
	case <-c.group.begun:
	case <-c.group.ctx.Done():
		s.goodbye()
		s.conn.Close()
		return
	}
	for s != nil {
		why := c.session(s)
		if c.group.stopped() {
			if kicked(why) { // before, and it has only now read it
				c.group.ended(why)
			}
			return
		}
		pause := time.Duration(0)
		if !errors.Is(why, errVanish) {
			c.group.ended(why)
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
	for wait.For(c.group.ctx, after) == nil {
		s, err := c.group.open(c.group.ctx, c.number)
		if err == nil {
			c.group.count(func(c *result.Slow) { c.Reconnects++ })
			return s
		}
		if !c.group.stopped() {
			c.group.count(func(c *result.Slow) { c.Ended["not let in again: "+reason(err)]++ })
		}
		after = c.spread(comeBackAfter)
	}
	return nil
}

// session misbehaves on one connection until the other side ends it, it is time
// to vanish, or Stop is called, and says why it ended.
func (c *slowClient) session(s *socket) error {
	interrupted := make(chan struct{})
	release := context.AfterFunc(c.group.ctx, func() {
		defer close(interrupted)
		s.conn.SetDeadline(time.Now())
	})
	err := c.misbehave(s)
	if !release() {
		<-interrupted // it sets no deadline any more
	}
	if errors.Is(err, errVanish) {
		c.vanish(s)
		return err
	}
	if _, closed := errors.AsType[*closedError](err); !closed {
		if why := c.leftOver(s); why != nil {
			err = why
		}
	}
	s.reset()
	return err
}

// misbehave subscribes, and then sends and reads as the behaviour says.
func (c *slowClient) misbehave(s *socket) error {
	if err := c.subscribe(s); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	quit, over := make(chan struct{}), make(chan struct{})
	var readErr error
	go func() {
		defer close(over)
		readErr = c.receive(s, quit)
	}()
	err := c.send(s, over)
	select {
	case <-over:
	default:
		close(quit)
		s.conn.SetDeadline(time.Now())
		<-over
		if err != nil || c.group.stopped() {
			return err // what the deadline made of the read says nothing
		}
	}
	return readErr
}

// subscribe asks for all events. It is given up when Stop is called.
func (c *slowClient) subscribe(s *socket) error {
	timer := time.AfterFunc(dialTimeout, func() { s.conn.Close() })
	defer timer.Stop()
	return s.subscribe()
}

// send allocates at the client's share of the rate. It returns nil when over is
// closed or Stop was called.
func (c *slowClient) send(s *socket, over <-chan struct{}) error {
	interval := time.Duration(float64(c.group.slow.Clients) / c.group.slow.Rate * float64(time.Second))
	tick := time.NewTicker(max(interval, time.Microsecond))
	defer tick.Stop()
	var life <-chan time.Time // nil: as long as it may
	if c.group.slow.Behaviour == Vanish {
		timer := time.NewTimer(c.spread(vanishAfter))
		defer timer.Stop()
		life = timer.C
	}
	var out []byte
	for {
		select {
		case <-tick.C:
			out = c.request(out[:0])
			if _, err := s.conn.Write(out); err != nil {
				return err
			}
		case <-life:
			return errVanish
		case <-over:
			return nil
		case <-c.group.ctx.Done():
			return nil
		}
	}
}

func (c *slowClient) request(out []byte) []byte {
	signers := c.group.slow.Signers
	return appendFrame(out, finText, []byte(allocation(signers.Name(c.rng.IntN(signers.Count)))))
}

// receive reads as the behaviour says until quit is closed or the connection
// ends. It writes pongs, which the writes of send cannot cut in two.
func (c *slowClient) receive(s *socket, quit <-chan struct{}) error {
	switch c.group.slow.Behaviour {
	case StopReading:
		<-quit
		return nil
	case Trickle:
		return c.trickle(s, quit)
	}
	for {
		if err := c.take(s, readBytes); err != nil {
			return err
		}
	}
}

func (c *slowClient) trickle(s *socket, quit <-chan struct{}) error {
	tick := time.NewTicker(trickleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := c.take(s, trickleBytes); err != nil {
				return err
			}
		case <-quit:
			return nil
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
			continue
		}
		if note, err := parseNotice(payload); err == nil && note.missed > 0 { // else a reply
			c.group.count(func(c *result.Slow) { c.Missed += note.missed })
		}
	}
	return nil
}

// leftOver reads what the client did not, for a moment, and returns the close
// frame if there is one.
func (c *slowClient) leftOver(s *socket) error {
	s.conn.SetDeadline(time.Now().Add(lastWords))
	for range maxLeftOver / readBytes {
		err := c.take(s, readBytes)
		if _, closed := errors.AsType[*closedError](err); closed {
			return err
		}
		if err != nil {
			return nil
		}
	}
	return nil
}

// vanish resets the connection, or falls silent on it.
func (c *slowClient) vanish(s *socket) {
	if c.rng.IntN(2) == 0 {
		s.reset()
		return
	}
	c.silent = append(c.silent, s)
	c.forgetSilent(maxSilent)
}

// forgetSilent resets the oldest silent connections but for the latest n.
func (c *slowClient) forgetSilent(n int) {
	for len(c.silent) > n {
		c.silent[0].reset()
		c.silent = c.silent[1:]
	}
}
