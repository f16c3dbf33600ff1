//go:build unix

// Package nodes tests nodes that come and go: started twice, paused, killed, drained; their shards are moved.
package nodes

import (
	"syscall"
	"testing"

	"noncegate/test/e2e"
	"noncegate/wire"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// shown is what gateway nodes says of each node when it asks p, by id.
func shown(p *e2e.Process) map[string]wire.NodeInfo {
	p.Helper()
	o := e2e.Run(p, "nodes", "--json", "--admin", p.Admin)
	var v struct {
		NodeCount int64           `json:"nodeCount"`
		Nodes     []wire.NodeInfo `json:"nodes"`
	}
	if err := wire.Unmarshal([]byte(o.Stdout), &v); o.Code != e2e.ExitOK || err != nil {
		p.Fatalf("exit %d, stdout %q, stderr %q, %v", o.Code, o.Stdout, o.Stderr, err)
	}
	if v.NodeCount != int64(len(v.Nodes)) {
		p.Errorf("%d nodes are said to be %d", len(v.Nodes), v.NodeCount)
	}
	nodes := make(map[string]wire.NodeInfo)
	for _, n := range v.Nodes {
		nodes[n.Node] = n
	}
	return nodes
}

func TestEachNodeShowsAllNodesAndWhatBecomesOfThem(t *testing.T) {
	t.Parallel()
	db := e2e.Database(t)
	a := e2e.Launch(t, "--store="+db, "--node-id=a", "--lease-ttl=1s")
	b := e2e.Launch(t, "--store="+db, "--node-id=b", "--lease-ttl=1s", "--mode=basic")
	c := e2e.Launch(t, "--store="+db, "--node-id=c", "--lease-ttl=1s")
	for _, p := range []*e2e.Process{a, b, c} {
		p.Await("all three to be shown as live", func() bool {
			n := shown(p)
			return len(n) == 3 && n["a"].State == "live" && n["b"].State == "live" && n["c"].State == "live"
		})
	}
	nodes := shown(b)
	if n := nodes["a"]; n.URL != a.URL || n.Mode != "worker-queue" || n.Incarnation != 1 {
		t.Errorf("a is shown as %+v", n)
	}
	if n := nodes["b"]; n.URL != b.URL || n.Mode != "basic" || n.Shards != 0 {
		t.Errorf("b is shown as %+v", n)
	}

	b.Await("a and c to have half of the shards each", func() bool {
		n := shown(b)
		return n["a"].Shards == e2e.FewShards/2 && n["c"].Shards == e2e.FewShards/2
	})

	a.Signal(syscall.SIGKILL)
	b.Await("a, which was killed, to be silent", func() bool { return shown(b)["a"].State == "silent" })
	c.Stop()
	b.Await("c to have left", func() bool { n := shown(b)["c"]; return n.State == "left" && n.Shards == 0 })
	again := e2e.Launch(t, "--store="+db, "--node-id=a", "--lease-ttl=1s")
	b.Await("a to be back", func() bool {
		n := shown(b)["a"]
		return n.State == "live" && n.Incarnation == 2 && n.URL == again.URL
	})
}
