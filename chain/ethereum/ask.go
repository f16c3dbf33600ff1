package ethereum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"noncegate/chain/ethereum/internal/jsonrpc"
)

// The methods that this package asks for.
const (
	methodChainID       = "eth_chainId"
	methodBlockByNumber = "eth_getBlockByNumber"
	methodBlockByHash   = "eth_getBlockByHash"
	methodCount         = "eth_getTransactionCount"
	methodCode          = "eth_getCode"
	methodTxByHash      = "eth_getTransactionByHash"
	methodTxBySender    = "eth_getTransactionBySenderAndNonce"
	methodContentFrom   = "txpool_contentFrom"
	methodSend          = "eth_sendRawTransaction"
)

// asking is how a node is asked.
type asking struct {
	limit   int64 // bytes of each answer
	poll    bool  // needs no slot: there is one of these at a time
	queue   bool  // waits for a slot; otherwise ErrBusy
	foreign bool  // calls of others, whose errors may be about anything
}

// ask sends calls, in as many requests as the node needs, and settles each.
func (n *node) ask(ctx context.Context, session uint64, calls []*jsonrpc.Call, how asking) {
	n.inParts(ctx, session, calls, how, n.batchSize())
}

// inParts sends calls in requests of at most size.
func (n *node) inParts(ctx context.Context, session uint64, calls []*jsonrpc.Call, how asking, size int) {
	if len(calls) <= size {
		n.request(ctx, session, calls, how)
		return
	}
	var all errgroup.Group
	all.SetLimit(parallelBatches)
	for part := range slices.Chunk(calls, size) {
		all.Go(func() error { n.request(ctx, session, part, how); return nil })
	}
	_ = all.Wait() // there are no errors
}

// request sends calls as one request. If the node refuses that for being a batch, or its
// answer would be too large, it gets halves.
func (n *node) request(ctx context.Context, session uint64, calls []*jsonrpc.Call, how asking) {
	err := n.enter(ctx, how)
	if err == nil {
		n.carry(ctx, session, calls, how)
	}
	for _, c := range calls {
		if err != nil {
			c.Fail = err
		}
		n.c.m.requests.WithLabelValues(n.name, methodLabel(c.Method), string(resultOf(c))).Inc()
	}
	if err == nil && n.heed(calls, how) {
		for _, c := range calls {
			c.Fail = nil
		}
		n.inParts(ctx, session, calls, how, (len(calls)+1)/2)
	}
}

// enter takes a slot among the requests under way.
func (n *node) enter(ctx context.Context, how asking) error {
	if how.poll {
		return nil
	}
	select {
	case n.slots <- struct{}{}:
		return nil
	default:
	}
	if !how.queue {
		return fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, ErrBusy)
	}
	select {
	case n.waiting <- struct{}{}:
		defer func() { <-n.waiting }()
	default:
		return fmt.Errorf("%w: %w", jsonrpc.ErrNotSent, ErrBusy)
	}
	select {
	case n.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w: %w", jsonrpc.ErrNotSent, ErrBusy, context.Cause(ctx))
	}
}

func (n *node) leave(how asking) {
	if !how.poll {
		<-n.slots
	}
}

// carry sends calls, in the slot that enter has taken, and leaves it.
func (n *node) carry(ctx context.Context, session uint64, calls []*jsonrpc.Call, how asking) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.c.set.Timeout, errTimeout)
	defer cancel()
	defer n.leave(how)
	begin := time.Now()
	n.link.Do(ctx, session, calls, how.limit)
	if context.Cause(ctx) == errTimeout {
		for _, c := range calls {
			if c.Fail != nil && !errors.Is(c.Fail, jsonrpc.ErrNotSent) {
				c.Fail = fmt.Errorf("%w (%v)", errTimeout, n.c.set.Timeout)
			}
		}
	}
	n.c.m.seconds.WithLabelValues(n.name).Observe(time.Since(begin).Seconds())
}

// heed notes what the answers say about asking: that there should be fewer requests, or
// smaller batches. It reports whether the calls should be sent again in halves.
func (n *node) heed(calls []*jsonrpc.Call, how asking) (smaller bool) {
	limited, wait := false, time.Duration(0)
	for _, c := range calls {
		if status, ok := errors.AsType[*jsonrpc.StatusError](c.Fail); ok {
			limited = limited || status.Code == http.StatusTooManyRequests
			wait = max(wait, status.RetryAfter)
		}
		if batch, ok := errors.AsType[*jsonrpc.BatchError](c.Fail); ok && n.wantsFewer(batch.Refusal, c.Method, how) {
			limited = true
		}
		if c.Err != nil && n.wantsFewer(c.Err, c.Method, how) {
			limited = true
			c.Fail, c.Err = fmt.Errorf("%w: %w", errBackingOff, c.Err), nil
		}
	}
	switch {
	case limited || wait > 0:
		n.backOff(wait)
		return false
	case len(calls) > 1 && refusedAsBatch(calls[0].Fail):
		n.shrinkBatch(len(calls))
		return true
	case len(calls) > 1 && errors.Is(calls[0].Fail, ErrTooLarge):
		return true
	}
	if calls[0].Fail == nil {
		n.relax()
	}
	return false
}

// wantsFewer reports whether a refusal is about the number of requests. What a node says
// to a transaction is told by the table first, and to calls of others by its words
// alone: their limits are about what they asked for.
func (n *node) wantsFewer(e *jsonrpc.Error, method string, how asking) bool {
	if method == methodSend && n.c.table.group(e.Message) != nil {
		return false
	}
	if n.c.table.limited.MatchString(e.Message) {
		return true
	}
	text := strings.ToLower(e.Message)
	return !how.foreign && method != methodSend && !strings.Contains(text, "batch") &&
		(e.Code == -32005 || e.Code == http.StatusTooManyRequests || strings.Contains(text, "limit exceeded"))
}

// refusedAsBatch reports whether a request failed in a way in which nodes refuse batches.
func refusedAsBatch(fail error) bool {
	if _, ok := errors.AsType[*jsonrpc.BatchError](fail); ok {
		return true
	}
	status, ok := errors.AsType[*jsonrpc.StatusError](fail)
	if !ok {
		return false
	}
	switch status.Code {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return false
}

// backOff leaves the node alone for as long as it asked for, or for a pause that grows.
func (n *node) backOff(wait time.Duration) {
	n.mu.Lock()
	now := time.Now()
	was := n.backoffUntil.After(now)
	if !was { // one growth for all that were under way
		pause := n.pace.NextBackOff()
		if wait > 0 {
			pause = wait + time.Duration(rand.Int64N(int64(wait)/10+1)) // #nosec G404 -- so that not all ask at once; nothing secret
		}
		n.backoffUntil = now.Add(pause)
	} else if at := now.Add(wait); at.After(n.backoffUntil) {
		n.backoffUntil = at
	}
	until := n.backoffUntil
	n.noteLocked(errBackingOff)
	n.mu.Unlock()
	if !was {
		n.log.Info("node wants fewer requests", "pause", until.Sub(now).Round(time.Millisecond))
	}
}

// relax ends the growth of pauses once a request was answered after one.
func (n *node) relax() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); !n.backoffUntil.IsZero() && !n.backoffUntil.After(now) {
		n.backoffUntil = time.Time{}
		n.pace.Reset()
	}
}

// batchSize is how many calls a request to the node may have.
func (n *node) batchSize() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.maxBatch < n.c.set.MaxBatch && time.Since(n.batchAt) > growBatch {
		n.maxBatch, n.batchAt = min(2*n.maxBatch, n.c.set.MaxBatch), time.Now()
	}
	return n.maxBatch
}

func (n *node) shrinkBatch(refused int) {
	n.mu.Lock()
	n.maxBatch, n.batchAt = min(n.maxBatch, max(1, refused/2)), time.Now()
	size := n.maxBatch
	n.mu.Unlock()
	n.log.Debug("node refused a batch", "size", refused, "now", size)
}
