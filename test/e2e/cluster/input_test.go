//go:build unix

package cluster

import (
	"fmt"
	"strings"
	"testing"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// TestNodesWithoutTheSameSecretDoNotTalk: each serves its own signers and refuses those of the other.
func TestNodesWithoutTheSameSecretDoNotTalk(t *testing.T) {
	t.Parallel()
	f := &e2e.Fleet{TB: t, DB: e2e.Database(t), Nodes: make(map[string]*e2e.Process)}
	secrets := map[string]string{"a": "first-secret-of-the-cluster", "b": "other-secret-of-the-cluster"}
	for name, secret := range secrets {
		f.Launch(name, "--node-secret="+secret)
	}
	for name, other := range map[string]string{"a": "b", "b": "a"} {
		p := f.Nodes[name]
		p.Await(name+" to say that "+other+" refused it", func() bool {
			return p.Logged(`"node not reached"`, fmt.Sprintf(`"node":%q`, other), "403", "--node-secret")
		})
		p.Await(name+" to say that it refused "+other, func() bool {
			return p.Logged("refused a node's connection", "secret", fmt.Sprintf(`"from":%q`, other))
		})
	}
	served := 0
	for name, c := range f.ConnectEach() {
		for _, s := range e2e.Signers("account", 12) {
			switch r := c.Call(wire.MethodAllocate, e2e.Allocation(s, "")); r.Reason() {
			case "ok":
				served++
			case "unavailable none":
			default:
				t.Errorf("%s says of %s: %v", name, s, r.Error)
			}
		}
		if log := f.Nodes[name].Printed(); strings.Contains(log, secrets["a"]) || strings.Contains(log, secrets["b"]) {
			t.Errorf("the log of %s has a secret", name)
		}
	}
	if served == 0 || f.Sum(`noncegate_forwarded_total{result="answered"}`) != 0 {
		t.Errorf("%d were served, and nothing may be forwarded", served)
	}
	e2e.Consistent(t, f.DB)
}
