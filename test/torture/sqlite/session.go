//go:build unix

package sqlite

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
)

// call is a call of a client and where it lies in the trace of its round.
type call struct {
	history.Call
	round int
	from  int64 // how long the trace was before the request was sent
	to    int64 // how long it was after the answer came; -1: none came
}

// peerConfig is how clients wait.
var peerConfig = peer.Config{Timeout: 10 * time.Second}

// session is one connection of a client. It belongs to one goroutine.
type session struct {
	conn   *peer.Conn
	client int
	round  int
	trace  string
	began  time.Time     // of the history
	told   *atomic.Int64 // calls that happened, of all clients
	last   int64
}

// do sends a request and fills in what came of it. Its error is that of the
// connection, which cannot be used after that; the call is then unknown.
func (p *session) do(c history.Call) (call, error) {
	rec := call{Call: c, round: p.round, to: -1}
	rec.Client = p.client
	var err error
	if rec.from, err = length(p.trace); err != nil {
		return rec, err
	}
	rec.Start = time.Since(p.began)
	reply, err := p.ask(&rec.Call)
	rec.End = time.Since(p.began)
	if err != nil {
		rec.Outcome, rec.Reason = history.Unknown, "no answer"
		return rec, err
	}
	if rec.to, err = length(p.trace); err != nil {
		return rec, err
	}
	if reply.Settle(&rec.Call); rec.Outcome == history.Happened {
		p.told.Add(1)
	}
	return rec, nil
}

func length(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// ask sends a request and waits for its answer.
func (p *session) ask(c *history.Call) (*peer.Reply, error) {
	p.last++
	if err := p.conn.Send(p.last, c); err != nil {
		return nil, err
	}
	reply, err := p.conn.Read()
	if err == nil && reply.ID != p.last {
		err = fmt.Errorf("an answer to request %d came for %d", reply.ID, p.last)
	}
	return reply, err
}
