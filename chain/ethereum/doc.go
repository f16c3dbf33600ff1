// Package ethereum is an Ethereum chain seen through several nodes: it implements
// chain.Chain, and passes calls and subscriptions of others on to a node.
//
// # Nodes disagree, lag and lie
//
// docs/decisions/14-chain-nodes.md says why it is done so. A node is asked for nothing before it said that
// it is of the chain, and is asked that again after each new connection. Every node is polled for its newest
// and its final block, in one request; a subscription to new heads only says when to poll. choose.go has the
// rule for the newest block, final.go that for the final one. Blocks between two heads are read one by one,
// up to Config.MaxBlocksBehind.
//
// # Bounds
//
// Requests under way, calls in a request, bytes of an answer and time are bounded by Config. A node
// that wants fewer requests is left alone for as long as it says; if it said so to a call of others,
// only those pause. Nothing is kept over a restart.
//
// # Goroutines and locks
//
// Run owns all goroutines: of each node its connections and its poller, the follower, which decides
// what the newest and the final block are, and those of sends and subscriptions, for which it waits.
// Client.mu and node.mu guard what their structs say. A goroutine has one of them at a time, and asks
// no node meanwhile.
//
// # Files
//
// client.go, node.go and config.go; ask.go, call.go, pause.go and slots.go ask one node;
// poll.go, follow.go, choose.go, judge.go, adopt.go, final.go, branches.go and block.go find the chain;
// counts.go, start.go and lookup.go are about accounts, trust.go about what nodes may be believed;
// send.go, tried.go and answers.go about transactions; subscribe.go about subscriptions of others,
// announce.go about those to heads; status.go and metrics.go are for people.
package ethereum
