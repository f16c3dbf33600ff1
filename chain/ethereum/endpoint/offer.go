package endpoint

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/chain"
	"noncegate/nonce"
)

const (
	// firstLook is when a transaction is looked at whose sending has not ended: longer than a
	// sending takes.
	firstLook = 45 * time.Second
	// lookBlocked is when one is looked at that cannot be offered now, lookSettled one that a node
	// has taken, or all have refused: it is forgotten when its nonce is used.
	lookBlocked = 10 * time.Second
	lookSettled = time.Minute

	offerEvery    = 2 * time.Second
	offerBatch    = 32 // of one look into the store; each may have a megabyte
	offersAtATime = 8

	// maxKept and maxKeptBytes bound what is kept of all signers together.
	maxKept      = 200_000
	maxKeptBytes = 256 << 20
)

// Owner says which shards this node has, and runs ops. service.Service is one.
type Owner interface {
	OwnedShards() []int
	Do(ctx context.Context, q *nonce.Request) (nonce.Result, error)
}

// Offerer offers transactions to the nodes again whose outcome is not known, as long as their
// nonces are not used, and forgets those whose are. It looks after those of signers that this node
// owns, whichever node sent them.
//
// Run is its goroutine, with at most offersAtATime more.
type Offerer struct {
	owner Owner
	sent  nonce.SentStore
	log   *slog.Logger
	byID  map[string]*Endpoint
	now   chan struct{} // capacity 1: something is to be offered soon
	again time.Duration // how soon: the shortest of the endpoints
	full  atomic.Bool   // as much is kept as may be
}

// NewOfferer makes the one of all endpoints of a gateway.
func NewOfferer(owner Owner, sent nonce.SentStore, log *slog.Logger, endpoints ...*Endpoint) *Offerer {
	o := &Offerer{owner: owner, sent: sent, log: log.With("component", "offerer"), byID: map[string]*Endpoint{}, now: make(chan struct{}, 1)}
	for _, e := range endpoints {
		o.byID[e.nodes.ID()] = e
		if o.again == 0 || e.cfg.OfferAgain < o.again {
			o.again = e.cfg.OfferAgain
		}
		e.offerer.Store(o)
	}
	return o
}

// wake makes the offerer look soon.
func (e *Endpoint) wake() {
	if o := e.offerer.Load(); o != nil {
		select {
		case o.now <- struct{}{}:
		default:
		}
	}
}

// full reports whether as much is kept as may be, as of the last look.
func (e *Endpoint) full() bool {
	o := e.offerer.Load()
	return o != nil && o.full.Load()
}

// Run offers until ctx ends, and returns when all is quiet.
func (o *Offerer) Run(ctx context.Context) {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-o.now:
			if !pause(ctx, o.again) {
				return
			}
		}
		o.count(ctx)
		var last nonce.TxHash // the one longest due: where it is that again, the store takes no change now
		for due := o.look(ctx); len(due) == offerBatch && due[0].Hash != last && ctx.Err() == nil; due = o.look(ctx) {
			last = due[0].Hash
		}
	}
}

// count looks whether there is room for more.
func (o *Offerer) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	rows, bytes, err := o.sent.SentTotals(ctx)
	if err != nil {
		return // it stays as it was; the look fails, too, and says so
	}
	o.full.Store(rows >= maxKept || bytes >= maxKeptBytes)
}

// look looks at some that are due, the longest first, and returns them.
func (o *Offerer) look(ctx context.Context) []nonce.Sent {
	read, cancel := context.WithTimeout(ctx, storeTime)
	due, err := o.sent.DueSent(read, o.owner.OwnedShards(), offerBatch)
	cancel()
	if err != nil {
		o.log.Debug("looking for transactions to be offered again", "error", err)
		return nil
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, offersAtATime)
	for i := range due {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			o.one(ctx, &due[i])
		})
	}
	all.Wait()
	return due
}

// one looks at one transaction.
func (o *Offerer) one(ctx context.Context, t *nonce.Sent) {
	e := o.byID[t.Signer[:max(0, strings.LastIndexByte(t.Signer, ':'))]]
	if e == nil { // its chain is not configured any more
		o.delay(ctx, t, 10*lookSettled)
		return
	}
	st, known := e.chains.State(t.Signer)
	switch {
	case !known:
		e.chains.Ready(t.Signer, 0, func() {})
		o.delay(ctx, t, e.cfg.OfferAgain)
	case t.Nonce < st.Mined:
		e.store("forget", t.Signer, func(ctx context.Context) error { return o.sent.ForgetSent(ctx, t.Signer, st.Mined) })
	case t.State != nonce.SentOpen:
		o.delay(ctx, t, lookSettled)
	default:
		o.open(ctx, e, t, st.Mined)
	}
}

func (o *Offerer) delay(ctx context.Context, t *nonce.Sent, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	if err := o.sent.DelaySent(ctx, []nonce.Sent{*t}, wait); err != nil {
		o.log.Debug("a transaction is looked at again at once", "signer", t.Signer, "error", err)
	}
}

// open offers one whose outcome is not known while it is its account's lowest, or its hold runs.
func (o *Offerer) open(ctx context.Context, e *Endpoint, t *nonce.Sent, mined int64) {
	row, err := o.row(ctx, t.Signer, t.Nonce)
	recorded := row.TxHash == t.Hash || row.Replaced.Contains(t.Hash)
	runs := row.Status == nonce.Held && row.HeldUntil.After(time.Now())
	switch {
	case err != nil:
		o.delay(ctx, t, e.cfg.OfferAgain)
	case !recorded: // its gateway ended before it was recorded, so before any node got it
		e.dropSent(t.Signer, t.Nonce, t.Hash)
	case row.TxHash != t.Hash, row.Reason == nonce.ReasonRepair, t.Nonce != mined && !runs, e.chains.Stopped(t.Signer):
		o.delay(ctx, t, lookBlocked)
	default:
		o.offer(ctx, e, t, &row)
	}
}

func (o *Offerer) row(ctx context.Context, signer string, n int64) (nonce.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	r, err := o.owner.Do(ctx, listOne(signer, n))
	row, _ := rowIn(&r.Page, n)
	return row, err
}

// offer gives a transaction to the nodes again, and does what follows.
func (o *Offerer) offer(ctx context.Context, e *Endpoint, t *nonce.Sent, row *nonce.Row) {
	l := e.lines.enter(t.Signer)
	defer e.lines.leave(l)
	tx := chain.Tx{Account: accountOf(t.Signer), Nonce: t.Nonce, Hash: t.Hash}
	if !l.begin(ctx, tx, func() {}) {
		return
	}
	defer l.end(tx)
	sending, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	v := e.nodes.Send(sending, t.Raw)
	if v.Unanswered && v.Class != chain.Used {
		v.Class = chain.Unknown // a node that was not reached may have it
	}
	e.metrics.offered.WithLabelValues(sendWords[v.Class]).Inc()
	switch {
	case v.Class == chain.InPool, v.Class == chain.Used && e.whoUsed(sending, tx.Account, t.Nonce, t.Hash) == usedByThis:
		o.used(ctx, e, t, row.Attempt)
		e.setSent(t.Signer, t.Nonce, t.Hash, nonce.SentTaken, lookSettled)
		e.tellSent(t.Signer, t.Nonce, row.Attempt, t.Hash, row.Earlier)
	case v.Class == chain.Free, v.Class == chain.Refused && !v.Later:
		e.setSent(t.Signer, t.Nonce, t.Hash, nonce.SentRefused, lookSettled)
		e.seldom.warn(o.log, "a transaction whose outcome was not known is refused by all nodes: "+
			"its sender may send another one of the nonce",
			"signer", t.Signer, "nonce", t.Nonce, "tx", t.Hash.String(), "said", v.Message)
	case v.Class == chain.Taken, v.Class == chain.Used:
		o.delay(ctx, t, lookBlocked)
	default:
		o.delay(ctx, t, e.cfg.OfferAgain)
	}
}

// used marks the nonce. Where that fails, the record says so when its hold ends.
func (o *Offerer) used(ctx context.Context, e *Endpoint, t *nonce.Sent, attempt int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	_, err := o.owner.Do(ctx, &nonce.Request{
		Kind: nonce.KindMarkUsed, Signer: t.Signer, Nonce: t.Nonce, Attempt: attempt, TxHash: t.Hash, MarkAny: true,
	})
	if err != nil {
		e.seldom.warn(o.log, "a node has taken a transaction, and that was not recorded; it is when its hold ends",
			"signer", t.Signer, "nonce", t.Nonce, "error", err)
	}
}
