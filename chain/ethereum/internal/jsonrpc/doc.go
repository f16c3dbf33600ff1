// Package jsonrpc asks one node by JSON-RPC 2.0, over HTTP or over a WebSocket.
//
// Both carriers keep the same contract, Node. A request has a time limit, and its
// answer a bound in bytes that is kept while it is read. An answer is matched to its
// request by the id; one that fits nothing that was asked is the node's failure and is
// never somebody's result. Redirects are not followed. Credentials of the address go
// into a header, and no text that leaves this package has them.
//
// Every request has one of three outcomes: the node answered it (Call.Result or
// Call.Err), or Call.Fail says why not. errors.Is(Fail, ErrNotSent) then says that
// nothing of it can have reached the node; otherwise the node may have carried it out.
//
// The package does not try again, choose between nodes, or know any method but those
// of subscriptions. HTTP has no goroutine of its own. A WebSocket's are those of Run.
package jsonrpc
