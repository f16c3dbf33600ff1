package main

import (
	"testing"
	"time"

	"noncegate/client"
	"noncegate/test/interop/chaintest"
)

// TestAGapIsKnownWhenItsOwnerHasDied: the gateway that owns an account is killed while a
// transaction of it is lost, and nobody uses the account any more.
func TestAGapIsKnownWhenItsOwnerHasDied(t *testing.T) {
	h := newHost(t.Context(), t.Output())
	defer h.close()
	if err := h.try(func() { gapAfterTakeOver(t, h) }); err != nil {
		t.Fatal(err)
	}
}

func gapAfterTakeOver(t *testing.T, h *host) {
	cfg := defaultConfig()
	cfg.GapAfter, cfg.LeaseTTL = 2*time.Second, time.Second
	sim := chaintest.StartSim(h, chaintest.SimConfig{Accounts: 1, FinalLag: finalDepth})
	s := &soak{host: h, cfg: cfg, chain: newView(geth{sim}, sim.Accounts)}
	s.gateways = startGateways(h, cfg, "--chain=eip155:1337="+sim.WS())
	h.spawn(func() {
		for sleep(h.ctx, 250*time.Millisecond) {
			sim.Commit()
		}
	})
	var clients [2]*client.Client
	for i, url := range s.gateways.urls() {
		for clients[i] == nil {
			c, err := client.Dial(h.ctx, url, s.clientConfig(nil))
			if err != nil {
				if !sleep(h.ctx, 100*time.Millisecond) {
					t.Fatal(err)
				}
				continue
			}
			clients[i] = c
			defer c.Close()
		}
	}
	signer := s.signer(0)
	for range 2 {
		a, err := clients[0].Allocate(h.ctx, client.AllocateRequest{Signer: signer})
		if err != nil {
			t.Fatal(err)
		}
		tx := sim.Sign(sim.Accounts[0], chaintest.Payment{Nonce: uint64(a.Nonce)})
		if _, err := clients[0].MarkUsed(h.ctx, a.Hold(), tx.Hash().Hex()); err != nil {
			t.Fatal(err)
		}
		if a.Nonce > 0 { // the first is lost
			if err := sim.Send(tx); err != nil {
				t.Fatal(err)
			}
		}
	}
	status, err := clients[0].Status(h.ctx, signer)
	if err != nil {
		t.Fatal(err)
	}
	victim, other := 0, 1
	if status.Owner == "b" {
		victim, other = 1, 0
	}
	s.gateways.kill(s.gateways.nodes[victim])
	tick, timer := time.NewTicker(500*time.Millisecond), time.NewTimer(60*time.Second)
	defer tick.Stop()
	defer timer.Stop()
	for {
		select {
		case <-tick.C:
			status, err := clients[other].Status(h.ctx, signer)
			if err == nil && status.Chain != nil && status.Chain.Gap != nil && status.Chain.Gap.Nonce == 0 {
				return
			}
		case <-timer.C:
			t.Fatal("nobody knows of the gap a minute after its owner has died")
		}
	}
}
