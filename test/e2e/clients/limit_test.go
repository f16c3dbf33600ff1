package clients

import (
	"fmt"
	"testing"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// TestASignerMayHaveAsManyOpenHoldsAsCanBeSet, in one row, and one that ends makes room for one.
func TestASignerMayHaveAsManyOpenHoldsAsCanBeSet(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]string{"postgres": e2e.Database(t), "sqlite": "sqlite:" + t.TempDir() + "/noncegate.db"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := e2e.Launch(t, "--store="+store, "--max-holds=4096").Connect()
			for i := range int64(16) {
				got := e2e.Decode[wire.AllocateResult](c, c.Want("ok", wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"count":256}`, e2e.Account)))
				if len(got.Nonces) != 256 || got.Nonce != 256*i {
					t.Fatalf("call %d got %d nonces from %d on", i, len(got.Nonces), got.Nonce)
				}
			}
			c.Want("hold_limit", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))
			c.Want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":2000}`, e2e.Account))
			if got := c.Allocate(e2e.Account, ""); got.Nonce != 4096 {
				t.Errorf("after a mark it got %d", got.Nonce)
			}
			c.Want("hold_limit", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))
		})
	}
}
