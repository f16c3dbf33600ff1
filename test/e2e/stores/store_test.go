//go:build unix

package stores

import (
	"fmt"
	"strings"
	"testing"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// A store that answers, and refuses, looks well to /readyz and to the heartbeat.
func TestWhatTheStoreRefusesIsInTheLog(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db := e2e.Database(t)
			p := e2e.Launch(t, "--store="+db, "--mode="+mode)
			c := p.Connect()
			table := "signer"
			e2e.Execute(t, db, `ALTER TABLE `+table+` RENAME TO hidden`)
			for _, r := range []*e2e.Reply{
				c.Want("unavailable none", wire.MethodAllocate, e2e.Allocation(e2e.Account, "")),
				c.Want("unavailable none", wire.MethodStatus, fmt.Sprintf("[%q]", e2e.Account)),
			} {
				if !strings.Contains(r.Error.Message, "the store refused it") {
					t.Errorf("clients are told %q", r.Error.Message)
				}
			}
			p.Says(`relation \"` + table + `\" does not exist`)
			log := p.Printed()
			if n := strings.Count(log, "the store does not do what requests need"); n != 1 {
				t.Errorf("the log says why %d times:\n%s", n, log)
			}
		})
	}
}
