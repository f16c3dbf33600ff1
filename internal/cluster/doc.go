// Package cluster carries ops to the nodes that own the shards of their signers, and events from
// them. It is the service.Router of a gateway.
//
// It promises:
//   - Each op it took over is given back exactly once, with a verdict that never
//     merges "the other node has answered", "nothing was sent or done there" and
//     "it was sent, and nobody knows". An op counts as sent from the moment before
//     its bytes go to the network.
//   - Ops for one node leave in the order of Forward, and when a link is lost what
//     was under way comes back in that order.
//   - Forward never blocks. At most Config.Queue ops are under way at one node;
//     the next is refused with nonce.ErrForwardBusy. Each is given back within
//     about Config.Timeout, also when the other node hangs or the network swallows
//     everything.
//   - Events of other nodes reach the EventSink once each, in the order in which
//     their node sent them; when some may have been missed, it is told Lost.
//
// It does not promise that all nodes reach a node at the same time: each judges by the registry
// and by its own links. No correctness rests on that.
// It forwards nothing on behalf of another node, so a request goes over one link at
// most.
//
// A link is one WebSocket connection to another node, in the gateway's own
// protocol. Three goroutines belong to each node that is known: keep, which dials,
// looks after the clock, and gives back what a lost link leaves; and, while there is
// a link, one that reads and one that writes. The Router owns them all; Stop ends
// them and waits.
package cluster
