// Package endpoint speaks the JSON-RPC of an Ethereum node to wallet back ends that
// change nothing but their URL. Package relay serves it.
//
// docs/ethereum.md says what it answers. No transaction is given to a node before its hash is recorded with its
// nonce, and the record committed; what is refused with an error of the gateway's own was given to
// no node, unless the error says that this is not known; what was begun is done although
// the client has gone.
//
// An Endpoint has no goroutine but those of its upstream subscriptions, which end with
// the last client that wants them, and those that ask for receipts, which end with the call that
// waits. An Offerer's are those of its Run. Methods of an Endpoint are called by goroutines of
// packages ws and relay. lines.mu and feeds.mu guard what their structs say; no I/O is done under them.
//
// Read endpoint.go, handler.go and methods.go; count.go; send.go, line.go, record.go, settle.go,
// explain.go and authorities.go (a transaction on its way); offer.go; subscribe.go.
package endpoint
