package traffic

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/scripts/loadtest/result"
	"noncegate/wire"
)

// Behaviour is how clients misbehave.
type Behaviour string

const (
	// StopReading reads nothing any more, neither events nor replies.
	StopReading Behaviour = "stop"
	// Trickle reads a few bytes a second.
	Trickle Behaviour = "trickle"
)

// Slow are clients that misbehave on purpose beside a load, connected all the time. What they send and receive is counted nowhere else.
type Slow struct {
	Clients   int
	Behaviour Behaviour
	Rate      float64 // allocations a second they send together, above 0; one that the gateway does not read from sends less
	// Misbehave has them subscribe to all events, send, and misbehave from the begin of the measured time; else they keep still.
	Misbehave bool
}

// Beside is the load with a share of its clients, and of its rate, made slow ones.
func (l Load) Beside(share float64, how Behaviour) Load {
	clients := int(math.Round(share * float64(l.Connections)))
	share = float64(clients) / float64(max(l.Connections, 1))
	l.Slow = Slow{Clients: clients, Behaviour: how, Rate: share * l.Rate}
	l.Connections, l.Rate = l.Connections-clients, l.Rate*(1-share)
	return l
}

// slowClients are the clients of a Slow. Each has a goroutine, and another one that sends; stop ends them.
type slowClients struct {
	load   Load
	begun  chan struct{} // closed: they misbehave
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	counts result.Slow
}

// startSlow opens the connections of a load's slow clients and leaves them idle until begun is closed. ctx bounds only the opening.
func startSlow(ctx context.Context, l Load) (*slowClients, error) {
	g := &slowClients{load: l, begun: make(chan struct{})}
	g.counts = result.Slow{Clients: l.Slow.Clients, Behaviour: string(l.Slow.Behaviour), Ended: make(map[string]int64)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	all, err := openAll(ctx, l.Slow.Clients, g.open)
	if err != nil {
		g.cancel()
		return nil, fmt.Errorf("open the slow clients: %w", err)
	}
	for i, first := range all {
		c := &slowClient{slowClients: g, number: i, rng: rand.New(rand.NewPCG(uint64(l.Signers.Base), uint64(i)))}
		g.wg.Go(func() { c.live(first) })
	}
	return g, nil
}

// stop ends all clients, once they have read for a moment whether the gateway closed them, and says what became of them.
func (g *slowClients) stop() *result.Slow {
	g.cancel()
	g.wg.Wait()
	return &g.counts
}

func (g *slowClients) count(change func(*result.Slow)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.counts)
}

const (
	// slowReadBuffer is what the kernel keeps for a slow client. It is small, so that what is not read fills the gateway's side soon.
	slowReadBuffer = 4 << 10
	// A trickling client reads trickleBytes each trickleTick.
	trickleBytes = 4
	trickleTick  = 250 * time.Millisecond
	// comeBackAfter is the pause before a client comes back that was thrown out, spread by half of itself to both sides.
	comeBackAfter = time.Second
)

// throttled is a TCP connection that is read as a behaviour says, from when it is slow until it is released.
type throttled struct {
	*net.TCPConn
	how  Behaviour
	slow atomic.Bool
	free chan struct{} // closed: released
}

func (t *throttled) Read(p []byte) (int, error) {
	if t.slow.Load() {
		tick := make(<-chan time.Time) // of a client that stops reading none comes
		if t.how == Trickle {
			tick = time.After(trickleTick)
		}
		select {
		case <-t.free:
		case <-tick:
			p = p[:min(len(p), trickleBytes)]
		}
	}
	return t.TCPConn.Read(p)
}

// SetWriteDeadline does nothing: gorilla sets none before each write.
func (t *throttled) SetWriteDeadline(time.Time) error { return nil }

// release ends a write that waits for the gateway, and lets what is left be read until then.
func (t *throttled) release(until time.Time) {
	t.TCPConn.SetWriteDeadline(time.Now())
	t.SetReadDeadline(until)
	close(t.free)
}

// slowConn is a WebSocket over a throttled connection.
type slowConn struct {
	*websocket.Conn
	below *throttled
}

// open opens a connection. The kernel keeps little of what its client does not read.
func (g *slowClients) open(ctx context.Context, i int) (c slowConn, err error) {
	url := g.load.URLs[i%len(g.load.URLs)]
	c.Conn, err = g.load.Access.dial(ctx, url, func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.below = &throttled{TCPConn: conn.(*net.TCPConn), how: g.load.Slow.Behaviour, free: make(chan struct{})}
		return c.below, c.below.SetReadBuffer(slowReadBuffer)
	})
	return c, err
}

// reset ends a connection without a close frame, and without the end of the bytes that a closed socket would send.
func (c slowConn) reset() {
	c.below.SetLinger(0)
	c.below.Close()
}

// slowClient is one client over all its connections. Its goroutine runs live.
type slowClient struct {
	*slowClients
	number int
	rng    *rand.Rand // in a session of what it sends
}

// live is the client's goroutine: one connection after the other.
func (c *slowClient) live(conn slowConn) {
	select {
	case <-c.begun:
	case <-c.ctx.Done():
		conn.Close()
		return
	}
	for again := true; again; conn, again = c.comeBack() {
		why := c.session(conn)
		conn.reset()
		kicked := websocket.IsCloseError(why, wire.CloseSlowConsumer)
		if c.ctx.Err() != nil && !kicked { // a kick came before, and it has only now read of it
			continue
		}
		c.count(func(n *result.Slow) {
			n.Ended[reason(why)]++
			if kicked {
				n.Kicked++
			}
		})
	}
}

// comeBack opens the next connection after a pause, however long it takes; false once it was stopped.
func (c *slowClient) comeBack() (slowConn, bool) {
	for {
		select {
		case <-time.After(comeBackAfter/2 + time.Duration(c.rng.Int64N(int64(comeBackAfter)))):
		case <-c.ctx.Done():
			return slowConn{}, false
		}
		conn, err := c.open(c.ctx, c.number)
		if err == nil {
			c.count(func(n *result.Slow) { n.Reconnects++ })
			return conn, true
		}
		if c.ctx.Err() == nil {
			c.count(func(n *result.Slow) { n.Ended["not let in again: "+reason(err)]++ })
		}
	}
}

// session misbehaves on one connection until the other side ends it or stop is called, and says why it ended: at best by the close frame.
func (c *slowClient) session(conn slowConn) error {
	if err := firstRequest(conn.Conn, subscription); err != nil {
		return err
	}
	conn.below.slow.Store(true)
	ctx, end := context.WithCancelCause(c.ctx)
	released := make(chan struct{})
	context.AfterFunc(ctx, func() {
		conn.below.release(time.Now().Add(lastWords))
		close(released)
	})
	var sending sync.WaitGroup
	sending.Go(func() { end(c.send(ctx, conn)) })
	err := c.read(conn)
	end(err)
	sending.Wait()
	<-released
	if closedBy(err) == nil {
		return context.Cause(ctx)
	}
	return err
}

var subscription = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":[%q]}`, firstID, wire.MethodSubscribe, wire.TopicEvents)

// send sends at the client's share of the rate until ctx ends. It waits for a gateway that does not read.
func (c *slowClient) send(ctx context.Context, conn slowConn) error {
	tick := time.NewTicker(max(time.Microsecond, time.Duration(float64(c.load.Slow.Clients)/c.load.Slow.Rate*float64(time.Second))))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := conn.WriteMessage(websocket.TextMessage, allocation(c.load.Signers.Name(c.rng.IntN(c.load.Signers.Count)))); err != nil {
			return err
		}
	}
}

// read looks for what the client missed until the connection ends.
func (c *slowClient) read(conn slowConn) error {
	for {
		_, payload, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		var note struct { // that some events were dropped before it; another message has no such member
			Params struct {
				Result struct {
					Missed int64 `json:"missed"`
				} `json:"result"`
			} `json:"params"`
		}
		if wire.Unmarshal(payload, &note) == nil && note.Params.Result.Missed > 0 {
			c.count(func(n *result.Slow) { n.Missed += note.Params.Result.Missed })
		}
	}
}
