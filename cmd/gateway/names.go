package main

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"noncegate/nonce"
)

// namebook has the store remember what the principals are called that are let in, for
// people who look at holds: in rows a principal is eight bytes. A name that does not fit
// the queue, or that the store does not take, is met again at the next connection.
type namebook struct {
	store nonce.Names
	queue chan string
	known *lru.Cache[string, struct{}]
}

const (
	maxNames    = 100_000 // remembered here; others are told to the store anew
	nameQueue   = 1024
	nameTimeout = 5 * time.Second
)

// openNames starts it; nil without authentication.
func (a *app) openNames(context.Context) (err error) {
	if a.gate == nil {
		return nil
	}
	n := &namebook{store: a.store, queue: make(chan string, nameQueue)}
	if n.known, err = lru.New[string, struct{}](maxNames); err != nil {
		return err
	}
	a.meets = n.met
	a.background("names", func(ctx context.Context) {
		n.run(ctx, func(err error) { a.log.Debug("remembering names of principals", "error", err) })
	})
	return nil
}

// met queues a name that the store may not know yet. It does not block.
func (n *namebook) met(name string) {
	if known, _ := n.known.ContainsOrAdd(name, struct{}{}); known {
		return
	}
	select {
	case n.queue <- name:
	default:
		n.known.Remove(name)
	}
}

// run stores what is queued until ctx ends. failed is told of names that the store did
// not take.
func (n *namebook) run(ctx context.Context, failed func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-n.queue:
			names := []string{name}
			for range len(n.queue) {
				names = append(names, <-n.queue)
			}
			bounded, cancel := context.WithTimeout(ctx, nameTimeout)
			if err := n.store.RememberNames(bounded, names); err != nil {
				failed(err)
				for _, name := range names {
					n.known.Remove(name)
				}
			}
			cancel()
		}
	}
}
