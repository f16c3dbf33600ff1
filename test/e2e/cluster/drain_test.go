//go:build unix

package cluster

import (
	"strings"
	"testing"
	"time"

	"noncegate/test/e2e"
)

// TestLongWhileANodeDrainsNobodyIsRefusedWithinItsGrace: a plain client of the node that
// goes away is served until its connection is closed or the grace is over, and those
// of other nodes notice nothing at all.
func TestLongWhileANodeDrainsNobodyIsRefusedWithinItsGrace(t *testing.T) {
	t.Parallel()
	const grace = time.Second // a twentieth of the drain timeout
	f := e2e.ServeEach(t, "a b c", "--lease-ttl=10s", "--drain-timeout=20s")
	signers := e2e.Signers("account", 1000)
	th := f.Throng(10, 4, signers)
	e2e.Await(t, "the signers to be spread", func() bool {
		for _, p := range f.Nodes {
			if p.Value("noncegate_signers_remembered") < 200 {
				return false
			}
		}
		return true
	})
	asked := time.Now()
	f.Nodes["a"].Stop()
	th.Stop.Store(true)
	th.All.Wait()
	t.Logf("%v", th.Said)
	late := 0
	for _, r := range th.Told {
		after := r.At.Sub(asked)
		if r.Node == "a" && strings.HasPrefix(r.What, "draining") && after >= grace {
			late++
			continue
		}
		t.Errorf("%v after the signal a client of %s was told %s", after, r.Node, r.What)
	}
	t.Logf("%d told draining after the grace", late)
	e2e.Consistent(t, f.DB)
}
