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

// client makes calls over raw WebSockets, one connection to each node, and writes them down. It belongs to one goroutine.
type client struct {
	id      int
	began   time.Time
	nodes   []*node
	conns   map[*node]*peer.Conn
	rnd     *rand.Rand
	last    int64
	calls   []history.Call
	serials int64 // connections made so far
	serial  map[*node]int64
}

// newWorker makes a client of a run; its draws are the seed's and the number's.
func (c *cluster) newWorker(id int, seed, number uint64, began time.Time, load *workload) *worker {
	return &worker{load: load, owners: make(map[string]*node), client: &client{
		id: id, began: began, nodes: c.nodes, rnd: rand.New(rand.NewPCG(seed, number)),
		conns: make(map[*node]*peer.Conn), serial: make(map[*node]int64),
	}}
}

func (c *client) close() {
	for n := range c.conns {
		c.drop(n)
	}
}

func (c *client) drop(n *node) {
	if conn := c.conns[n]; conn != nil {
		_ = conn.Close()
		delete(c.conns, n)
	}
}

// conn is the connection to a node, made when there is none.
func (c *client) conn(ctx context.Context, n *node) (*peer.Conn, error) {
	if conn := c.conns[n]; conn != nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := peer.Dial(ctx, n.url, peer.Config{Timeout: answerTimeout, DefaultHold: holdTTL})
	if err != nil {
		return nil, err
	}
	c.conns[n] = conn
	c.serials++
	c.serial[n] = c.serials
	return conn, nil
}

// errNotSent: the node could not be reached, so there was no call.
var errNotSent = errors.New("no connection to the node")

// do sends calls over one connection, one behind the other, waits for their answers and writes them down. cut ends the connection
// once they were sent, without reading an answer. With errNotSent there was no call.
func (c *client) do(ctx context.Context, n *node, cut bool, calls ...history.Call) ([]history.Call, []*wire.Error, error) {
	conn, err := c.conn(ctx, n)
	if err != nil {
		return nil, nil, errNotSent
	}
	index := make(map[int64]int)
	for i := range calls {
		calls[i].Client, calls[i].Node = c.id, n.id
		calls[i].Conn = int64(c.id)<<32 | c.serial[n]
		calls[i].Start, calls[i].Outcome, calls[i].Reason = time.Since(c.began), history.Unknown, "connection closed"
		c.last++
		calls[i].Seq = c.last
		index[c.last] = i
		if err = conn.Send(c.last, &calls[i]); err != nil {
			// Whether the bytes before the error arrived, nobody knows.
			calls = calls[:i+1]
			break
		}
	}
	errs := make([]*wire.Error, len(calls))
	if cut {
		err = errors.New("cut")
	}
	for left := len(calls); left > 0 && err == nil; left-- {
		var r *peer.Reply
		if r, err = conn.Read(); err == nil {
			i, ok := index[r.ID]
			if !ok {
				err = fmt.Errorf("an answer to request %d, which nobody asked", r.ID)
				break
			}
			calls[i].End = time.Since(c.began)
			r.Settle(&calls[i])
			errs[i] = r.Error
		}
	}
	if err != nil {
		c.drop(n)
	}
	for i := range calls {
		if calls[i].End == 0 {
			calls[i].End = time.Since(c.began)
			calls[i].Detail = fmt.Sprint(err)
		}
	}
	c.calls = append(c.calls, calls...)
	return calls, errs, nil
}
