// Package ethereum is an Ethereum chain seen through several nodes: it implements
// chain.Chain, and passes calls and subscriptions of others on to a node.
//
// # Nodes disagree, lag and lie
//
// A node is asked for nothing before it said that it is of the chain, and is asked that
// again after each new connection. Every node is polled for its newest and its final
// block, in one request; a subscription to new heads only says when to poll.
//
// The newest block of the chain is the one with the most votes: a node votes for the
// newest block of its branch, if its own is not more than Config.Lag below it. Between
// equals nodes that move are before nodes that stand still, then the branch that was
// followed so far, then the higher number. A block below the newest so far is never
// chosen: a node that is behind is no reorganization. Only if all nodes are far below it for
// ten minutes it is given up. A node whose block is dated into
// the future, or is higher than the chain can have come to, is not believed while another
// one goes on as before. Two nodes that contradict each other cannot be told apart; with
// three the majority decides.
//
// The final block is the newest that most of the nodes on the branch call final. It falls
// only if a reorganization went below it, another block with its number is called final,
// or all nodes are below it for several polls; Head.FinalFell then says that nothing may
// follow from what the nodes say.
//
// Blocks between two heads are read one by one, up to Config.MaxBlocksBehind, and the
// nonces that their transactions and authorizations used are told. Only types 0 to 4 are:
// what a deposit of a rollup means for a nonce, the counts tell. They are asked for at the
// hash of a block, so that answers of several nodes compare; the greatest is taken.
//
// # What was sent
//
// A transaction goes to every node. What they say is told by answers.yaml. Only if all of
// them said that they do not have it, and no other try may have left it anywhere, is its
// nonce free.
//
// # Bounds
//
// Requests under way, calls in a request, bytes of an answer and time are bounded by
// Config. Requests wait for a slot, and principals share these: calls of others, transactions
// and the gateway's own questions have slots of their own. A node that wants fewer requests is
// left alone for as long as it says; if it said so to a call of others, only those pause. What
// a contract says is never taken for such a wish. Memory for answers does not grow with what a
// node sends.
//
// # What it does not promise
//
// That a node has a transaction for good, or that none has one that no node shows: Lookup tells
// what nodes show. Nothing is kept over a restart.
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
