package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn"
	"noncegate/wire"
)

// byeTimeout is how long the end of a link waits for a write under way.
const byeTimeout = 100 * time.Millisecond

var (
	errSilent = errors.New("the node says nothing any more")
	errClosed = errors.New("this node closed it")
)

// pipe is the connection of a link of either direction: one goroutine reads, one writes, and both
// sides ping, so that either finds a hanging one by its silence.
type pipe struct {
	cfg     *Config
	ws      *websocket.Conn
	heardAt atomic.Int64  // Unix nanoseconds
	taking  atomic.Bool   // what came is being taken, which may wait for this node: the other is not silent
	more    chan struct{} // there is something to send
	pings   chan struct{}
	pongs   wsconn.Pongs
	quit    chan farewell // to the writer
}

// farewell is a close frame.
type farewell struct {
	code int
	text string
}

// end is what a link does with its pipe.
type end interface {
	// take takes a message that came. An error ends the link.
	take(message []byte) error
	// fill appends what is to be sent now, and wrote is called when that was written.
	fill(b []byte) []byte
	wrote()
	// look is called every Config.tick. An error ends the link.
	look(now time.Time) error
}

func newPipe(cfg *Config, ws *websocket.Conn, more chan struct{}) *pipe {
	p := &pipe{
		cfg: cfg, ws: ws, more: more, pings: make(chan struct{}, 1), pongs: wsconn.NewPongs(), quit: make(chan farewell, 2),
	}
	p.hear()
	ws.SetReadLimit(maxFrame)
	ws.SetPingHandler(func(data string) error { p.hear(); p.pongs.Put(data); return nil })
	ws.SetPongHandler(func(string) error { p.hear(); return nil })
	ws.SetCloseHandler(func(int, string) error { return nil }) // run answers it
	return p
}

func (p *pipe) hear() { p.heardAt.Store(time.Now().UnixNano()) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will look anyway
	}
}

// run serves the link until it is over, and returns why. Both goroutines have ended then.
func (p *pipe) run(ctx context.Context, l end) error {
	reading, writing := make(chan error, 1), make(chan error, 1)
	go func() { reading <- safely(func() error { return p.read(l) }) }()
	go func() { writing <- safely(func() error { return p.write(l) }) }()
	tick := time.NewTicker(p.cfg.tick())
	defer tick.Stop()
	for pinged := time.Now(); ; {
		var err error
		select {
		case err = <-reading:
			reading <- err
		case err = <-writing:
			writing <- err
			err = p.lastWords(ctx, reading, err)
		case <-ctx.Done():
			err = context.Cause(ctx)
		case now := <-tick.C:
			if now.Sub(pinged) >= p.cfg.pingEvery() {
				pinged = now
				poke(p.pings)
			}
			if !p.taking.Load() && now.UnixNano()-p.heardAt.Load() > int64(p.cfg.silence()) {
				err = errSilent
			} else {
				err = l.look(now)
			}
		}
		if err != nil {
			p.over(reading, writing, err)
			return err
		}
	}
}

// safely keeps a mistake of ours from ending the process.
func safely(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("a mistake of this program: %v\n%s", v, debug.Stack())
		}
	}()
	return do()
}

// lastWords waits a moment for what the node said when it closed; err is what the writer met.
func (p *pipe) lastWords(ctx context.Context, reading chan error, err error) error {
	select {
	case why := <-reading:
		reading <- why
		if ce, ok := errors.AsType[*websocket.CloseError](why); ok {
			return ce
		}
	case <-time.After(p.cfg.lastWords()):
	case <-ctx.Done():
	}
	return cmp.Or(err, errClosed)
}

// over ends the connection, with a close frame if that can be sent at once.
func (p *pipe) over(reading, writing chan error, err error) {
	p.close(closeCode(err))
	select {
	case why := <-writing:
		writing <- why
	case <-time.After(byeTimeout): // it is stuck in a write
	}
	p.ws.Close()
	<-writing
	<-reading
}

// close has the writer send a close frame and end, with a text only behind all that is ready.
func (p *pipe) close(code int, text string) {
	select {
	case p.quit <- farewell{code, text}:
	default: // it has another one already
	}
}

// closeCode is what the other node is told when err ended the link.
func closeCode(err error) (code int, text string) {
	if ce, ok := errors.AsType[*websocket.CloseError](err); ok && ce.Code != websocket.CloseAbnormalClosure {
		return websocket.CloseNormalClosure, ""
	}
	if errors.Is(err, errNonsense) {
		return wire.CloseProtocolError, ""
	}
	return wire.CloseGoingAway, ""
}

// isRestart reports whether the node closed because it drains. A proxy between may close with that
// code too, but does not say why in the same word.
func isRestart(err error) bool {
	ce, ok := errors.AsType[*websocket.CloseError](err)
	return ok && ce.Code == wire.CloseServiceRestart && ce.Text == wire.CloseTextRestart
}

// read returns why it ended, never nil.
func (p *pipe) read(l end) error {
	var message bytes.Buffer
	for {
		kind, r, err := p.ws.NextReader()
		if err != nil {
			return err
		}
		if kind != websocket.BinaryMessage {
			return nonsense("a message of text")
		}
		message.Reset()
		if _, err := message.ReadFrom(heard{r, p}); err != nil {
			return err
		}
		p.taking.Store(true)
		err = l.take(message.Bytes())
		p.hear()
		p.taking.Store(false)
		if err != nil {
			return err
		}
	}
}

// heard notes that something came.
type heard struct {
	io.Reader
	p *pipe
}

func (h heard) Read(b []byte) (int, error) {
	h.p.hear()
	return h.Reader.Read(b)
}

// write returns nil when it was told to quit.
func (p *pipe) write(l end) error {
	var b []byte
	for {
		var err error
		if b, err = p.send(l, b); err != nil {
			return err
		}
		if len(b) > 0 {
			poke(p.more) // after what else there is to do
		}
		select {
		case <-p.more:
		case data := <-p.pongs:
			err = p.control(websocket.PongMessage, data)
		case <-p.pings:
			err = p.control(websocket.PingMessage, nil)
		case bye := <-p.quit:
			for left := len(bye.text) > 0; left && err == nil; left = len(b) > 0 {
				b, err = p.send(l, b)
			}
			_ = p.control(websocket.CloseMessage, websocket.FormatCloseMessage(bye.code, bye.text)) // a courtesy
			return err
		}
		if err != nil {
			return err
		}
	}
}

// send sends one message, if there is anything to send, and returns it.
func (p *pipe) send(l end, b []byte) ([]byte, error) {
	if cap(b) > 2*fullFrame {
		b = nil
	}
	if b = l.fill(b[:0]); len(b) == 0 {
		return b, nil
	}
	p.ws.SetWriteDeadline(time.Now().Add(p.cfg.writeTime()))
	err := p.ws.WriteMessage(websocket.BinaryMessage, b)
	if err == nil {
		l.wrote()
	}
	return b, err
}

func (p *pipe) control(kind int, data []byte) error {
	return p.ws.WriteControl(kind, data, time.Now().Add(p.cfg.writeTime()))
}
