// Package cluster carries requests to the nodes that own the shards of their signers, and events
// from them. It is the service.Router of a gateway, and the http.Handler of /node, where other
// nodes open links to this one.
//
// A link is a WebSocket connection that a node opens to another one and keeps. Its messages are
// binary: a handshake, and then items, one behind the other (frame.go). Over it go requests of the
// node that opened it, and what its clients want to hear of; back come results and events. Two
// nodes that need each other have a link in either direction.
//
// It promises to the service, for what this node sends:
//   - It returns each op that it took over exactly once, with one of four verdicts: the other node
//     has answered; nothing was sent or done there; it was sent, the outcome is unknown, and it is
//     to be asked again; the same with its time over. An op counts as sent from the moment before
//     its bytes go to the network.
//   - Ops for one node leave in the order of Forward, and when a link is lost the ops under way
//     come back in that order.
//   - Forward never blocks. At most Config.Queue ops are under way at one node; beyond that, or
//     beyond the share of its principal, an op is refused with nonce.ErrForwardBusy. Each is
//     returned within about Config.Timeout, also when the other node hangs or the network drops
//     everything.
//   - A result reaches only its own request. If one matches no request that was sent over the link,
//     does not fit its request, or cannot be read, the link ends and the log says why. What was sent
//     over it is in doubt, and what was not is not done.
//
// And for what other nodes send to this one:
//   - A link is let in when both sides have proved that they know the secret, over random numbers
//     of both, so that no handshake can be used again. The secret is never sent.
//   - Requests are given to the service in the order in which they came, with a reservation, and
//     behind one of their path that was sent back they are sent back as well (nonce.Path). Of
//     older links of a node nothing more is done once a later one is in use.
//   - Results and events leave in one order. A node that does not read blocks no worker: events
//     are left out and counted, and a link ends that has more results waiting than it may.
//   - Events of other nodes reach Local.Events once each, in the order in which their node sent
//     them; when some may have been missed, its Lost is called.
//
// It does not promise that all nodes agree on which nodes are reachable: each judges by the
// registry and by its own links. Correctness does not depend on that. It forwards nothing on
// behalf of another node, so a request goes over one link at most. A node whose links have another
// version is not linked: requests for it are answered not_owner.
//
// Goroutines: each known node has keep, which dials, checks time-outs, and returns the ops of a
// lost link. Each link, of either direction, has one that reads and one that writes; one that was
// let in has a third that waits for both, one for each signer whose first requests wait for its
// chain, and one for each read that waits for what a chain says. The Router owns them all; Stop ends
// them and waits. Locks: Router.mu is taken before a peer.mu, and held while the interest of clients is read
// and set; nothing is called under inbound.mu; door.mu, lines.mu and paths.mu are held briefly.
//
// Where to begin reading: frame.go (what is said), pipe.go (a connection), hello.go (the handshake).
// Sending: router.go, peer.go, dial.go, link.go, inflight.go, fits.go, interest.go. Serving: door.go,
// inbound.go, call.go, path.go.
package cluster
