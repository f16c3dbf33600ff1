package boards

// otherNodes is about the links between nodes and what travels on
// them.
func otherNodes() Row {
	return Row{Title: "Other nodes", Needs: "several nodes", Panels: []Panel{
		linksDown(),
		stat("Live nodes", "short", 0, 0, "min("+of("nodes_live")+")",
			"Nodes that are live by the registry, as the node sees it that sees fewest. On SQLite there is one. Fewer than you run: one is gone."),
		stat("Forwarded share of requests", "percentunit", 0, 0,
			share(sum(each(with("forwarded_total", "result", "answered"))), sum(each(of("requests_total")))),
			"Requests that another node answered, of all requests. A request that is forwarded is read by two nodes and counts twice there, so it is a half at most. Each costs one more way between nodes; package client finds the owner by itself only with --forward=off. Many: clients are at the wrong node."),
		stat("Slots for other nodes (fullest node)", "percentunit", 0.5, 0.9,
			highest(of("node_inflight_slots_used")+" / "+of("node_inflight_slots")),
			"Requests of other nodes that are not answered yet, on the node that has most of its slots taken. There are as many as --max-inflight-total, beside those of clients; one other node may have a quarter. At 100 %: server_busy."),
		graph("Live nodes, as each node sees them", "short",
			"Nodes that are live by the registry, as each node read it last. One that cannot read it goes by its last list. Lines apart: nodes disagree about who is there.",
			byInstance(of("nodes_live"))...),
		graph("Links to other nodes, by state", "short",
			"Links that each node has to others, and other nodes, live by the registry, that it tried to reach and cannot. docs/runbooks.md, \"A node is not reached\". unreachable is not 0: look at --advertise-url, the node secret, the network.",
			Query{sum(of("peers_linked"), instanceVariable), "linked {{instance}}"},
			Query{sum(of("peers_unreachable"), instanceVariable), "unreachable {{instance}}"}),
		forwarding(),
		graph("Error replies to other nodes, by reason", "ops",
			"Error replies to other nodes. With not_owner, fenced and draining these route the request again, and no client hears of it; the others are passed on. not_owner, draining: shards move.",
			byLabel("node_refused_total", "reason")...),
		graph("Forwarding time (p50, p95, p99)", "s",
			"From sending a request to the node that owns its signer until its answer, the commit there included. Slow while commits are fast: the network, or a full node.",
			percentiles("forward_seconds")...),
		graph("Forwarded requests under way, by node", "short",
			"Requests sent, or about to be, and not answered, over all other nodes together. --forward-queue bounds those at one of them. At --forward-queue further ones are refused as busy.",
			byInstance(of("forward_under_way"))...),
		graph("Slots for other nodes used, by node", "percentunit",
			"Requests of other nodes that are not answered yet, of the slots for them on each node. At 100 % their requests are refused, stage inflight.",
			Query{sum(of("node_inflight_slots_used"), instanceVariable) + " / " + sum(of("node_inflight_slots"), instanceVariable), "{{instance}}"}),
	}}
}

// linksDown is the number that a person on call wants of the links.
func linksDown() Panel {
	return stat("Links down", "short", 0, 1, sum(of("peers_unreachable")),
		"Pairs of nodes of which one cannot reach the other, though it is live by the registry. A signer that is in use at the one is unavailable through the other. docs/runbooks.md, \"A node is not reached\".")
}

// forwarding is what became of requests for signers of other nodes.
func forwarding() Panel {
	return graph("Forwarded requests, by result", "ops",
		"Requests that were to go to another node. bounced: the signer had moved, it is routed again. unanswered: asked again. expired: told unknown. busy: --forward-queue is full. away: that node does not answer. unanswered, expired, away: a node is gone.",
		byLabel("forwarded_total", "result")...)
}
