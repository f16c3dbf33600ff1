package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	dialers    = 64               // connections being opened at a time
	drainGrace = 10 * time.Second // for the replies still under way at the end
)

// load says what to send. Every connection sends a burst of requests in one
// write, waits for all replies, and does it again: at once, or with a rate when
// the next burst is due.
type load struct {
	url         string
	connections int
	inflight    int     // requests a burst
	signers     int     // how many accounts take turns, at random
	signerBase  int64   // number of the first one
	rate        float64 // requests a second over all connections; 0: as fast as answers come
	warmup      time.Duration
	duration    time.Duration
}

var defaultLoad = load{connections: 64, inflight: 16, signers: 1000, warmup: time.Second, duration: 5 * time.Second}

// register adds the flags that run and bench share.
func (l *load) register(flags *flag.FlagSet) {
	flags.IntVar(&l.connections, "connections", l.connections, "WebSocket `connections`")
	flags.IntVar(&l.inflight, "inflight", l.inflight, "`requests` a connection sends in one burst before it waits for the replies")
	flags.IntVar(&l.signers, "signers", l.signers, "`number` of signers, chosen at random")
	flags.Int64Var(&l.signerBase, "signer-base", l.signerBase, "`number` of the first signer's account")
	flags.Float64Var(&l.rate, "rate", l.rate, "`requests` a second over all connections, latency counted from when each was due; 0: closed loop")
	flags.DurationVar(&l.warmup, "warmup", l.warmup, "`time` before measuring")
	flags.DurationVar(&l.duration, "duration", l.duration, "`time` measured")
}

func (l load) validate() error {
	switch {
	case l.connections < 1, l.inflight < 1, l.signers < 1:
		return errors.New("-connections, -inflight and -signers must be at least 1")
	case l.inflight > 10_000:
		return errors.New("-inflight must be at most 10000")
	case l.signerBase < 0, l.rate < 0, l.warmup < 0:
		return errors.New("-signer-base, -rate and -warmup must not be negative")
	case l.duration <= 0:
		return errors.New("-duration must be above 0")
	}
	return nil
}

// interval is the time between two bursts of one connection, 0 without a rate.
func (l load) interval() time.Duration {
	if l.rate == 0 {
		return 0
	}
	return time.Duration(float64(l.connections*l.inflight) / l.rate * float64(time.Second))
}

// run makes the load and measures it. It returns once every connection is closed
// and its goroutine has ended.
func (l load) run(ctx context.Context) (report, error) {
	if err := l.validate(); err != nil {
		return report{}, err
	}
	clients, err := l.dial(ctx)
	defer closeAll(clients)
	if err != nil {
		return report{}, err
	}
	m := newMeter()
	g := startClients(clients, m)
	defer g.stop()
	if err := g.wait(ctx, l.warmup); err != nil {
		return report{}, err
	}
	m.begin()
	err = g.wait(ctx, l.duration)
	m.end()
	if err != nil {
		return report{}, err
	}
	lost := g.stop()
	return m.report(l, lost), nil
}

// dial opens all connections, or returns those opened and the first error.
func (l load) dial(ctx context.Context) ([]*client, error) {
	table := signerTable(l.signerBase, l.signers)
	clients := make([]*client, l.connections)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(dialers)
	for i := range clients {
		g.Go(func() (err error) {
			clients[i], err = dialClient(ctx, l, table, i)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return clients, fmt.Errorf("connect to %s: %w", l.url, err)
	}
	return clients, nil
}

func closeAll(clients []*client) {
	for _, c := range clients {
		if c != nil {
			c.conn.Close()
		}
	}
}

// group is the running clients.
type group struct {
	clients []*client
	quit    chan struct{} // closed: no burst begins any more
	done    chan struct{} // closed: every client has ended
	stopped bool
	lost    []string // why connections ended before they were told to
}

// startClients starts a goroutine for each client; stop waits for them.
func startClients(clients []*client, m *meter) *group {
	g := &group{clients: clients, quit: make(chan struct{}), done: make(chan struct{})}
	ended := make(chan error, len(clients))
	start := time.Now()
	for i, c := range clients {
		go func() { ended <- c.loop(m.shard(i), start, g.quit) }()
	}
	go func() {
		defer close(g.done)
		for range clients {
			if err := <-ended; err != nil {
				g.lost = append(g.lost, err.Error())
			}
		}
	}()
	return g
}

// wait returns after d, or with an error when nobody is left or ctx ends.
func (g *group) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-g.done:
		return fmt.Errorf("every connection was lost: %s", g.lost[0])
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop lets the clients finish their bursts, or closes them after a grace
// period, and returns why connections were lost before. It may be called twice.
func (g *group) stop() []string {
	if g.stopped {
		return g.lost
	}
	g.stopped = true
	close(g.quit)
	timer := time.NewTimer(drainGrace)
	defer timer.Stop()
	select {
	case <-g.done:
	case <-timer.C:
		closeAll(g.clients)
		<-g.done
	}
	return g.lost
}
