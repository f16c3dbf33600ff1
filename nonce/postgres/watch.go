package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// watched ends the commit that its connection waits for when the context of that ends, as the driver would. The driver watches the context
// of each call anew, which was a third of what a small commit allocated; workers come with the same contexts again and again, and each of
// them is watched once here. A context with a deadline is of one call, and left to the driver.
type watched struct {
	conn *pgconn.PgConn

	mu    sync.Mutex
	now   context.Context                 // of the commit that is waited for; nil: there is none, or the driver watches
	cut   bool                            // it has ended
	stops map[context.Context]func() bool // of the contexts that are watched
}

// maxWatched bounds the contexts that a connection watches. There is one a worker.
const maxWatched = 64

// watchedKey is where a connection has its watched.
const watchedKey = "noncegate.watched"

func watchedOf(conn *pgconn.PgConn) *watched {
	w, ok := conn.CustomData()[watchedKey].(*watched)
	if !ok {
		w = &watched{conn: conn, stops: make(map[context.Context]func() bool)}
		conn.CustomData()[watchedKey] = w
	}
	return w
}

// begin returns the context that the driver is to have for a commit. The caller calls end afterwards.
func (w *watched) begin(ctx context.Context) context.Context {
	if _, once := ctx.Deadline(); once || ctx.Done() == nil || ctx.Err() != nil {
		return ctx
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = ctx
	if w.stops[ctx] == nil {
		if len(w.stops) == maxWatched {
			w.stopLocked()
		}
		w.stops[ctx] = context.AfterFunc(ctx, func() { w.over(ctx) })
	}
	return context.Background()
}

// over follows the end of a context.
func (w *watched) over(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.stops, ctx)
	if w.now == ctx {
		w.cut = true
		_ = w.conn.Conn().SetDeadline(time.Now()) // it fails where the connection is closed
	}
}

// end takes the error of the commit, and returns it as the driver would have told it.
func (w *watched) end(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cut := w.now, w.cut
	w.now, w.cut = nil, false
	switch {
	case !cut:
		return err
	case !w.conn.IsClosed(): // the answer came first
		_ = w.conn.Conn().SetDeadline(time.Time{})
	case pgconn.Timeout(err):
		return ctx.Err()
	}
	return err
}

// stop ends all watches: the connection is being closed.
func (w *watched) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopLocked()
}

func (w *watched) stopLocked() {
	for _, stop := range w.stops {
		stop()
	}
	clear(w.stops)
}
