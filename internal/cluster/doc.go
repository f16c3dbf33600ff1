// Package cluster carries ops to the nodes that own the shards of their signers, and events from
// them. It is the service.Router of a gateway.
//
// It promises:
//   - It returns each op that it took over exactly once, with one of four verdicts:
//     the other node has answered; nothing was sent or done there; it was sent, the
//     outcome is unknown, and it is to be asked again; the same with its time over.
//     An op counts as sent from the moment before its bytes
//     go to the network.
//   - Ops for one node leave in the order of Forward, and when a link is lost the ops
//     under way come back in that order.
//   - Forward never blocks. At most Config.Queue ops are under way at one node;
//     beyond that, or beyond the part of its principal, an op is refused with
//     nonce.ErrForwardBusy. Each is returned within
//     about Config.Timeout, also when the other node hangs or the network drops
//     everything.
//   - Events of other nodes reach the EventSink once each, in the order in which
//     their node sent them; when some may have been missed, its Lost is called.
//
// It does not promise that all nodes agree on which nodes are reachable: each judges by the
// registry and by its own links. Correctness does not depend on that.
// It forwards nothing on behalf of another node, so a request goes over one link at
// most.
//
// A link is one WebSocket connection to another node, in the gateway's own
// protocol. Each known node has three goroutines: keep, which dials, checks
// time-outs, and returns the ops of a lost link; and, while there is a link, one that
// reads and one that writes. The Router owns them all; Stop ends them and waits. Locks: Router.mu
// is taken before a peer.mu; interests.changing is held while the interest is read and set.
//
// Where to begin reading: router.go, peer.go, link.go, write.go, read.go, answer.go, back.go; ask.go has the reads.
package cluster
