// Package ws serves the protocol: JSON-RPC 2.0 in text frames on a WebSocket.
//
// It promises: a request is admitted before any work, with every place it will
// need taken at once, or refused as server_busy with nothing done; an array is
// admitted as a whole. What a connection is sent leaves in the order it was
// queued. Two requests of one connection for one signer reach the service in the
// order they came. A subscription's first event comes after the reply that names
// it. A frame that is no request is answered in words and harms nobody else. While
// a node drains, a request is either served and answered or refused; none is done
// whose answer has no way out.
//
// Other nodes connect like clients, with headers that say who they are and whom
// they mean (see NodeConfig), and speak the same protocol. What they bring has
// places of its own; what changes something carries a nonce.Path, one for each
// signer they have something under way for; their subscriptions hear of what was
// committed here and of nothing else.
//
// What it does not: it knows no rules of nonces (package nonce), writes to no
// socket after the upgrade and encodes no reply in a read goroutine or a
// worker's (package writer and its pool), and decides no policy for slow clients
// (package backpressure). Origin is checked as browsers need it, which
// authenticates no program.
//
// The Server owns all goroutines of the package: of each connection one that waits for
// bytes, from the upgrade until its socket is closed, and one that reads while there
// are any; one that pings all of them; one for each
// call of a dialect under way, of which a connection has at most MaxInflight; one for
// each signer of a connection whose line moves; one for each call of a POST. Drain
// ends the connections politely and serves on meanwhile; Stop ends everything and
// waits. The HTTP handler itself returns after the upgrade, so that net/http's
// memory goes with it.
//
// Each lock is a field mu that says what it guards. None is held during I/O, and
// none while another is taken, with two exceptions: under that of the pre-auth
// limiter those of addresses are taken, and under that of a stream those of the
// connection's queue and of the encode pool, so that its events keep their order.
//
// Where to begin reading: server.go, conn.go (a connection), request.go and method.go
// (a request), admission.go, batch.go; then line.go, dialect_conn.go, call.go and stream.go
// (dialects).
package ws
