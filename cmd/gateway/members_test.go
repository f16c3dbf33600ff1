package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/wire"
)

func TestANodeIsLiveOrLeftOrSilent(t *testing.T) {
	seen := time.Date(2026, 11, 20, 18, 33, 56, 0, time.UTC)
	got := nodeInfos([]lease.Node{
		{Holder: lease.Holder{Node: "a", Incarnation: 3}, URL: "ws://a", Mode: "basic", Shards: 5, Live: true, StartedAt: seen, SeenAt: seen},
		{Holder: lease.Holder{Node: "b"}, Left: true},
		{Holder: lease.Holder{Node: "c"}},
	})
	want := wire.NodeInfo{Node: "a", URL: "ws://a", Mode: "basic", State: "live", Incarnation: 3, Shards: 5, StartedAt: wire.Time(seen), SeenAt: wire.Time(seen)}
	if len(got) != 3 || got[0] != want || got[1].State != "left" || got[2].State != "silent" {
		t.Errorf("got %+v", got)
	}
}

func TestOfMoreNodesThanAreShownTheLiveOnesAre(t *testing.T) {
	var nodes []lease.Node
	for i := range 3 * wire.MaxNodes {
		nodes = append(nodes, lease.Node{Holder: lease.Holder{Node: fmt.Sprintf("n%03d", i)}, Live: i%3 == 2, Left: i%3 == 0})
	}
	all := slices.Clone(nodes)
	nodes = append(nodes, lease.Node{Holder: lease.Holder{Node: "last"}})
	got := nodeInfos(nodes)
	if len(got) != wire.MaxNodes || !slices.IsSortedFunc(got, func(a, b wire.NodeInfo) int { return slices.Compare([]byte(a.Node), []byte(b.Node)) }) {
		t.Errorf("got %d nodes: %+v", len(got), got)
	}
	for _, n := range got {
		if n.State != wire.NodeLive {
			t.Errorf("%s is shown, which is %s", n.Node, n.State)
		}
	}
	if !slices.Equal(nodes[:len(all)], all) {
		t.Error("the list of others was changed")
	}
}

func TestAGatewayThatHasNotReadTheRegistryShowsNoNodes(t *testing.T) {
	if got := nodeInfos(new(app).nodes()); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}
