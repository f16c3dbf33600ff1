package nonce_test

import (
	"context"
	"time"

	"noncegate/nonce/fasttest"
)

// breakThings breaks one thing after the other.
func (w *world) breakThings(ctx context.Context) {
	harmless := w.chance(4)
	for pause(ctx, w.between(0, 3*time.Second)) {
		m, kind := w.nodes[w.intn(2)], w.intn(11)
		if kind < 8 {
			if harmless {
				continue
			}
			w.caused.Store(true)
		}
		switch kind {
		case 0:
			w.current().Flush()
		case 1, 2:
			w.back()
		case 3, 4:
			w.failover(ctx)
		case 5:
			w.partition(ctx, m)
		case 6, 7:
			w.split(ctx, m)
		case 8:
			m.away.Store(true)
			pause(ctx, w.between(0, testGrant+testHold))
			m.away.Store(false)
		case 9:
			for _, m := range w.nodes {
				m.away.Store(true)
			}
			pause(ctx, w.between(0, testGrant+time.Second))
			for _, m := range w.nodes {
				m.away.Store(false)
			}
		case 10:
			m.frozen.Store(time.Now().Add(w.between(0, testGrant+testHold)).UnixNano())
		}
		w.keep()
	}
}

// keep takes a backup of the server that it may be set back to.
func (w *world) keep() {
	b := w.current().Backup()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, b)
}

// older is a backup of the server, or nil.
func (w *world) older() *fasttest.Backup {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.kept) == 0 {
		return nil
	}
	return w.kept[w.rng.IntN(len(w.kept))]
}

func (w *world) life() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives++
	return w.lives
}

// back restarts the server with what it had some time ago, or with nothing, or with
// all.
func (w *world) back() {
	s := w.current()
	s.Restart(w.life())
	switch w.intn(3) {
	case 0:
		s.Flush()
	case 1:
		if b := w.older(); b != nil {
			s.Restore(b)
		}
	}
}

// failover makes a replica the server, which may lack the last changes. The nodes
// notice one after the other; the old one lives on.
func (w *world) failover(ctx context.Context) {
	old := w.current()
	behind := old.Backup()
	if w.chance(2) {
		pause(ctx, w.between(0, 50*time.Millisecond))
	}
	next := old.Replica(w.life())
	if w.chance(2) {
		next.Restore(behind)
	}
	w.replace(next)
	for _, m := range w.nodes {
		if !pause(ctx, w.between(0, 2*time.Second)) {
			break
		}
		m.client.Point(next)
	}
}

// split leaves a node alone with the old server, without the store, while the others
// go on with a replica.
func (w *world) split(ctx context.Context, m *member) {
	m.away.Store(true)
	next := w.replace(w.current().Replica(w.life()))
	for _, o := range w.nodes {
		if o != m {
			o.client.Point(next)
		}
	}
	pause(ctx, w.between(time.Second, 2*testGrant))
	if w.chance(2) { // what it has sent is answered when its grant is over, or nearly
		m.frozen.Store(time.Now().Add(w.between(0, 2*testGrant)).UnixNano())
	}
	pause(ctx, w.between(0, testHold))
	m.client.Point(next)
	m.away.Store(false)
}

// replace makes next the server that new connections reach.
func (w *world) replace(next *fasttest.Server) *fasttest.Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server, w.all, w.kept = next, append(w.all, next), nil
	return next
}

// partition cuts a node off from Redis, for so long that it may count as lost.
func (w *world) partition(ctx context.Context, m *member) {
	m.cut.Store(true)
	if pause(ctx, w.between(0, time.Second)); w.chance(2) {
		m.gone.Store(true)
		pause(ctx, w.between(0, time.Second))
	}
	m.gone.Store(false)
	m.cut.Store(false)
}
