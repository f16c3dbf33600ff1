//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
	"noncegate/wire"
)

// answerTimeout is how long a client waits before it gives a call up. A node that is paused for longer makes its calls unknown.
const answerTimeout = 4 * time.Second

// dialTimeout bounds the connecting to a node.
const dialTimeout = time.Second

// worker is one client at work. It makes calls over raw WebSockets, one connection to each node, and writes them down. It belongs to
// one goroutine.
type worker struct {
	*cluster
	id     int
	rnd    *rand.Rand
	conns  map[*node]link
	dialed int64         // connections made so far
	sent   int64         // calls
	pace   time.Duration // between calls that are sent one behind the other
	calls  []history.Call

	owners map[string]*node // by signer, as not_owner said
	open   []mine           // holds to be marked
	past   []mine           // holds that were marked, or left to expire
	ids    int
	floors int64 // that were given by attend
}

// link is a connection with its number.
type link struct {
	*peer.Conn
	number int64
}

// newWorker makes a client of a run; its draws are the seed's and the number's.
func (c *cluster) newWorker(id int, number uint64) *worker {
	return &worker{
		cluster: c, id: id, rnd: rand.New(rand.NewPCG(c.Seed, number)),
		conns: make(map[*node]link), owners: make(map[string]*node),
	}
}

func (w *worker) close() {
	for n := range w.conns {
		w.drop(n)
	}
}

func (w *worker) drop(n *node) {
	_ = w.conns[n].Close()
	delete(w.conns, n)
}

// conn is the connection to a node, made when there is none.
func (w *worker) conn(ctx context.Context, n *node) (link, error) {
	if conn, ok := w.conns[n]; ok {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := peer.Dial(ctx, n.url, peer.Config{Timeout: answerTimeout, DefaultHold: holdTTL})
	if err != nil {
		return link{}, err
	}
	w.dialed++
	w.conns[n] = link{conn, w.dialed}
	return w.conns[n], nil
}

// do sends calls over one connection, one behind the other, waits for their answers and writes them down. cut ends the connection
// once they were sent, without reading an answer. After an error there was no call: the node could not be reached.
func (w *worker) do(ctx context.Context, n *node, cut bool, calls ...history.Call) ([]history.Call, []*wire.Error, error) {
	conn, err := w.conn(ctx, n)
	if err != nil {
		return nil, nil, err
	}
	first := w.sent + 1
	for i := range calls {
		w.sent++
		c := &calls[i]
		c.Client, c.Node, c.Conn, c.Seq = w.id, n.id, int64(w.id)<<32|conn.number, w.sent
		c.Start, c.Outcome, c.Reason = time.Since(w.began), history.Unknown, "connection closed"
		if err = conn.Send(c.Seq, c); err != nil {
			// Whether the bytes before the error arrived, nobody knows.
			calls = calls[:i+1]
			break
		}
		lasts(ctx, w.pace)
	}
	if cut {
		err = errors.New("cut")
	}
	errs := make([]*wire.Error, len(calls))
	for left := len(calls); left > 0 && err == nil; left-- {
		var r *peer.Reply
		if r, err = conn.Read(); err != nil {
			break
		}
		i := r.ID - first
		if i < 0 || i >= int64(len(calls)) {
			err = fmt.Errorf("an answer to request %d, which nobody asked", r.ID)
			break
		}
		calls[i].End = time.Since(w.began)
		r.Settle(&calls[i])
		w.load.gave(&calls[i])
		errs[i] = r.Error
	}
	if err != nil {
		w.drop(n)
	}
	for i := range calls {
		if calls[i].End == 0 {
			calls[i].End, calls[i].Detail = time.Since(w.began), fmt.Sprint(err)
		}
	}
	w.calls = append(w.calls, calls...)
	return calls, errs, nil
}
