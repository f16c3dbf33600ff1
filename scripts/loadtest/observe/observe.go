// Package observe reads what gateways say of themselves while a load runs: their /metrics page,
// once a second. At the end it tells for each how long its stages took, whether one of their
// queues grew, which counters moved, and how much memory the process held.
//
// It never ends or delays a load. A gateway without /metrics, one that is slow, hangs, restarts
// or answers nonsense costs figures and a sentence in result.Node.Missing, nothing else. One
// reading at a time goes to each gateway, and its answer is bounded in time and bytes. What a
// process counted between its last reading and its end is lost, and percentiles are as fine as
// the gateway's buckets.
//
// Start starts one goroutine for each gateway, and End stops them and waits.
package observe

import (
	"context"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"noncegate/scripts/loadtest/result"
)

const interval = time.Second

// Pages are the /metrics of gateways, and what is shown there.
type Pages struct {
	URLs   []string
	Header http.Header // sent with each request
	TLS    *tls.Config // of https addresses
}

// Observer reads a number of gateways. Make it with Start. Its methods may be called from any
// goroutine.
type Observer struct {
	nodes   []*node
	begin   []chan time.Time // one for each node: the measured time begins
	ctx     context.Context  // the caller's: what is left to read at the end is read under its values
	stop    context.CancelFunc
	release func()
	wait    sync.WaitGroup

	once  sync.Once // of Begin
	end   sync.Once
	found []result.Node // set by the first End
}

// Start begins to read the pages. Readings stop when ctx ends; End must be called in any case.
// Without URLs it does nothing, at no cost.
func (p Pages) Start(ctx context.Context) *Observer {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, TLSClientConfig: p.TLS}
	client := &http.Client{Transport: transport}
	o := start(ctx, p.URLs, func(ctx context.Context, url string) (*reading, error) {
		return read(ctx, client, p.Header, url)
	})
	o.release = transport.CloseIdleConnections
	return o
}

// start is Start with what it reads with.
func start(ctx context.Context, urls []string, read reader) *Observer {
	running, stop := context.WithCancel(ctx)
	o := &Observer{ctx: ctx, stop: stop, release: func() {}}
	for _, url := range urls {
		n, begin := &node{url: url, get: read}, make(chan time.Time, 1)
		o.nodes, o.begin = append(o.nodes, n), append(o.begin, begin)
		o.wait.Go(func() { n.follow(running, begin) })
	}
	return o
}

// Begin says that the measured time begins now: what was counted before is left out. It returns
// at once; the gateways are read right after. Only the first call counts.
func (o *Observer) Begin() {
	o.once.Do(func() {
		for _, begin := range o.begin {
			begin <- time.Now() // has room: this is the only sender, and sends once
		}
	})
}

// End says that the measured time ends now, reads every gateway a last time (also after the end
// of the context given to Start; it takes at most two seconds), stops all goroutines, waits for
// them, and returns the figures in the order of the URLs. Without Begin the nodes have no figures
// and say why. A further call returns the same.
func (o *Observer) End() []result.Node {
	o.end.Do(func() {
		o.stop()
		o.wait.Wait()
		for i, n := range o.nodes {
			select {
			case n.began = <-o.begin[i]: // it was stopped before it heard of it
			default:
			}
			if !n.began.IsZero() {
				o.wait.Go(func() { n.read(context.WithoutCancel(o.ctx)) })
			}
		}
		o.wait.Wait()
		for _, n := range o.nodes {
			o.found = append(o.found, n.result())
		}
		o.release()
	})
	return o.found
}
