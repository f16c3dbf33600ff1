package ethereum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
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
	methodSyncing       = "eth_syncing"
	methodTxByHash      = "eth_getTransactionByHash"
	methodTxBySender    = "eth_getTransactionBySenderAndNonce"
	methodContentFrom   = "txpool_contentFrom"
	methodSend          = "eth_sendRawTransaction"
)

// asking is how a node is asked.
type asking struct {
	use   use
	limit int64 // bytes of each answer
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
// answer would be too large, it gets halves. A request of several calls that fails in another
// way may have been refused for that too, or the node is away: one call alone tells.
func (n *node) request(ctx context.Context, session uint64, calls []*jsonrpc.Call, how asking) {
	failed := false
	leave, err := n.enter(ctx, calls, how)
	if err == nil {
		n.carry(ctx, session, calls, how, leave)
		n.recheck(ctx, session, calls, how)
	}
	for _, c := range calls {
		if err != nil {
			c.Fail = err
		}
		n.c.m.requests.WithLabelValues(n.name, methodLabel(c.Method), string(resultOf(c))).Inc()
		failed = failed || err == nil && c.Fail != nil && !errors.Is(c.Fail, jsonrpc.ErrNotSent)
	}
	if failed {
		n.doubts.Add(1)
	}
	if err != nil || n.heed(calls, how) || len(calls) == 1 {
		return
	}
	if errors.Is(calls[0].Fail, ErrTooLarge) {
		n.inParts(ctx, session, anew(calls), how, (len(calls)+1)/2)
		return
	}
	open := slices.DeleteFunc(slices.Clone(calls), func(c *jsonrpc.Call) bool { return !mayBeTheBatch(c.Fail) })
	if len(open) == 0 {
		return
	}
	refused := open[0].Fail
	if len(open) == len(calls) && !saysBatch(refused) {
		n.request(ctx, session, anew(open[:1]), how)
		if open[0].Fail != nil {
			return
		}
		open = open[1:]
	}
	n.shrinkBatch(len(calls), refused)
	n.inParts(ctx, session, anew(open), how, (len(calls)+1)/2)
}

// anew returns calls as if they had not been sent.
func anew(calls []*jsonrpc.Call) []*jsonrpc.Call {
	for _, c := range calls {
		c.Fail = nil
	}
	return calls
}

// carry sends calls, in the slot that enter has taken, and leaves it.
func (n *node) carry(ctx context.Context, session uint64, calls []*jsonrpc.Call, how asking, leave func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.c.set.Timeout, errTimeout)
	defer cancel()
	defer leave()
	if how.use == useCalls {
		ctx = jsonrpc.ForOthers(ctx)
	}
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

// heed notes where the answers say that there should be fewer requests, and reports whether
// they do.
func (n *node) heed(calls []*jsonrpc.Call, how asking) (limited bool) {
	wait := time.Duration(0)
	for _, c := range calls {
		if status, ok := errors.AsType[*jsonrpc.StatusError](c.Fail); ok {
			limited = limited || status.Code == http.StatusTooManyRequests
			wait = max(wait, status.RetryAfter)
		}
		if refusal, ok := errors.AsType[*jsonrpc.Error](c.Fail); ok && n.wantsFewer(refusal, c.Method, how) {
			limited = true
		}
		if c.Err != nil && n.wantsFewer(c.Err, c.Method, how) {
			limited = true
			c.Fail, c.Err = fmt.Errorf("%w: %w", errBackingOff, c.Err), nil
		}
	}
	switch {
	case limited || wait > 0:
		n.backOff(how.use, wait)
		return true
	case calls[0].Fail == nil:
		n.relax(how.use)
	}
	return false
}

// wantsFewer reports whether a refusal is about the number of requests. What a node says
// to a transaction is told by the table first.
func (n *node) wantsFewer(e *jsonrpc.Error, method string, how asking) bool {
	if how.use == useCalls {
		return n.limitsCallsOfOthers(e)
	}
	if method == methodSend && n.c.table.group(e.Message) != nil {
		return false
	}
	if n.c.table.limited.MatchString(e.Message) {
		return true
	}
	text := strings.ToLower(e.Message)
	return method != methodSend && !strings.Contains(text, "batch") &&
		(e.Code == -32005 || e.Code == http.StatusTooManyRequests || strings.Contains(text, "limit exceeded"))
}

// limitCodes are the codes with which nodes and providers refuse a request because there were
// too many: of Infura and many others, QuickNode, BlockVision, and those that put the status
// of HTTP there.
var limitCodes = []int{-32005, -32007, -32605, http.StatusTooManyRequests}

// aboutExecution finds the words around the reason that a contract gave.
var aboutExecution = regexp.MustCompile(`(?i)revert|execution|vm |evm|opcode|invalid argument`)

// limitsCallsOfOthers reports whether the node refused a call of others because there were
// too many. Such a refusal may repeat words that the caller has chosen: the reason of a revert,
// or a parameter. So the words alone prove nothing: the code must be one of limits, which no
// contract can choose, and nothing may show that the call was run.
func (n *node) limitsCallsOfOthers(e *jsonrpc.Error) bool {
	return slices.Contains(limitCodes, e.Code) && len(e.Data) == 0 &&
		!aboutExecution.MatchString(e.Message) && n.c.table.limited.MatchString(e.Message)
}

// saysBatch reports whether a request failed in a way in which nodes refuse batches, and
// nothing else that this package asks for.
func saysBatch(fail error) bool {
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

// mayBeTheBatch reports whether a smaller request may be answered where one failed so: not
// where nothing was sent, or time was over.
func mayBeTheBatch(fail error) bool {
	switch resultOf(&jsonrpc.Call{Fail: fail}) {
	case resultLost, resultNonsense:
		return true
	}
	return false
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

// shrinkBatch remembers for some time that a request of so many calls was refused.
func (n *node) shrinkBatch(refused int, why error) {
	n.mu.Lock()
	n.maxBatch, n.batchAt = min(n.maxBatch, max(1, refused/2)), time.Now()
	size, said := n.maxBatch, n.batchSaid
	n.batchSaid = true
	n.mu.Unlock()
	level := slog.LevelWarn
	if said { // it is the same limit that is found again and again
		level = slog.LevelDebug
	}
	n.log.Log(context.Background(), level, "node refuses requests of several calls; it gets smaller ones",
		"refused", refused, "now", size, "error", why)
}
