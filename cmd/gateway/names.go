package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
)

// namebook has the store remember what the principals are called that are let in, for
// people who look at holds: in rows a principal is eight bytes. A name that does not fit
// the queue is met again at the next connection.
type namebook struct {
	store nonce.Names
	queue chan string

	mu    sync.Mutex // guards known
	known map[string]bool
}

const (
	maxNames    = 100_000 // remembered here; with more of them all are told to the store anew
	nameQueue   = 1024
	nameBatch   = 100
	nameTimeout = 5 * time.Second
)

// met queues a name that the store may not know yet. It does not block.
func (n *namebook) met(name string) {
	n.mu.Lock()
	known := n.known[name]
	n.mu.Unlock()
	if known {
		return
	}
	select {
	case n.queue <- name:
	default:
	}
}

// openNames starts it; nil where nobody is asked who he is.
func (a *app) openNames(context.Context) error {
	if a.gate == nil {
		return nil
	}
	a.names = &namebook{store: a.store, queue: make(chan string, nameQueue), known: make(map[string]bool)}
	a.background("names", func(ctx context.Context) {
		a.names.run(ctx, func(err error) { a.log.Debug("remembering names of principals", "error", err) })
	})
	return nil
}

// run stores what is queued until ctx ends. failed is told of names that the store did
// not take.
func (n *namebook) run(ctx context.Context, failed func(error)) {
	for {
		var batch []string
		select {
		case <-ctx.Done():
			return
		case name := <-n.queue:
			batch = append(batch, name)
		}
		for more := true; more && len(batch) < nameBatch; {
			select {
			case name := <-n.queue:
				batch = append(batch, name)
			default:
				more = false
			}
		}
		slices.Sort(batch)
		if err := n.remember(ctx, slices.Compact(batch)); err != nil {
			failed(err)
		}
	}
}

func (n *namebook) remember(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	if err := n.store.RememberNames(ctx, names); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known)+len(names) > maxNames {
		clear(n.known)
	}
	for _, name := range names {
		n.known[name] = true
	}
	return nil
}

// meets is what connections tell of whom they let in.
func (a *app) meets() func(string) {
	if a.names == nil {
		return nil
	}
	return a.names.met
}
