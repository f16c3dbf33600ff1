package main

import (
	"context"
	"errors"
	"math/big"
	"sync"
	"time"

	"noncegate/client"
	"noncegate/test/interop/chaintest"
	"noncegate/wire"
)

// watcherID is the watcher's as an owner of the journal; it is no worker.
const watcherID = 1 << 10

// mendEvery is how long a repair has until the watcher looks whether it has helped.
const mendEvery = 5 * time.Second

// watcher repairs gaps. It is told of them once, and now and then asks for all accounts: it may have missed an event, and nobody tells of
// an account whose gateway has died until somebody uses it.
type watcher struct {
	*soak
	sweeping sync.Mutex
	mending  []sync.Mutex // of each account
}

func (s *watcher) watch() {
	for sleep(s.ctx, 200*time.Millisecond) {
		if c, err := s.dialGateways(s.ctx, 0); err == nil {
			s.watchWith(&gatewaySource{s.soak, c})
			_ = c.Close()
		}
	}
}

func (s *watcher) watchWith(g *gatewaySource) {
	ctx, cancel := context.WithTimeout(s.ctx, 4*time.Second)
	defer cancel()
	sub, err := g.c.Subscribe(ctx)
	if err != nil {
		return
	}
	defer sub.Close()
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			all.Go(func() { s.sweep(g) })
		case e, ok := <-sub.Events():
			if !ok {
				return
			}
			if e.Gap || e.Missed > 0 {
				s.happens("times that events were missed")
				all.Go(func() { s.sweep(g) })
			}
			if account, gap := s.hear(e); gap {
				all.Go(func() { s.mend(g, account) })
			}
		}
	}
}

// hear notes an event, and says whether it tells of a gap, and of which account.
func (s *watcher) hear(e client.Event) (account int, gap bool) {
	if e.Type != "" {
		s.happens("event: " + e.Type)
	}
	if e.TxHash == noHash {
		s.oops("%s of nonce %d of %s names a transaction that there is not", e.Type, e.Nonce, e.Signer)
	}
	account, known := s.accountOf(e.Signer)
	switch e.Type {
	case wire.EventGap, wire.EventGapClosed, wire.EventExternal, wire.EventReorg:
		s.detail("%s of account %d: %d attempt %d %s %s", e.Type, account, e.Nonce, e.Attempt, e.TxHash, e.Reason)
	}
	return account, known && e.Type == wire.EventGap
}

// sweep looks for gaps whose event was missed.
func (s *watcher) sweep(g *gatewaySource) {
	if !s.sweeping.TryLock() {
		return
	}
	defer s.sweeping.Unlock()
	for account := range s.accounts {
		s.mend(g, account)
	}
}

// mend repairs an account until it has no gap.
func (s *watcher) mend(g *gatewaySource, account int) {
	if !s.mending[account].TryLock() {
		return
	}
	defer s.mending[account].Unlock()
	for again := true; again; again = again && sleep(s.ctx, mendEvery) {
		ctx, cancel := context.WithTimeout(s.ctx, 8*time.Second)
		status, err := g.c.Status(ctx, s.signer(account))
		again = !errors.Is(err, client.ErrClosed)
		if err == nil {
			if again = status.Chain != nil && status.Chain.Gap != nil; again {
				s.repair(ctx, g, account)
			}
		}
		cancel()
	}
}

// repair takes the nonce that blocks an account and sends the transaction of it that the
// journal knows, which may be mined whatever happens, or else one that does nothing.
func (s *watcher) repair(ctx context.Context, g *gatewaySource, account int) {
	got, err := g.c.Repair(ctx, client.RepairRequest{Signer: s.signer(account)})
	if err != nil {
		if !errors.Is(err, client.ErrConflict) && !errors.Is(err, client.ErrNotFound) {
			s.happens("repairs that failed")
		}
		s.detail("repair of account %d: %v", account, err)
		return
	}
	t := ticket{nonce: uint64(got.Nonce), hold: got.Hold()}
	e, tx := s.ledger.toRepair(place{account, t.nonce}, got.TxHashes)
	if e == nil {
		tx = s.chain.Sign(s.accounts[account], chaintest.Payment{
			Nonce: t.nonce, To: s.accounts[account].Address, Value: new(big.Int), Bump: 40,
		})
		e = s.ledger.write(&entry{owner: watcherID, account: account, ticket: t}, tx)
		s.happens("repairs by cancelling")
	} else {
		s.happens("repairs by sending again")
	}
	s.detail("repair of account %d nonce %d (was %+v, hashes %d): %v", account, t.nonce, got.Was, len(got.TxHashes), tx.Hash())
	// Whatever is sent now was recorded, or can be mined by its worker anyway.
	if err := g.record(ctx, t, tx.Hash().Hex()); err != nil && e.owner == watcherID {
		s.ledger.drop(e, false)
		return
	}
	s.send(ctx, e)
}
