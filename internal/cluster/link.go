package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn"
	"noncegate/wire"
)

const (
	// maxMessageBytes bounds what a node may send in one message: the answer to
	// an allocate of 256 nonces has about 20 KiB.
	maxMessageBytes = 256 << 10
	byeTimeout      = 100 * time.Millisecond
)

// link is one connection to another node. run, called by keep, owns its reader and
// its writer.
type link struct {
	peer        *peer
	url         string // as the node advertises it
	incarnation int64  // of the node, by the registry when it was dialled
	ws          *websocket.Conn
	transport   *transport // beneath ws

	// To the writer.
	pings chan struct{} // send a ping
	pongs wsconn.Pongs  // send this pong
	quit  chan int      // send a close frame with this code, and end

	readEnd, writeEnd chan error // each receives once, when its goroutine ends

	in  input
	out output
}

func (l *link) init(ws *websocket.Conn) {
	l.ws = ws
	l.pings, l.pongs, l.quit = make(chan struct{}, 1), wsconn.NewPongs(), make(chan int, 1)
	l.readEnd, l.writeEnd = make(chan error, 1), make(chan error, 1)
	l.transport.beforeRead = l.in.wakers.wake
	ws.SetReadLimit(maxMessageBytes)
	ws.SetPingHandler(func(data string) error {
		l.pongs.Put(data)
		return nil
	})
	ws.SetCloseHandler(func(int, string) error { return nil }) // run answers it
}

// run serves the link until it is over and returns why. Both goroutines have ended
// then.
func (l *link) run() error {
	cfg := &l.peer.r.cfg
	go func() { l.readEnd <- l.read() }()
	go func() { l.writeEnd <- l.write() }()
	tick := time.NewTicker(cfg.tick())
	defer tick.Stop()
	pinged := time.Now()
	for {
		select {
		case err := <-l.readEnd:
			l.readEnd <- err
			return l.over(err)
		case err := <-l.writeEnd:
			l.writeEnd <- err
			return l.over(l.reasonOr(err))
		case <-l.peer.ctx.Done():
			return l.over(context.Cause(l.peer.ctx))
		case now := <-tick.C:
			if err := l.unfit(now); err != nil {
				return l.over(err)
			}
			if now.Sub(pinged) >= cfg.pingEvery() {
				pinged = now
				poke(l.pings)
			}
			l.peer.expire(now)
			l.peer.nudge() // a subscription that was refused is tried again
		}
	}
}

// unfit is why a link that looks sound must end.
func (l *link) unfit(now time.Time) error {
	if l.transport.silentFor(now) > l.peer.r.cfg.silence() {
		return errSilent
	}
	l.peer.mu.Lock()
	defer l.peer.mu.Unlock()
	if l.peer.node.URL != l.url {
		return errMoved
	}
	return nil
}

// reasonOr waits a moment for what the node said when it closed; err is what the
// writer met.
func (l *link) reasonOr(err error) error {
	select {
	case why := <-l.readEnd:
		l.readEnd <- why
		if ce, ok := errors.AsType[*websocket.CloseError](why); ok {
			return ce
		}
	case <-time.After(l.peer.r.cfg.lastWords()):
	case <-l.peer.ctx.Done():
	}
	return err
}

// over ends the link, with a close frame if that can be sent at once.
func (l *link) over(err error) error {
	l.quit <- closeCode(err)
	select {
	case end := <-l.writeEnd:
		l.writeEnd <- end
	case <-time.After(byeTimeout): // it is stuck in a write
	}
	l.ws.Close()
	<-l.writeEnd
	<-l.readEnd
	l.in.wakers.wake()
	return err
}

// closeCode is what the other node is told when err ended the link.
func closeCode(err error) int {
	if ce, ok := errors.AsType[*websocket.CloseError](err); ok && ce.Code != websocket.CloseAbnormalClosure {
		return websocket.CloseNormalClosure
	}
	if errors.Is(err, errNonsense) {
		return wire.CloseProtocolError
	}
	return wire.CloseGoingAway
}

// isRestart reports whether the node closed because it drains. A proxy between may
// close with that code too, but does not say why in the same word.
func isRestart(err error) bool {
	ce, ok := errors.AsType[*websocket.CloseError](err)
	return ok && ce.Code == wire.CloseServiceRestart && ce.Text == wire.CloseTextRestart
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// transport is the connection beneath gorilla. It remembers when something was heard.
type transport struct {
	wsconn.Cork
	beforeRead func() // called by the reader before it may have to wait
	start      time.Time
	heardAt    atomic.Int64 // since start
}

// Read reads what there is, and waits if there is nothing.
func (t *transport) Read(p []byte) (int, error) {
	if t.beforeRead != nil {
		t.beforeRead()
	}
	n, err := t.Cork.Read(p)
	if n > 0 {
		t.heardAt.Store(int64(time.Since(t.start)))
	}
	return n, err
}

// silentFor is how long nothing was heard.
func (t *transport) silentFor(now time.Time) time.Duration {
	return now.Sub(t.start) - time.Duration(t.heardAt.Load())
}
