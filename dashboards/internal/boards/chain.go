package boards

// The labels of what is counted of a chain.
const (
	chainLabel = "chain"
	nodeLabel  = "node"
)

// chains is about what blockchains say of signers, and about the nodes that are asked.
func chains() Board {
	return Board{
		File: "chain.json", UID: "noncegate-chain", Title: "Noncegate: chains",
		Description: "Do the nodes of the chains answer, which signers are blocked, of which holds does nobody know, what did the chains say, and what comes to the Ethereum endpoint. Its rows are collapsed, because without --chain there is nothing to show. docs/chain.md, \"Runbooks\", says what to do.",
		Rows:        []Row{chainState(), chainNodes(), chainGaps(), chainEvents(), ethereumEndpoint()},
	}
}

// byChain is one line for each chain: that of the node of ours that has most.
func byChain(metric string) []Query {
	return []Query{{highest(of(metric), chainLabel), "{{chain}}"}}
}

// addedByChain is one line for each chain, over all instances.
func addedByChain(expr string) Query { return Query{sum(expr, chainLabel), "{{chain}}"} }

// byNode is one line for each node of a chain, as the instance sees it that sees it
// worst.
func byNode(how, metric string) []Query {
	return []Query{{aggregate(how, of(metric), []string{chainLabel, nodeLabel}), "{{chain}} {{node}}"}}
}

// chainsWithoutNode counts the pairs of an instance and a chain of which no node answers
// it.
func chainsWithoutNode() string {
	return sum("1 - " + highest(of("chain_node_up"), instanceVariable, chainLabel))
}

func chainState() Row {
	return Row{Title: "State of the chains", Needs: "--chain", Panels: []Panel{
		stat("Chains without a node", "short", 0, 1,
			chainsWithoutNode(),
			"Instance and chain pairs in which no node of the chain answers the instance. Known signers are served within the window of the last count, new ones are unavailable, and no unknown hold is released. docs/chain.md, \"Nodes that disagree, lag or are away\"."),
		stat("Stopped chains", "short", 0, 1, sum(of("chain_stopped")),
			"Instance and chain pairs in which the final block fell. The gateway takes no action of its own for the chain's signers until it is restarted. docs/chain.md, \"The final block fell\"."),
		stat("Longest time without a new block", "s", 60, 180, highest(of("chain_last_head_age_seconds")),
			"How long ago the last new block was seen, of the chain and instance where that is longest. Compare with the time between blocks of that chain. Minutes: nodes hang."),
		stat("Gaps", "short", 0, 1, sum(of("chain_gaps")),
			"Signers of which a nonce blocks others: no node has a transaction of it. gateway signer list --filter gap, and docs/chain.md, \"A gap\". Not 0: transactions wait."),
		stat("Unknown holds", "short", 1, 0, sum(of("chain_unknown_holds")),
			"Holds that are over, and of which nobody knows whether their nonce was used. Each ends by itself. docs/chain.md, \"Unknown holds\"."),
		stat("External uses", "short", 1, 0, sum(with("chain_events_total", "type", "external")),
			"Nonces that transactions used which did not come from here, since the start of the instances. docs/chain.md, \"External use\". Not 0: somebody else has the key."),
		graph("Newest and final block, by chain", "short",
			"Numbers of the newest block and of the newest one that is final. A line that is flat: no new blocks, or no node tells of them. Only final blocks raise floors.",
			Query{highest(of("chain_head_number"), chainLabel), "newest {{chain}}"}, Query{highest(of("chain_final_number"), chainLabel), "final {{chain}}"}),
		graph("Age of the newest block, by chain", "s",
			"How long ago a new block was seen, by chain, at the instance where that is longest. It rises: nodes hang.",
			byChain("chain_last_head_age_seconds")...),
	}}
}

func chainNodes() Row {
	return Row{Title: "Nodes of the chains", Needs: "--chain", Panels: []Panel{
		graph("Nodes that answer (1 yes, 0 no)", "short",
			"1: the node answered last, and is of the chain. The instance counts that sees it worst. 0: the node does not answer some instance.",
			byNode("min", "chain_node_up")...),
		graph("Blocks behind, by node", "short",
			"How many blocks each node is behind the newest one. Beyond --chain-lag the node is not asked.", byNode("max", "chain_node_lag_blocks")...),
		graph("Nodes backing off, of another chain or branch", "short",
			"1 while a node wants fewer requests (backing off), says that it is of another chain, or is on another branch than the others.",
			Query{highest(of("chain_node_backing_off"), chainLabel, nodeLabel), "backing off {{chain}} {{node}}"},
			Query{highest(of("chain_node_other_chain"), chainLabel, nodeLabel), "other chain {{chain}} {{node}}"},
			Query{highest(of("chain_node_off_branch"), chainLabel, nodeLabel), "other branch {{chain}} {{node}}"}),
		graph("Calls to nodes, by result", "ops",
			"ok: answered. refused: with an error. limited: the node wants fewer. timeout, unreachable, lost: no answer. too_large, nonsense: an answer of no use. busy: as many were under way as there may be.",
			byLabel("chain_requests_total", "result")...),
		graph("Calls to nodes, by method", "ops",
			"What is asked. Heads are two calls a poll and node; counts of signers grow with those that have something open.",
			byLabel("chain_requests_total", "method")...),
		graph("Calls to nodes, by node", "ops",
			"Calls to each node of a chain. A batch has several; providers count, and bill, them one by one.",
			Query{sum(each(of("chain_requests_total")), chainLabel, nodeLabel), "{{chain}} {{node}}"}),
		graph("Node request time (p99)", "s",
			"99th percentile of the time that a request to each node took. A batch is one request. Slow: the node, or the network to it.",
			Query{"histogram_quantile(0.99, " + sum(each(of("chain_request_seconds_bucket")), "le", chainLabel, nodeLabel) + ")", "{{chain}} {{node}}"}),
		graph("Disagreements of nodes, by subject", "ops",
			"Times that nodes were on different branches (head), had different counts at one block (count) or at a final one (final), and counts below what was seen, which are not believed (lower). Not 0: a node lies or lags.",
			Query{sum(each(of("chain_disagreements_total")), "about"), "{{about}}"},
			Query{sum(each(of("chain_final_disagreements_total"))), "final"}, Query{sum(each(of("chain_lower_counts_total"))), "lower"}),
	}}
}

func chainGaps() Row {
	return Row{Title: "Gaps, unknown holds and signers", Needs: "--chain", Panels: []Panel{
		graph("Gaps, by chain", "short",
			"Signers that a nonce blocks which no node has seen. Not 0: transactions wait.", addedByChain(of("chain_gaps"))),
		graph("Unknown holds, by chain", "short",
			"Holds that are over, and of which nobody knows whether they were used. They grow: clients die.", addedByChain(of("chain_unknown_holds"))),
		graph("Unknown holds ended by the chain, by chain", "ops",
			"Unknown holds that ended because a block or a pool had a transaction of their nonce.", addedByChain(each(of("chain_holds_ended_total")))),
		graph("Signers waiting for a first count, by chain", "short",
			"Signers that are new here, and wait for the first answer of a node. No node of the chain answers for them.", addedByChain(of("chain_waiting_signers"))),
		graph("Signers remembered and open, by chain", "short",
			"Signers of the chain that the instances remember, and those with nonces that the chain has not used. The second are asked for at each block.",
			Query{sum(of("chain_signers"), chainLabel), "remembered {{chain}}"}, Query{sum(of("chain_open_signers"), chainLabel), "open {{chain}}"}),
	}}
}

func chainEvents() Row {
	return Row{Title: "Chain events and reorganizations", Needs: "--chain", Panels: []Panel{
		graph("Chain events, by type", "ops",
			"What was told of signers. gap, gapClosed: a nonce blocks others. external: a transaction that did not come from here. reorg: a count fell. dropped: a transaction left the pools. mined, final: as it should be. mined follows the load.",
			byLabel("chain_events_total", "type")...),
		graph("External uses, gaps, reorganizations, drops", "short",
			"The events that somebody should know of, counted since the start of the instances.",
			Query{sum(among("chain_events_total", "type", "external|gap|reorg|dropped"), chainLabel, "type"), "{{type}} {{chain}}"}),
		graph("Reorganizations and unread blocks, by chain", "short",
			"Since the start of the instances: times that blocks were replaced, that a block was final and is not any more, and that blocks were not read one by one, so that counts were asked for.",
			Query{sum(of("chain_reorgs_total"), chainLabel), "reorganizations {{chain}}"}, Query{sum(of("chain_final_fell_total"), chainLabel), "final fell {{chain}}"},
			Query{sum(of("chain_blocks_skipped_total"), chainLabel), "not read {{chain}}"}),
	}}
}

func ethereumEndpoint() Row {
	return Row{Title: "Ethereum endpoint, /eth/CHAIN", Needs: "--chain", Panels: []Panel{
		graph("Endpoint calls, by result", "reqps",
			"Calls of clients that take the gateway for a node. ok: answered. refused: by the gateway, which says why. node: a node answered with an error.",
			byLabel("eth_requests_total", "result")...),
		graph("Endpoint calls, by method", "reqps",
			"Calls of the endpoint by method. other: a method that the gateway does not know.", byLabel("eth_requests_total", "method")...),
		graph("Transactions sent, by outcome", "ops",
			"eth_sendRawTransaction, by what became of it. in_pool: taken. taken, used: another transaction has its nonce. free: every node refused it, and the nonce comes back. unknown: it may be in a pool. refused: given to no node. unrecorded: not sent, and its record is not known. unrecorded, unknown: ask again.",
			byLabel("eth_sends_total", "outcome")...),
		graph("Transactions given to nodes, by answer", "ops",
			"in_pool: a node took it. taken: another transaction has its nonce. used: its nonce was used before. free: every node refused it, and the nonce comes back. unknown: it may be in a pool.",
			byLabel("chain_answers_total", "class")...),
		graph("Transactions not recorded yet, by chain", "short",
			"Transactions whose fate could not be recorded when it was known, since the start of the instances. It is when their hold ends. Not 0: the store was away meanwhile.",
			addedByChain(of("eth_loose_ends_total"))),
		graph("Endpoint subscriptions at nodes, by chain", "short",
			"What is open at nodes for clients that subscribe to heads, logs or pending transactions. Clients that want the same share one.",
			addedByChain(of("eth_upstream_subscriptions"))),
	}}
}
