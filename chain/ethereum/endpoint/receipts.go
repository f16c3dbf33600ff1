package endpoint

import (
	"context"
	"sync"

	"noncegate/chain"
	"noncegate/ws"
)

// receipts are the questions for receipts of those who wait for them. All who wait for one
// transaction share one question: one of them asks, and the others take over when it goes.
type receipts struct {
	mu     sync.Mutex // guards what follows; no I/O under it
	byHash map[chain.Hash]*receiptWait
}

// receiptWait is those who wait for one receipt. It is there as long as one of them is.
type receiptWait struct {
	users  int
	asking chan struct{} // holds one: whoever has it asks
	found  chan struct{} // closed when there is an answer
	answer ws.Answer     // before found is closed
}

func (rs *receipts) enter(h chain.Hash) *receiptWait {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	w := rs.byHash[h]
	if w == nil {
		w = &receiptWait{asking: make(chan struct{}, 1), found: make(chan struct{})}
		if rs.byHash == nil {
			rs.byHash = make(map[chain.Hash]*receiptWait)
		}
		rs.byHash[h] = w
	}
	w.users++
	return w
}

func (rs *receipts) leave(h chain.Hash, w *receiptWait) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	w.users--
	if w.users == 0 {
		delete(rs.byHash, h)
	}
}

// await returns the receipt of a transaction, once ask has it. false: ctx ended before.
func (rs *receipts) await(ctx context.Context, h chain.Hash, ask func() (ws.Answer, bool), wait func() bool) (ws.Answer, bool) {
	w := rs.enter(h)
	defer rs.leave(h, w)
	select {
	case <-w.found:
		return w.answer, true
	case w.asking <- struct{}{}:
		defer func() { <-w.asking }()
	case <-ctx.Done():
		return ws.Answer{}, false
	}
	select {
	case <-w.found: // by the one that has asked before
		return w.answer, true
	default:
	}
	for ctx.Err() == nil {
		if a, ok := ask(); ok {
			w.answer = a
			close(w.found)
			return a, true
		}
		if !wait() {
			break
		}
	}
	return ws.Answer{}, false
}
