package boards

// doTheNodesReachEachOther is about the links between nodes and what travels on
// them.
func doTheNodesReachEachOther() Row {
	return Row{"Do the nodes reach each other?", []Panel{
		linksDown(),
		stat("Nodes: fewer than you run = one is gone", "short", 0, 0, "min("+of("nodes_live")+")",
			"Nodes that are live by the registry, as the node sees it that sees fewest. On SQLite there is one."),
		stat("Forwarded: many = clients at the wrong node", "percentunit", 0, 0,
			share(sum(each(with("forwarded_total", "result", "answered"))), sum(each(of("requests_total")))),
			"Requests that another node answered, of all requests. A request that is forwarded is read by two nodes and counts twice there, so it is a half at most. Each costs one more way between nodes; package client finds the owner by itself only with --forward=off."),
		stat("Fullest from nodes: at 100 % server_busy", "percentunit", 0.5, 0.9,
			highest(of("node_inflight_places_used")+" / "+of("node_inflight_places")),
			"Requests of other nodes that are not answered yet, on the node that has most of its places taken. There are as many as --max-inflight-total, beside those of clients; one other node may have a quarter."),
		graph("Lines apart = nodes disagree who is there", "short",
			"Nodes that are live by the registry, as each node read it last. One that cannot read it goes by its last list.",
			byInstance(of("nodes_live"))...),
		graph("unreachable not 0 = --advertise-url, secret, network", "short",
			"Links that each node has to others, and other nodes, live by the registry, that it tried to reach and cannot. docs/runbooks.md, \"A node is not reached\".",
			Query{sum(of("peers_linked"), instanceVariable), "linked {{instance}}"},
			Query{sum(of("peers_unreachable"), instanceVariable), "unreachable {{instance}}"}),
		forwarding(),
		graph("Nodes refused: not_owner, draining = signers move", "ops",
			"Error replies to other nodes. With not_owner, fenced and draining these route the request again, and no client hears of it; the others are passed on.",
			byLabel("node_refused_total", "reason")...),
		graph("Forwarding slow with fast commits = network, or a full node", "s",
			"From sending a request to the node that owns its signer until its answer, the commit there included.",
			percentiles("forward_seconds")...),
		graph("Under way at other nodes: at --forward-queue it is busy", "short",
			"Requests sent, or about to be, and not answered, over all other nodes together. --forward-queue bounds those at one of them.",
			byInstance(of("forward_under_way"))...),
		graph("Places for other nodes taken: 100 % = refused, stage inflight", "percentunit",
			"Requests of other nodes that are not answered yet, of the places for them on each node.",
			Query{sum(of("node_inflight_places_used"), instanceVariable) + " / " + sum(of("node_inflight_places"), instanceVariable), "{{instance}}"}),
	}}
}

// linksDown is the number that a person on call wants of the links.
func linksDown() Panel {
	return stat("Links down: not 0 = runbook", "short", 0, 1, sum(of("peers_unreachable")),
		"Pairs of nodes of which one cannot reach the other, though it is live by the registry. A signer that is in use at the one is unavailable through the other. docs/runbooks.md, \"A node is not reached\".")
}

// forwarding is what became of requests for signers of other nodes.
func forwarding() Panel {
	return graph("Forwarded: doubtful, expired, away = a node is gone", "ops",
		"Requests that were to go to another node. bounced: the signer had moved, it is routed again. doubtful: sent and not answered, asked again. expired: told unknown. busy: --forward-queue is full. away: that node does not answer.",
		byLabel("forwarded_total", "result")...)
}
