//go:build unix

package rig

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/client"
	"noncegate/wire"
)

// LoadConfig is what the clients do.
type LoadConfig struct {
	Clients int           // that take nonces and mark them, each one after the other
	Signers int           // they share
	Pause   time.Duration // between two nonces of a client, on the average
	Wave    time.Duration // the pauses grow and shrink with this period; 0: they are even
	Lazy    bool          // one more client subscribes to everything and does not read
	Flood   int           // requests that one client sends at once each second, more than it may; 0: none
	Chain   *Chain        // some clients more send transactions to it; nil: none do
}

// Load is clients at work: those of LoadConfig, one that subscribes to all
// events, and one that is refused again and again, in each way that is cheap.
type Load struct {
	cfg     LoadConfig
	url     string
	began   time.Time
	cancel  context.CancelFunc
	clients sync.WaitGroup

	mu   sync.Mutex // guards errs
	errs []error
}

// StartLoad starts clients of the gateway at url. The caller stops them.
func StartLoad(url string, cfg LoadConfig) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{cfg: cfg, url: url, began: time.Now(), cancel: cancel}
	for i := range cfg.Clients {
		l.start(ctx, func() error { return l.takeNonces(ctx, i) })
	}
	l.start(ctx, func() error { return l.hearEvents(ctx) })
	l.start(ctx, func() error { return l.beRefused(ctx) })
	if cfg.Flood > 0 {
		l.start(ctx, func() error { return l.floodNowAndThen(ctx) })
	}
	if cfg.Chain != nil {
		l.start(ctx, func() error { return l.askNode(ctx) })
		for account := range accounts {
			l.start(ctx, func() error { return l.sendTransactions(ctx, account+1) })
		}
	}
	if cfg.Lazy {
		l.start(ctx, func() error { return l.beLazy(ctx) })
	}
	return l
}

// Stop ends the clients, waits for them, and returns what went wrong that the
// load had not meant to.
func (l *Load) Stop() error {
	l.cancel()
	l.clients.Wait()
	return errors.Join(l.errs...)
}

func (l *Load) start(ctx context.Context, work func() error) {
	l.clients.Go(func() {
		if err := work(); err != nil && ctx.Err() == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.errs = append(l.errs, err)
		}
	})
}

// pause waits as the wave says. false: the load ends.
func (l *Load) pause(ctx context.Context) bool {
	d := l.cfg.Pause
	if l.cfg.Wave > 0 {
		angle := 2 * math.Pi * time.Since(l.began).Seconds() / l.cfg.Wave.Seconds()
		d = time.Duration(float64(d) * (1.05 - math.Sin(angle)))
	}
	return wait(ctx, d)
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const txHash = "0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"

// takeNonces takes nonces and says that they were used, or, every eighth, not.
func (l *Load) takeNonces(ctx context.Context, number int) error {
	c, err := client.Dial(ctx, l.url, client.Config{})
	if err != nil {
		return err
	}
	defer c.Close()
	for i := number; l.pause(ctx); i++ {
		signer := fmt.Sprintf("signer-%d", i%l.cfg.Signers)
		err := c.WithNonce(ctx, signer, client.NonceOptions{}, func(context.Context, *client.HeldNonce) (string, error) {
			if i%8 == 0 {
				return "", client.ErrNotSent
			}
			return txHash, nil
		})
		if err != nil && !errors.Is(err, client.ErrNotSent) {
			return err
		}
	}
	return nil
}

func (l *Load) hearEvents(ctx context.Context) error {
	c, err := client.Dial(ctx, l.url, client.Config{})
	if err != nil {
		return err
	}
	defer c.Close()
	events, err := c.Subscribe(ctx)
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		select {
		case <-events.Events():
		case <-ctx.Done():
			return nil
		}
	}
}

// beRefused makes mistakes, some of them at admission.
func (l *Load) beRefused(ctx context.Context) error {
	for wait(ctx, 5*l.cfg.Pause) {
		if err := l.mistakes(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (l *Load) mistakes(ctx context.Context) error {
	evil := http.Header{"Origin": {"https://evil.example"}}
	if c, _, err := websocket.DefaultDialer.DialContext(ctx, l.url, evil); err == nil {
		return errors.Join(errors.New("a page of another host was let in"), c.Close())
	}
	c, _, err := websocket.DefaultDialer.DialContext(ctx, l.url, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	requests := []string{
		`{"jsonrpc":"2.0","id":1,"method":"` + wire.MethodMarkUsed + `","params":["nobody",7,"` + txHash + `"]}`,
		`{"jsonrpc":"2.0","id":2,"method":"eth_chainId"}`,
		`{"jsonrpc":"2.0","id":3,"method":"` + wire.MethodStatus + `","params":[]}`,
		`{"jsonrpc":"2.0","id":4,"method":"` + wire.MethodStatus + `","params":["signer-0"]}`,
		`{"jsonrpc":"2.0","id":7,"method":"` + wire.MethodMarkUsed + `","params":["nobody",7,"` + txHash + `",1,{"key":"twice"}]}`,
		`{"jsonrpc":"2.0","id":8,"method":"` + wire.MethodMarkUsed + `","params":["nobody",7,"` + txHash + `",1,{"key":"twice"}]}`,
		`{"jsonrpc":"2.0","id":5,"method":"` + wire.MethodList + `","params":["signer-0",null,0,50]}`,
	}
	if err := exchange(c, requests); err != nil {
		return err
	}
	return c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
}

// exchange sends requests at once and reads as many replies.
func exchange(c *websocket.Conn, requests []string) error {
	for _, r := range requests {
		if err := c.WriteMessage(websocket.TextMessage, []byte(r)); err != nil {
			return err
		}
	}
	for range requests {
		if _, _, err := c.ReadMessage(); err != nil {
			return err
		}
	}
	return nil
}

// floodNowAndThen asks for more at once than one connection may, without pause.
func (l *Load) floodNowAndThen(ctx context.Context) error {
	c, _, err := websocket.DefaultDialer.DialContext(ctx, l.url, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	flood := slices.Repeat([]string{`{"jsonrpc":"2.0","id":6,"method":"` + wire.MethodStatus + `","params":["signer-0"]}`}, l.cfg.Flood)
	for wait(ctx, time.Second) {
		if err := exchange(c, flood); err != nil {
			return err
		}
	}
	return nil
}

// beLazy subscribes to everything, reads nothing, is closed for it, and comes back.
func (l *Load) beLazy(ctx context.Context) error {
	small := websocket.Dialer{NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(4096)
		}
		return c, err
	}}
	for {
		c, _, err := small.DialContext(ctx, l.url, nil)
		if err != nil {
			return err
		}
		err = c.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":1,"method":"`+wire.MethodSubscribe+`","params":["events"]}`))
		more := wait(ctx, lazyFor)
		if err := errors.Join(err, c.Close()); err != nil || !more {
			return err
		}
	}
}

// lazyFor is how long a client that does not read stays.
const lazyFor = 15 * time.Second
