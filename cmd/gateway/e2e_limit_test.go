package main

import (
	"fmt"
	"testing"

	"noncegate/wire"
)

// TestASignerMayHaveAsManyOpenHoldsAsCanBeSet, in one row, and one that ends makes room for one.
func TestASignerMayHaveAsManyOpenHoldsAsCanBeSet(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]string{"postgres": database(t), "sqlite": "sqlite:" + t.TempDir() + "/noncegate.db"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := launch(t, "--store="+store, "--max-holds=4096").connect()
			for i := range int64(16) {
				got := decode[wire.AllocateResult](c, c.want("ok", wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"count":256}`, account)))
				if len(got.Nonces) != 256 || got.Nonce != 256*i {
					t.Fatalf("call %d got %d nonces from %d on", i, len(got.Nonces), got.Nonce)
				}
			}
			c.want("hold_limit", wire.MethodAllocate, allocation(account, ""))
			c.want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":2000}`, account))
			if got := c.allocate(account, ""); got.Nonce != 4096 {
				t.Errorf("after a mark it got %d", got.Nonce)
			}
			c.want("hold_limit", wire.MethodAllocate, allocation(account, ""))
		})
	}
}
