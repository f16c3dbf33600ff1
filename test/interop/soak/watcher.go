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

// watcher is an owner of the journal, no worker.
const watcherID = 1 << 10

// watcher repairs gaps. It is told of them once, and now and then asks for all accounts:
// it may have missed an event, and nobody tells of an account whose gateway has died until
// somebody uses it.
type watcher struct {
	*soak
	sweeping sync.Mutex
	mending  []sync.Mutex // of each account
}

// watch lives until the run ends.
func (s *watcher) watch() {
	for s.ctx.Err() == nil {
		c, err := s.dialGateways(s.ctx, 0)
		if err != nil {
			sleep(s.ctx, 200*time.Millisecond)
			continue
		}
		s.watchWith(&gatewaySource{s.soak, c})
		_ = c.Close()
	}
}

func (s *watcher) watchWith(g *gatewaySource) {
	ctx, cancel := context.WithTimeout(s.ctx, 4*time.Second)
	defer cancel()
	sub, err := g.c.Subscribe(ctx)
	if err != nil {
		sleep(s.ctx, 200*time.Millisecond)
		return
	}
	defer sub.Close()
	tick := time.NewTicker(s.cfg.Sweep)
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
			s.counts.missed.Add(e.Missed)
			if e.Gap || e.Missed > 0 {
				all.Go(func() { s.sweep(g) })
			}
			if e.Type != "" {
				s.events.add(e.Type)
			}
			if e.TxHash == noHash {
				s.oops("%s of nonce %d of %s names a transaction that there is not", e.Type, e.Nonce, e.Signer)
			}
			account, known := s.accountOf(e.Signer)
			if known && e.Type == wire.EventGap {
				all.Go(func() { s.mend(g, account) })
			}
			if e.Type == wire.EventGap || e.Type == wire.EventGapClosed || e.Type == wire.EventExternal || e.Type == wire.EventReorg {
				s.detail("%s of account %d: %d attempt %d %s %s", e.Type, account, e.Nonce, e.Attempt, e.TxHash, e.Reason)
			}
		}
	}
}

// sweep looks for gaps whose event was missed.
func (s *watcher) sweep(g *gatewaySource) {
	if !s.sweeping.TryLock() {
		return
	}
	defer s.sweeping.Unlock()
	for account := range s.cfg.Accounts {
		s.mend(g, account)
	}
}

// mendEvery is how long a repair has until the watcher looks whether it has helped.
const mendEvery = 5 * time.Second

// mend repairs an account until it has no gap.
func (s *watcher) mend(g *gatewaySource, account int) {
	if !s.mending[account].TryLock() {
		return
	}
	defer s.mending[account].Unlock()
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, 8*time.Second)
		gap, err := s.hasGap(ctx, g, account)
		if err == nil && !gap || errors.Is(err, client.ErrClosed) {
			cancel()
			return
		}
		if err == nil {
			s.repair(ctx, g, account)
		}
		cancel()
		sleep(s.ctx, mendEvery)
	}
}

// hasGap asks for an account's gap.
func (s *watcher) hasGap(ctx context.Context, g *gatewaySource, account int) (bool, error) {
	status, err := g.c.Status(ctx, s.signer(account))
	return err == nil && status.Chain != nil && status.Chain.Gap != nil, err
}

// repair takes the nonce that blocks an account and sends the transaction of it that the
// journal knows, which may be mined whatever happens, or else one that does nothing.
func (s *watcher) repair(ctx context.Context, g *gatewaySource, account int) {
	got, err := g.c.Repair(ctx, client.RepairRequest{Signer: s.signer(account)})
	if err != nil {
		if !errors.Is(err, client.ErrConflict) && !errors.Is(err, client.ErrNotFound) {
			s.counts.repairsFailed.Add(1)
		}
		s.detail("repair of account %d: %v", account, err)
		return
	}
	s.counts.repairs.Add(1)
	t := ticket{nonce: uint64(got.Nonce), hold: got.Hold()}
	e, tx := s.journal.toRepair(place{account, t.nonce}, got.TxHashes)
	if e == nil {
		tx = s.chain.Sign(s.chain.all[account], chaintest.Payment{
			Nonce: t.nonce, To: s.chain.all[account].Address, Value: new(big.Int), Bump: 40,
		})
		e = s.journal.write(&entry{owner: watcherID, account: account, ticket: t}, tx)
		s.counts.repairsCancelled.Add(1)
	} else {
		s.counts.repairsResent.Add(1)
	}
	s.detail("repair of account %d nonce %d (was %+v, hashes %d): %v", account, t.nonce, got.Was, len(got.TxHashes), tx.Hash())
	// Whatever is sent now was recorded, or can be mined by its worker anyway.
	if err := g.record(ctx, t, tx.Hash().Hex()); err != nil && e.owner == watcherID {
		s.journal.drop(e, false)
		return
	}
	if tx = s.journal.toSend(e); tx != nil {
		out := s.nodes.send(ctx, tx)
		s.counts.sends[out].Add(1)
	}
}
