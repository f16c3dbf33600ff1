package boards

// store is about who owns the signers, and whether the store does its part.
func store() Board {
	return Board{
		File: "store.json", UID: "noncegate-store", Title: "Noncegate: ownership and the store",
		Description: "Is the store there, is it fast, was anything left open, what is held, who owns the signers, who has the shards, do the nodes reach each other, and did the store go back. docs/runbooks.md, \"When something breaks\" and \"The database went back\", says what to do.",
		Rows:        []Row{storeHealth(), commitTimes(), unknownOutcomes(), holds(), ownership(), shards(), otherNodes(), redisEvents(), cleaning(), alarms()},
	}
}

func storeHealth() Row {
	return Row{Title: "Store health", Panels: []Panel{
		stat("Nodes without a store", "short", 0, 1, sum(of("store_away")),
			"Nodes whose last heartbeat was not answered. They connect again by themselves. docs/runbooks.md, \"The store is away\". Not 0: look at the database."),
		stat("Halted nodes", "short", 0, 1, sum(of("halted")),
			"Nodes that stopped serving because the store went back as a whole. docs/runbooks.md, \"The database went back\". Not 0: read the runbook, do not restart."),
		stat("Stopped signers", "short", 0, 1, sum(of("signers_stopped")),
			"Signers of which the store showed less than was seen. nonce_setFloor with a safe floor lets them serve again."),
		stat("Invariant alarms", "short", 0, 1, sum(of("invariant_alarms_total")),
			"Rows that were not as the rules left them, since the start of the nodes. Not 0: rows were written by hand, or a bug."),
		graph("Heartbeats, by result", "ops",
			"Heartbeats of the nodes, one each third of --lease-ttl. Failed ones: the store is away, or slower than a heartbeat may be.", byLabel("heartbeats_total", "result")...),
		graph("Error replies: unavailable, fenced, not_owner", "reqps",
			"Error replies that tell of the store or of ownership. unavailable without failed heartbeats: single signers are stopped or locked.",
			Query{sum(each(with("refused_total", "reason", "unavailable"))), "unavailable"},
			Query{sum(each(with("refused_total", "reason", "fenced"))), "fenced"},
			Query{sum(each(with("refused_total", "reason", "not_owner"))), "not_owner"}),
	}}
}

func commitTimes() Row {
	return Row{Title: "Commit times and batches", Panels: []Panel{
		graph("Commit time (p50, p95, p99)", "s",
			"One transaction of the store with its commit. Compare with the time of an fsync. Slow: the disk, or the network to the database.", percentiles("commit_seconds")...),
		graph("Commits, by node", "ops",
			"Transactions of each node. Fewer with the same requests: larger batches, which is good.", Query{sum(each(of("commit_seconds_count")), instanceVariable), "{{instance}}"}),
		graph("Batch size (mean, p50, p95, p99)", "short",
			"Requests in one commit. It grows with the load: what arrives during a commit shares the next one. At most 1024. 1 under load: mode basic, or single signers.",
			Query{share(sum(each(of("commit_batch_size_sum"))), sum(each(of("commit_batch_size_count")))), "mean"},
			Query{quantile(0.5, "commit_batch_size"), "p50"}, Query{quantile(0.95, "commit_batch_size"), "p95"},
			Query{quantile(0.99, "commit_batch_size"), "p99"}),
		graph("Worker queue time (p50, p95, p99)", "s",
			"A request's wait for its worker; in mode basic, until its signer is free. It grows with the commit time: the store. Alone: a busy worker.", percentiles("worker_queue_seconds")...),
	}}
}

func unknownOutcomes() Row {
	return Row{Title: "Unknown outcomes and conflicts", Panels: []Panel{
		graph("Commits of unknown outcome, by node", "ops",
			"Transactions whose connection broke, or whose time ran out, while they may have been committing. Their shards are acquired anew, and reading settles most. Usually the network to the store.",
			byInstance(each(of("unknown_commits_total")))...),
		graph("Replies of unknown outcome, by node", "ops",
			"Replies unavailable with outcome unknown. Clients must ask again with their request id.", byInstance(each(of("unknown_outcomes_total")))...),
		graph("Conflicts", "reqps",
			"Requests told conflict: what they ask for is not allowed in the present state, which the reply holds. They rise after unknown outcomes: clients ask again, and are told.",
			Query{sum(each(with("refused_total", "reason", "conflict"))), "conflict"}),
	}}
}

// holds is what the store has open. Each node counts all of it, so the highest is
// that of the store.
func holds() Row {
	return Row{Title: "Holds and released nonces", Panels: []Panel{
		stat("Open holds", "short", 0, 0, highest(of("open_holds")),
			"Holds in the whole store that are not ended, unknown ones included, as counted every 15 s. Counts end at 100,000."),
		stat("Unknown holds", "short", 1, 0, highest(of("unknown_holds")),
			"Those of which nobody knows whether they were used. gateway signer list --filter unknown, and docs/chain.md, \"Unknown holds\". 0 without --chain."),
		stat("Released nonces", "short", 0, 0, highest(of("released_nonces")),
			"Nonces in the whole store that were given back and not handed out again. With used ones above them they are a gap on the chain: gateway signer list --filter gap."),
		stat("Nonces with three attempts or more", "short", 1, 0, highest(of("repeated_nonces")),
			"Nonces that are held or released with attempt 3 or higher: somebody's transactions fail, or are not marked. gateway signer list --filter repeated."),
		stat("Oldest overdue hold", "s", 30, 300, highest(of("oldest_overdue_hold_seconds")),
			"How long ago the first hold ended that nobody has ended yet; 0: none. Sweeps are paused, or no node can take the signer."),
		holdsAndReleased(),
		graph("Nonces with three attempts or more", "short",
			"Nonces that are held or released with attempt 3 or higher. They grow: transactions fail again and again.",
			Query{highest(of("repeated_nonces")), "third attempts"}),
		graph("Oldest overdue hold", "s",
			"How long ago the first hold ended that nobody has ended yet. It rises by a second each second: nobody sweeps.",
			Query{highest(of("oldest_overdue_hold_seconds")), "oldest"}),
	}}
}

// holdsAndReleased is what is open in the whole store.
func holdsAndReleased() Panel {
	return graph("Open holds and released nonces", "short",
		"Holds that are not ended, those of them that are unknown, and nonces that were given back, in the whole store, as counted every 15 s up to 100,000. They grow with the same load: clients do not mark.",
		Query{highest(of("open_holds")), "open"}, Query{highest(of("unknown_holds")), "unknown"}, Query{highest(of("released_nonces")), "released"})
}

func ownership() Row {
	return Row{Title: "Ownership of signers", Panels: []Panel{
		graph("Attempts to take a shard, by result", "ops",
			"Attempts to take a shard. held: another node has it; the request is forwarded there, or told not_owner. Takeovers with all nodes up: --lease-ttl is too short, or nodes were paused. error: the store did not say.",
			byLabel("lease_acquire_total", "result")...),
		graph("Lease renewals, by result", "ops",
			"Heartbeats that renewed the lease of their node, which holds for all its shards. late: the lease had ended before. Late ones at every node: --lease-ttl is too short, or the store is slow.",
			byLabel("lease_renew_total", "result")...),
		graph("Fence rejects, by op", "ops",
			"Operations refused because ownership was lost. Nothing happened to them. A few at a take-over are as it should be. A steady rate: two nodes fight over shards.",
			byLabel("fence_rejects_total", "op")...),
		graph("Version conflicts, by node", "ops",
			"Commits of one signer's requests that the store refused because a node in mode basic had written meanwhile. They are read and planned anew: wasted work, no harm. Nodes in mode basic write to busy signers.",
			byInstance(each(of("version_conflicts_total")))...),
		graph("Signers remembered, by node", "short",
			"Signers whose state each node keeps between requests, those it served in the last minutes, and the bound. 0 in mode basic. At the bound: --max-signers is too small.",
			Query{sum(of("signers_remembered"), instanceVariable), "{{instance}}"},
			Query{highest(of("signers_remembered_max")), "bound of a node"}),
	}}
}

func cleaning() Row {
	return Row{Title: "Expiry and pruning", Panels: []Panel{
		graph("Expired holds", "ops",
			"Holds whose deadline passed without a mark. Their nonces are handed out again, or with --chain unknown first; each may be a transaction that is still on its way. Clients forget to mark, or need longer than a hold lasts.",
			Query{sum(each(of("holds_expired_total"))), "expired"}),
		graph("Sweeps paused, by node", "short",
			"1 while a node ends no hold because the store's clock jumped by more than a second. It ends by itself after --max-hold.",
			byInstance(of("sweeps_paused"))...),
		graph("Pruned history, by node", "rowsps",
			"Consumed allocations deleted because they are older than --consumed-retention. 0 where that is 0, and until the first are old enough. 0 under load for long: pruning is stuck.",
			byInstance(each(of("pruned_total")))...),
	}}
}

func alarms() Row {
	return Row{Title: "Alarms and restarts", Panels: []Panel{
		graph("Alarms", "short",
			"Counted since the start of each node. went back: signers stopped because the store showed less than was seen. invariant: rows not as the rules left them. panics and undeclared labels: mistakes of the program, to be reported. Any of them: read the runbook before anything else.",
			Query{sum(of("store_went_back_total"), instanceVariable), "went back {{instance}}"},
			Query{sum(of("invariant_alarms_total"), instanceVariable), "invariant {{instance}}"},
			Query{sum(of("panics_total"), instanceVariable), "panics {{instance}}"},
			Query{sum(of("undeclared_labels_total"), instanceVariable), "undeclared {{instance}}"}),
		graph("Stopped signers, by node", "short",
			"Signers of each node that wait for a safe floor. A restart forgets them, and with them what was seen: do not.",
			byInstance(of("signers_stopped"))...),
		graph("Uptime, by node", "s",
			"Time since the start of each node. All counters begin at 0 there, and what was seen of the signers is forgotten. It falls to 0: the node was restarted.",
			Query{"time() - " + of("process_start_time_seconds"), "{{instance}}"}),
	}}
}
