// Package observe reads what gateways say of themselves while a load runs: their
// /metrics page, once a second. At the end it tells for each how long its stages
// took, whether one of their queues grew, which counters moved, and how much
// memory the process held.
//
// What it promises: it never ends or delays a load. A gateway without /metrics,
// one that is slow, hangs, restarts or answers nonsense costs figures and a
// sentence in result.Node.Missing, nothing else. One reading at a time goes to
// each gateway, and its answer is bounded in time and bytes. What it does not:
// what a process counted between its last reading and its end is lost, and
// percentiles are as fine as the gateway's buckets.
//
// Memory grows by a few numbers for each second and gateway of the run, and by
// nothing else. Start starts one goroutine for each gateway, and End stops them
// and waits.
package observe

import (
	"context"
	"net/http"
	"sync"
	"time"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
)

const interval = time.Second

// Observer reads a number of gateways. Make it with Start. Its methods may be
// called from any goroutine.
type Observer struct {
	read  reader
	nodes []*node
	begin []chan struct{} // one for each node: the measured time begins, read now

	ctx  context.Context // the caller's: what is left to read at the end is read under its values
	stop context.CancelFunc
	wait sync.WaitGroup

	mu    sync.Mutex
	began time.Time // zero until Begin

	end     sync.Once
	found   []result.Node // set by the first End
	release func()        // what start was given, called once
}

// Pages are the /metrics of gateways, and what is shown there.
type Pages struct {
	URLs   []string
	Access access.Access
}

// Start is Pages.Start of pages that ask for no key.
func Start(ctx context.Context, urls []string) *Observer { return Pages{URLs: urls}.Start(ctx) }

// Start begins to read the pages. Readings stop when ctx ends; End must be called in
// any case. Without URLs it does nothing, at no cost.
func (p Pages) Start(ctx context.Context) *Observer {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, TLSClientConfig: p.Access.TLS}
	read := overHTTP(&http.Client{Transport: transport}, p.Access.Header, readTimeout)
	return start(ctx, p.URLs, read, transport.CloseIdleConnections)
}

// start is Start with what it reads with, and what is to be called at the end.
func start(ctx context.Context, urls []string, read reader, release func()) *Observer {
	running, stop := context.WithCancel(ctx)
	o := &Observer{read: read, ctx: ctx, stop: stop, release: release}
	for _, url := range urls {
		n, begin := newNode(url), make(chan struct{}, 1)
		o.nodes = append(o.nodes, n)
		o.begin = append(o.begin, begin)
		o.wait.Go(func() { o.follow(running, n, begin) })
	}
	return o
}

// follow reads one gateway until ctx ends.
func (o *Observer) follow(ctx context.Context, n *node, begin <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-begin:
			ticker.Reset(interval)
		case <-ticker.C:
		}
		n.read(ctx, o.read, o.measuring)
	}
}

// Begin says that the measured time begins now: what was counted before is left
// out. It returns at once; the gateways are read right after. Only the first
// call counts.
func (o *Observer) Begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.began.IsZero() {
		return
	}
	o.began = time.Now()
	for _, begin := range o.begin {
		begin <- struct{}{} // has room: this is the only sender, and sends once
	}
}

// measuring tells when the measured time began, and whether it has.
func (o *Observer) measuring() (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.began, !o.began.IsZero()
}

// End says that the measured time ends now, reads every gateway a last time
// (also after the end of the context given to Start; it takes at most two
// seconds), stops all goroutines, waits for them, and returns the figures in the
// order of the URLs. Without Begin the nodes have no figures and say why. A
// further call returns the same.
func (o *Observer) End() []result.Node {
	o.end.Do(func() {
		o.stop()
		o.wait.Wait()
		began, measured := o.measuring()
		if measured {
			for _, n := range o.nodes {
				o.wait.Go(func() { n.read(context.WithoutCancel(o.ctx), o.read, o.measuring) })
			}
			o.wait.Wait()
		}
		for _, n := range o.nodes {
			o.found = append(o.found, n.result(time.Since(began)))
		}
		o.release()
	})
	return o.found
}
