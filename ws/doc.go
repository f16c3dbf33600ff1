// Package ws serves the protocol: JSON-RPC 2.0 in text frames on a WebSocket.
//
// It promises: the server admits a request before any work and takes every slot it
// will need at once, or refuses it with nothing done; it admits an
// array as a whole. A connection's messages leave in the order they were queued. Two
// requests of one connection for one signer reach the service in the order they
// came. A subscription's first event comes after the reply that names it. The server
// answers a frame that is no request with an error that affects no other request.
// While a node drains, a request is either served and answered or refused; the node
// executes no request whose answer it cannot send.
//
// Other nodes have links of their own (internal/cluster).
//
// It does not promise, or do, the following: it knows no rules of nonces (package
// nonce); it writes to no socket after the upgrade and encodes no reply in a read
// goroutine or a worker (package writer and its pool); it decides no policy for slow
// clients (package backpressure). It checks Origin as browsers need it, which
// authenticates no program.
//
// The Server owns all goroutines of the package: of each connection one
// that waits for bytes, from the upgrade until its socket is closed, and one that reads
// while there are any (under TLS the first does that); one for each read whose owner is asked what its
// chain says; one that pings all connections; one for each
// call of a Room under way, at most MaxInflight for a connection; one for each
// signer of a connection whose line moves. Drain closes the connections in order and serves
// meanwhile; Stop ends everything and waits. The HTTP handler itself returns after the
// upgrade, so that net/http frees its memory.
//
// Each lock is a field mu that says what it guards. No lock is held during I/O. No
// lock is held while another is taken, with one exception: under that of the pre-auth
// limiter the locks of addresses are taken.
//
// Where to begin reading: server.go, conn.go (a connection), request.go and method.go
// (a request), reservation.go, batch.go. Then, group by group:
//
//   - authentication: preauth.go (which clients are let in, as which principal), session.go
//     (what a client may, and how a session ends), origin.go (pages of browsers), auditing.go
//   - bounds: quota.go (a second, and of subscriptions), room.go (in flight)
//   - methods: method_NAME.go (params, right, audit, size and reply of each), errors.go,
//     subscription.go (events)
//   - waiting: line.go (the order of a signer's requests, and for a chain), guard.go (for a lock)
//   - other protocols: protocol.go (a Protocol on connections and by POST, and its callers);
//     package relay serves one
//   - the end: registry.go (the open connections, their pings, silence, timeouts and floods),
//     drain.go (Drain and Stop)
//   - numbers: metrics.go
package ws
