package lease

import (
	"fmt"
	"slices"
	"testing"
)

// named are nodes in order.
func named(n int) []string {
	nodes := make([]string, n)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("node-%02d:8080", i)
	}
	return nodes
}

// has counts the shards of each node.
func has(t *testing.T, nodes []string, at []int) []int {
	t.Helper()
	n := make([]int, len(nodes))
	for shard, i := range at {
		if i < 0 || i >= len(nodes) {
			t.Fatalf("shard %d is at node %d of %d", shard, i, len(nodes))
		}
		n[i]++
	}
	return n
}

func TestNoNodeHasMoreThanAnEvenShareRoundedUp(t *testing.T) {
	for _, shards := range []int{1, 4, 32, 256} {
		for n := range 40 {
			nodes := named(n + 1)
			for i, count := range has(t, nodes, Assign(nodes, make([]string, shards))) {
				if most := (shards + n) / (n + 1); count > most {
					t.Errorf("of %d shards and %d nodes %s has %d, want %d at most", shards, n+1, nodes[i], count, most)
				}
			}
		}
	}
}

func TestEveryNodeHasAShareWhereThereAreEnough(t *testing.T) {
	for n := 1; n <= 8; n++ {
		nodes := named(n)
		if count := has(t, nodes, Assign(nodes, make([]string, 32))); slices.Min(count) == 0 {
			t.Errorf("%d nodes have %v of 32", n, count)
		}
	}
}

// TestFewShardsMoveWhenANodeComesOrGoes: those of the one that comes or goes, and some
// because of the bound.
func TestFewShardsMoveWhenANodeComesOrGoes(t *testing.T) {
	const shards = 256
	for n := 1; n < 12; n++ {
		all := named(n + 1)
		full := Assign(all, make([]string, shards))
		for gone := range all {
			rest := slices.Delete(slices.Clone(all), gone, gone+1)
			before, moved := has(t, all, full)[gone], 0
			for shard, i := range Assign(rest, make([]string, shards)) {
				if rest[i] != all[full[shard]] {
					moved++
				}
			}
			if moved < before || moved > before+shards/4 {
				t.Errorf("%d nodes: %d shards moved when one went that had %d", n+1, moved, before)
			}
		}
	}
}

func TestAPinnedShardIsAtItsNodeWhileThatLives(t *testing.T) {
	nodes := named(3)
	pinned := make([]string, 8)
	for i := range 6 {
		pinned[i] = nodes[1]
	}
	pinned[6] = "a node that is gone"
	at := Assign(nodes, pinned)
	for i := range 6 {
		if at[i] != 1 {
			t.Errorf("shard %d is at %d", i, at[i])
		}
	}
	// The others share what is left.
	if at[6] == 1 || at[7] == 1 || at[6] < 0 || at[7] < 0 {
		t.Errorf("the others are at %d and %d", at[6], at[7])
	}
	for i := range pinned {
		pinned[i] = nodes[2]
	}
	if got := has(t, nodes, Assign(nodes, pinned)); !slices.Equal(got, []int{0, 0, 8}) {
		t.Errorf("with all pinned to one: got %v", got)
	}
}

func TestWithoutNodesNobodyHasAShard(t *testing.T) {
	if got := Assign(nil, []string{"", "a"}); !slices.Equal(got, []int{-1, -1}) {
		t.Errorf("got %v", got)
	}
}

// TestAllProcessesAssignTheSame: what they are given is all that counts, also across
// versions of this program.
func TestAllProcessesAssignTheSame(t *testing.T) {
	if got, want := fmt.Sprint(Assign([]string{"a", "b", "c"}, make([]string, 12))), "[2 2 1 1 0 1 0 1 0 0 2 2]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
