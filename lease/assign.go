package lease

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Assign says which of the nodes should have each shard, in order: the one that it is pinned
// to, else by rendezvous hashing, which moves few shards when a node comes or goes, with a
// bound on what one node has, which is an even share rounded up. The result has the place of
// a node for each shard, and is the same in every process that is given the same; without
// nodes all are -1. The nodes must be sorted, so that every process breaks ties alike; a pin
// to a node that is not among them is ignored.
func Assign(nodes []string, pinned []string) []int {
	shards := len(pinned)
	out := make([]int, shards)
	for i, node := range pinned {
		out[i] = slices.Index(nodes, node)
	}
	if len(nodes) == 0 {
		return out
	}
	room := make([]int, len(nodes))
	for i := range room {
		room[i] = (shards + len(nodes) - 1) / len(nodes)
	}
	for _, i := range out {
		if i >= 0 {
			room[i]--
		}
	}
	for shard := range out {
		if out[shard] >= 0 {
			continue
		}
		best, score := -1, uint64(0)
		for i, n := range nodes {
			if s := weight(n, shard); (room[i] > 0 || full(room)) && (best < 0 || s > score) {
				best, score = i, s
			}
		}
		out[shard] = best
		room[best]--
	}
	return out
}

// weight is the hash of a node and a shard.
func weight(node string, shard int) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(node)
	_, _ = d.Write(binary.LittleEndian.AppendUint32(nil, uint32(shard))) // #nosec G115 -- shards are few
	return d.Sum64()
}

// full reports whether no node has room: one has more than its share because shards are
// pinned to it, so that the others take what is left.
func full(room []int) bool {
	return !slices.ContainsFunc(room, func(r int) bool { return r > 0 })
}
