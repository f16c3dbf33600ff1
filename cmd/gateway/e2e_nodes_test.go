//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noncegate/wire"
)

// shown is what gateway nodes says of each node when it asks p, by id.
func (p *process) shown() map[string]wire.NodeInfo {
	p.Helper()
	o := runArgs(p.TB.(*testing.T), "nodes", "--json", "--url", p.url)
	var v nodesView
	if err := wire.Unmarshal([]byte(o.stdout), &v); o.code != exitOK || err != nil {
		p.Fatalf("exit %d, stdout %q, stderr %q, %v", o.code, o.stdout, o.stderr, err)
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
	db := database(t)
	a := launch(t, "--store="+db, "--node-id=a", "--lease-ttl=1s")
	b := launch(t, "--store="+db, "--node-id=b", "--lease-ttl=1s", "--mode=basic")
	c := launch(t, "--store="+db, "--node-id=c", "--lease-ttl=1s")
	for _, p := range []*process{a, b, c} {
		p.await("all three to be shown as live", func() bool {
			n := p.shown()
			return len(n) == 3 && n["a"].State == "live" && n["b"].State == "live" && n["c"].State == "live"
		})
	}
	nodes := b.shown()
	if n := nodes["a"]; n.URL != a.url || n.Mode != "worker-queue" || n.Incarnation != 1 {
		t.Errorf("a is shown as %+v", n)
	}
	if n := nodes["b"]; n.URL != b.url || n.Mode != "basic" || n.Shards != 0 {
		t.Errorf("b is shown as %+v", n)
	}

	b.await("a and c to have half of the shards each", func() bool {
		n := b.shown()
		return n["a"].Shards == fewShards/2 && n["c"].Shards == fewShards/2
	})

	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.await("a, which was killed, to be silent", func() bool { return b.shown()["a"].State == "silent" })
	c.signal(syscall.SIGTERM)
	if code := c.exit(); code != exitOK {
		t.Errorf("c ended with %d", code)
	}
	b.await("c to have left", func() bool { n := b.shown()["c"]; return n.State == "left" && n.Shards == 0 })
	again := launch(t, "--store="+db, "--node-id=a", "--lease-ttl=1s")
	b.await("a to be back", func() bool {
		n := b.shown()["a"]
		return n.State == "live" && n.Incarnation == 2 && n.URL == again.url
	})
}

func TestAGatewayOnAFileShowsItself(t *testing.T) {
	t.Parallel()
	p := launch(t, "--store=sqlite:"+filepath.Join(t.TempDir(), "n.db"), "--node-id=only")
	nodes := p.shown()
	if n := nodes["only"]; len(nodes) != 1 || n.State != "live" || n.URL != p.url || n.Mode != "worker-queue" {
		t.Errorf("got %+v", nodes)
	}
}

func TestASignerIsShownByANodeThatDoesNotOwnIt(t *testing.T) {
	t.Parallel()
	db := database(t)
	a := launch(t, "--store="+db, "--node-id=a")
	toA := a.connect()
	for i := range 4 {
		toA.allocate(account, fmt.Sprint("request-", i))
	}
	toA.want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":3,"txHash":"0x%064d"}`, account, 7))
	b := launch(t, "--store="+db, "--node-id=b", "--mode=basic")
	o := runArgs(t, "signer", "show", account, "--limit=2", "--url", b.url)
	for _, said := range []string{
		"next    4  floor     0", "held    3  released  0  consumed  1", "owner   a  token     1  until", a.url,
		"\nopen holds\n", "  request-0  -\n", "  request-1  -\n", "and 1 more\n",
		"\nlast nonces\n", "\n3      CONSUMED  -      1 ", fmt.Sprintf("request-3  0x%064d\n", 7), "\n2      HELD      -      1 ",
	} {
		if !strings.Contains(o.stdout, said) {
			t.Errorf("it does not say %q", said)
		}
	}
	if o.code != exitOK || t.Failed() {
		t.Errorf("exit %d, stderr %q, stdout\n%s", o.code, o.stderr, o.stdout)
	}
}

func TestANodeThatWasSupersededWhilePausedChangesNothingAndEndsWhenItWakes(t *testing.T) {
	t.Parallel()
	db := database(t)
	first := launch(t, "--store="+db, "--node-id=same", "--lease-ttl=1s")
	toFirst := first.connect()
	held := toFirst.allocate(account, "")
	first.pause()
	late := toFirst.send(wire.MethodAllocate, allocation(account, "late"))

	second := launch(t, "--store="+db, "--node-id=same", "--lease-ttl=1s")
	taken := second.connect().allocate(account, "")
	if taken.Nonce != held.Nonce+1 || taken.FencingToken <= held.FencingToken {
		t.Fatalf("the first had %+v, the second %+v", held, taken)
	}
	before := everything(t, db)

	first.signal(syscall.SIGCONT)
	// It may have learned that it is over before it comes to this request, and be
	// gone before it answers.
	for {
		r, err := toFirst.read()
		if err != nil {
			break
		}
		if r.ID == late && r.reason() != "fenced" && r.reason() != "unavailable none" {
			t.Errorf("the superseded node answered %s %v", r.reason(), r.Error)
		}
		_ = toFirst.ws.Close()
	}
	if code := first.exit(); code != exitFailure {
		t.Errorf("the first ended with %d", code)
	}
	lines := strings.Split(strings.TrimSpace(first.log.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "gateway: ") || !strings.Contains(last, "later start of the same node id") {
		t.Errorf("the first ended with the words %q", last)
	}
	if after := everything(t, db); after != before {
		t.Errorf("the first changed something\nbefore\n%s\nafter\n%s", before, after)
	}
	second.await("the second to be shown as live", func() bool {
		n := second.shown()["same"]
		return n.State == "live" && n.Incarnation == 2 && n.URL == second.url
	})
	consistent(t, db)
}
