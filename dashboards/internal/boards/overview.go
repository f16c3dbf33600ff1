package boards

// overview is what a person on call opens first. Its rows go from symptom to
// cause.
func overview() Board {
	return Board{
		File: "overview.json", UID: "noncegate-overview", Title: "Noncegate: overview",
		Description: "What a person on call opens first: are we serving, how fast, which stage queues, who is refused and why. docs/runbooks.md says what to do. The links at the top lead to connections, to the store, to chains and to the performance engine.",
		Rows:        []Row{serving(), stageTimes(), queues(), refusals(), nonces(), nodesAndChains(), submitGuard(), nodeResources()},
	}
}

// wrong is what should never happen, counted since the start of each node.
func wrong() string {
	return sum(of("store_went_back_total")) + " + " + sum(of("invariant_alarms_total")) + " + " +
		sum(of("panics_total")) + " + " + sum(of("undeclared_labels_total"))
}

func serving() Row {
	return Row{Title: "Requests and serving nodes", Panels: []Panel{
		stat("Nodes up", "short", 0, 0, "count("+of("connections_max")+")",
			"Nodes whose last scrape succeeded. One that cannot serve still counts here; it is in the next panel. Fewer than you run: one is down."),
		stat("Nodes not serving", "short", 0, 1,
			sum("clamp_max("+of("halted")+" + "+of("store_away")+", 1)"),
			"Nodes that stopped serving because the store went back or a later start of their node id exists, and nodes whose last heartbeat the store did not answer. docs/runbooks.md, \"When something breaks\"."),
		stat("Requests", "reqps", 0, 0, sum(each(of("requests_total"))),
			"Requests read by all chosen nodes, refused ones included. 0: nobody gets in."),
		stat("server_busy, share of requests", "percentunit", 0.01, 0.05,
			share(sum(each(of("rejected_total"))), sum(each(of("requests_total")))),
			"Requests refused because a bounded stage was full, of all requests. Nothing happened to them; from 5 % on clients feel it. Which stage: see \"Refusals, dropped events and closed clients\"."),
		stat("Connections used (fullest node)", "percentunit", 0.8, 0.95,
			highest(of("connections")+" / "+of("connections_max")),
			"Open connections of the fullest node, of --max-connections. Near 100 %: 503 is next."),
		linksDown(),
		stat("Alarms", "short", 0, 1, wrong(),
			"Since the start of the nodes: the store showed less than was seen, rows not as the rules left them, caught panics, undeclared labels. They go back to 0 with a restart only; do not restart a node because of them before you have read docs/runbooks.md, \"The database went back\". Not 0: open the runbook."),
		graph("Requests, by method", "reqps",
			"Requests by method, refused ones included. unknown: what is no method of the protocol, or no request at all. One falls alone: look at its clients.",
			byLabel("requests_total", "method")...),
		graph("Requests, commits and error replies", "ops",
			"Requests, and the transactions that answer them. Several requests share a commit; reads and refusals by the rules need none. They stop while requests go on: no store, or a halted node.",
			Query{sum(each(of("requests_total"))), "requests"}, Query{sum(each(of("commit_seconds_count"))), "commits"},
			Query{sum(each(of("refused_total"))), "error replies"}),
		graph("Connections, by node", "short",
			"Open WebSocket connections of each node. The bound is --max-connections. They fall on one node: its clients went elsewhere.", byInstance(of("connections"))...),
	}}
}

func stageTimes() Row {
	return Row{Title: "Time in each stage", Panels: []Panel{
		graph("Time in each stage (p99)", "s",
			"99th percentile of the time spent at each stage of a request, all chosen nodes together. Percentiles do not add up to a request's own. Estimated from buckets, which end at 10 s. The highest line is where to look.",
			Query{quantile(0.99, "worker_queue_seconds"), "worker queue"}, Query{quantile(0.99, "commit_seconds"), "commit"},
			Query{quantile(0.99, "encode_queue_seconds"), "encode queue"}, Query{quantile(0.99, "encode_seconds"), "encode"},
			Query{quantile(0.99, "write_queue_seconds"), "write queue"}, Query{quantile(0.99, "postdb_queue_seconds"), "post-DB queue"}),
		graph("Worker queue time (p50, p95, p99)", "s",
			"A request's wait for its worker; in mode basic, until its signer is free. It grows with the commit time: the store. Alone: a busy worker.", percentiles("worker_queue_seconds")...),
		graph("Commit time (p50, p95, p99)", "s",
			"One transaction of the store with its commit. Compare with the time of an fsync. Slow: the disk, or the network to the database.", percentiles("commit_seconds")...),
	}}
}

func queues() Row {
	var used, growth []Query
	for _, stage := range []string{"inflight", "node_inflight", "worker", "encode", "postdb", "guard"} {
		taken := of(stage + "_slots_used")
		used = append(used, Query{highest(taken + " / " + of(stage+"_slots")), stage})
		growth = append(growth, Query{highest("deriv(" + taken + "[$__rate_interval])"), stage})
	}
	return Row{Title: "Queues and batches", Panels: []Panel{
		graph("Slots used of the bound, by stage", "percentunit",
			"Slots taken, of those there are, on the fullest node. The bounds are --max-inflight-total (once for clients, once for other nodes: node_inflight), --worker-queue-capacity × workers, --encode-queue and --postdb-queue; of the guard 2048. At 100 % the stage refuses.", used...),
		graph("Growth of used slots, by stage (slots/s)", "short",
			"How many slots a second a stage fills up by, on the node where it does most. It is about 0 at any steady load. Above 0 for minutes: give it less load, or more of what it needs.", growth...),
		graph("Batch size (mean, p95)", "short",
			"Requests in one commit. It grows with the load: what arrives during a commit shares the next one. 1 under load: mode basic, or single signers.",
			Query{share(sum(each(of("commit_batch_size_sum"))), sum(each(of("commit_batch_size_count")))), "mean"},
			Query{quantile(0.95, "commit_batch_size"), "p95"}),
	}}
}

func refusals() Row {
	return Row{Title: "Refusals, dropped events and closed clients", Panels: []Panel{
		graph("Error replies, by reason", "reqps",
			"Replies that are errors, by data.reason; docs/errors.md has the list. invalid_params and method_not_found are a client's mistakes; conflict and not_found mean that client and gateway disagree about a nonce. unavailable: the store, or a node that is away.",
			byLabel("refused_total", "reason")...),
		graph("server_busy, by stage", "reqps",
			"Requests told server_busy. connection: one client has too much under way. inflight: all together have. worker, encode, postdb, guard: that stage is too slow for the load. forward: another node is. A burst is what the bounds are for.",
			byLabel("rejected_total", "stage")...),
		graph("Replies and commits of unknown outcome", "ops",
			"replies: requests told unavailable with outcome unknown. commits: transactions that ended without an answer of the store; most are settled by reading, and nobody is told. Clients must ask again with their request id.",
			Query{sum(each(of("unknown_outcomes_total"))), "replies"}, Query{sum(each(of("unknown_commits_total"))), "commits"}),
		graph("Refused upgrades, by reason", "ops",
			"Clients refused at the WebSocket handshake. origin: pages of other hosts. bad_request: no WebSocket client. broken: gone before the answer. node_secret, misdirected: other nodes that show another secret, or meant another node. full: more nodes, or a higher --max-connections.",
			byLabel("upgrade_refused_total", "reason")...),
		graph("Dropped events, by reason", "ops",
			"Events not delivered, each for one subscriber; postdb_full: for all of them. The next event says how many were missed. Answers are never dropped. Subscribers do not keep up.",
			byLabel("dropped_total", "reason")...),
		graph("Clients closed by the gateway, by reason", "ops",
			"Connections the gateway closed. See the dashboard of connections.", byLabel("kicked_total", "reason")...),
	}}
}

func nonces() Row {
	return Row{Title: "Ownership and nonces", Panels: []Panel{
		graph("Attempts to take a shard, by result", "ops",
			"Attempts to take a shard. held: another node has it; the request is forwarded there, or told not_owner. Takeovers with all nodes up: --lease-ttl is too short, or nodes were paused. error: the store did not say. More in the dashboard of the store.",
			byLabel("lease_acquire_total", "result")...),
		graph("Fence rejects, by op", "ops",
			"Operations refused because ownership was lost. Nothing happened to them. A few at a take-over are as it should be. A steady rate: two nodes fight over shards.",
			byLabel("fence_rejects_total", "op")...),
		graph("Expired holds", "ops",
			"Holds whose deadline passed without a mark. Their nonces are handed out again, or with --chain unknown first; each may be a transaction that is still on its way. Clients forget to mark, or need longer than a hold lasts.",
			Query{sum(each(of("holds_expired_total"))), "expired"}),
		holdsAndReleased(),
	}}
}

// nodesAndChains is what the overview says of the dashboards of the store and of chains.
func nodesAndChains() Row {
	return Row{Title: "Other nodes and chains", Needs: "several nodes or --chain", Panels: []Panel{
		forwarding(),
		graph("Gaps and unknown holds", "short",
			"Signers that a nonce blocks on their chain, unknown holds of chains, and pairs of an instance and a chain that has no node. 0 without --chain. More in the dashboard of chains.",
			Query{orZero(sum(of("chain_gaps"))), "gaps"}, Query{orZero(sum(of("chain_unknown_holds"))), "unknown holds"},
			Query{orZero(chainsWithoutNode()), "chains without a node"}),
	}}
}

func nodeResources() Row {
	return Row{Title: "Resources of each node", Panels: []Panel{
		processor(), memory(), descriptors(),
		graph("Uptime, by node", "s",
			"Time since the start of each node. All counters begin at 0 there. It falls to 0: the node was restarted.",
			Query{"time() - " + of("process_start_time_seconds"), "{{instance}}"}),
	}}
}

func processor() Panel {
	return graph("Processor used, by node", "percentunit",
		"Processor time of each node, of the processors the Go runtime uses. At 100 %: add nodes or processors.",
		Query{each(of("process_cpu_seconds_total")) + " / " + of("go_sched_gomaxprocs_threads"), "{{instance}}"})
}

func memory() Panel {
	return graph("Resident memory, by node", "bytes",
		"Resident memory of each node. Its bound when every client is slow is --max-connections × --write-max-bytes. It grows without connections: report it.",
		byInstance(of("process_resident_memory_bytes"))...)
}

func descriptors() Panel {
	return graph("File descriptors used, by node", "percentunit",
		"Open file descriptors of each node, of the most it may have. One for each connection. At 100 % there is no new connection.",
		Query{of("process_open_fds") + " / " + of("process_max_fds"), "{{instance}}"})
}
