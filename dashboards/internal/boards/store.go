package boards

// store is about who owns the signers, and whether the store does its part.
func store() Board {
	return Board{
		File: "store.json", UID: "noncegate-store", Title: "Noncegate: ownership and the store",
		Description: "Is the store there, is it fast, was anything left open, what is held, who owns the signers, who has the shards, do the nodes reach each other, and did the store go back. docs/runbooks.md, \"When something breaks\" and \"The database went back\", says what to do.",
		Rows:        []Row{isTheStoreThere(), isItFast(), wasAnythingLeftOpen(), whatIsHeld(), whoOwnsTheSigners(), whoHasTheShards(), doTheNodesReachEachOther(), doEventsComeByRedis(), doRowsComeAndGo(), didItGoBack()},
	}
}

func isTheStoreThere() Row {
	return Row{"Is the store there?", []Panel{
		stat("Nodes without a store: not 0 = look at the database", "short", 0, 1, sum(of("store_away")),
			"Nodes whose last heartbeat was not answered. They connect again by themselves. docs/runbooks.md, \"The store is away\"."),
		stat("Halted nodes: not 0 = read the runbook, do not restart", "short", 0, 1, sum(of("halted")),
			"Nodes that stopped serving because the store went back as a whole. docs/runbooks.md, \"The database went back\"."),
		stat("Stopped signers: not 0 = they need a safe floor", "short", 0, 1, sum(of("signers_stopped")),
			"Signers of which the store showed less than was seen. nonce_setFloor with a safe floor lets them serve again."),
		stat("Invariant alarms: not 0 = written by hand, or a bug", "short", 0, 1, sum(of("invariant_alarms_total")),
			"Rows that were not as the rules left them, since the start of the nodes."),
		graph("Failed heartbeats = the store is away, or slower than a heartbeat may be", "ops",
			"Heartbeats of the nodes, one each third of --lease-ttl.", byLabel("heartbeats_total", "result")...),
		graph("unavailable without failed heartbeats = single signers are stopped or locked", "reqps",
			"Error replies that tell of the store or of ownership.",
			Query{sum(each(with("refused_total", "reason", "unavailable"))), "unavailable"},
			Query{sum(each(with("refused_total", "reason", "fenced"))), "fenced"},
			Query{sum(each(with("refused_total", "reason", "not_owner"))), "not_owner"}),
	}}
}

func isItFast() Row {
	return Row{"Is it fast?", []Panel{
		graph("Commit slow = the disk, or the way to the database", "s",
			"One transaction of the store with its commit. Compare with the time of an fsync.", percentiles("commit_seconds")...),
		graph("Fewer commits, same requests = larger batches, good", "ops",
			"Transactions of each node.", Query{sum(each(of("commit_seconds_count")), instanceVariable), "{{instance}}"}),
		graph("Batch of 1 under load = basic mode, or single signers", "short",
			"Requests in one commit. It grows with the load: what arrives during a commit shares the next one. At most 1024.",
			Query{share(sum(each(of("commit_batch_size_sum"))), sum(each(of("commit_batch_size_count")))), "mean"},
			Query{quantile(0.5, "commit_batch_size"), "p50"}, Query{quantile(0.95, "commit_batch_size"), "p95"},
			Query{quantile(0.99, "commit_batch_size"), "p99"}),
		graph("Worker wait: with commit = store; alone = busy worker", "s",
			"A request's wait for its worker; in mode basic, for its signer's turn.", percentiles("worker_queue_seconds")...),
	}}
}

func wasAnythingLeftOpen() Row {
	return Row{"Was anything left open?", []Panel{
		graph("Commits without an answer = the network to the store", "ops",
			"Transactions whose connection broke, or whose time ran out, while they may have been committing. Their signers are acquired anew, and reading settles most.",
			byInstance(each(of("unknown_commits_total")))...),
		graph("Unknown outcomes told: clients must ask again with their request id", "ops",
			"Replies unavailable with outcome unknown.", byInstance(each(of("unknown_outcomes_total")))...),
		graph("Conflicts rise after unknown outcomes = clients ask again, and learn", "reqps",
			"Requests told conflict: what they ask for is not allowed in the present state, which the reply holds.",
			Query{sum(each(with("refused_total", "reason", "conflict"))), "conflict"}),
	}}
}

// whatIsHeld is what the store has open. Each node counts all of it, so the highest is
// that of the store.
func whatIsHeld() Row {
	return Row{"What is held and released?", []Panel{
		stat("Open holds: 100 K = that or more", "short", 0, 0, highest(of("open_holds")),
			"Holds in the whole store that are not ended, unknown ones included, as counted every 15 s. Counts end at 100,000."),
		stat("Unknown holds: many = clients die", "short", 1, 0, highest(of("unknown_holds")),
			"Those of which nobody knows whether they were used. gateway signer list --filter unknown, and docs/chain.md, \"Unknown holds\". 0 without --chain."),
		stat("Released: wait for the next client", "short", 0, 0, highest(of("released_nonces")),
			"Nonces in the whole store that were given back and not handed out again. With used ones above them they are a gap on the chain: gateway signer list --filter gap."),
		stat("Third attempts: not 0 = they fail", "short", 1, 0, highest(of("repeated_nonces")),
			"Nonces that are held or released with attempt 3 or higher: somebody's transactions fail, or are not marked. gateway signer list --filter repeated."),
		stat("Oldest overdue: minutes = look", "s", 30, 300, highest(of("oldest_overdue_hold_seconds")),
			"How long ago the first hold ended that nobody has ended yet; 0: none. Sweeps are paused, or no node can take the signer."),
		holdsAndReleased(),
		graph("Third attempts grow = transactions fail again and again", "short",
			"Nonces that are held or released with attempt 3 or higher.",
			Query{highest(of("repeated_nonces")), "third attempts"}),
		graph("Oldest overdue rises 1 s a second = nobody sweeps", "s",
			"How long ago the first hold ended that nobody has ended yet.",
			Query{highest(of("oldest_overdue_hold_seconds")), "oldest"}),
	}}
}

// holdsAndReleased is what is open in the whole store.
func holdsAndReleased() Panel {
	return graph("Open holds grow, same load = clients do not mark", "short",
		"Holds that are not ended, those of them that are unknown, and nonces that were given back, in the whole store, as counted every 15 s up to 100,000.",
		Query{highest(of("open_holds")), "open"}, Query{highest(of("unknown_holds")), "unknown"}, Query{highest(of("released_nonces")), "released"})
}

func whoOwnsTheSigners() Row {
	return Row{"Who owns the signers?", []Panel{
		graph("takeover = node away; acquired high = signers move", "ops",
			"Attempts to take a shard. held: another node has it; the request is forwarded there, or told not_owner. Takeovers with all nodes up: --lease-ttl is too short, or nodes were paused. error: the store did not say.",
			byLabel("lease_acquire_total", "result")...),
		graph("Late renewals everywhere = --lease-ttl is too short", "ops",
			"Writes that renewed the lease of their signer. late: it had ended by the node's own reckoning, and nobody had taken it. Usual for signers that are used seldom.",
			byLabel("lease_renew_total", "result")...),
		graph("Steady fence rejects = two nodes fight over signers", "ops",
			"Operations refused because ownership was lost. Nothing happened to them. A few at a take-over are as it should be.",
			byLabel("fence_rejects_total", "op")...),
		graph("Version conflicts = nodes in mode basic write to busy signers", "ops",
			"Commits of one signer's requests that the store refused because a node in mode basic had written meanwhile. They are read and planned anew: wasted work, no harm.",
			byInstance(each(of("version_conflicts_total")))...),
		graph("Remembered at the bound = --max-signers is too small", "short",
			"Signers whose state each node keeps between requests, those it served in the last minutes, and the bound. 0 in mode basic.",
			Query{sum(of("signers_remembered"), instanceVariable), "{{instance}}"},
			Query{highest(of("signers_remembered_max")), "bound of a node"}),
	}}
}

func doRowsComeAndGo() Row {
	return Row{"Do rows come and go?", []Panel{
		graph("Expired holds = clients forget to mark, or need longer", "ops",
			"Holds whose deadline passed without a mark. Their nonces are handed out again, or with --chain unknown first; each may be a transaction that is still on its way.",
			Query{sum(each(of("holds_expired_total"))), "expired"}),
		graph("Sweeps paused = the store's clock jumped", "short",
			"1 while a node ends no hold because the store's clock jumped by more than a second. It ends by itself after --max-hold.",
			byInstance(of("sweeps_paused"))...),
		graph("Pruned: 0 under load for long = pruning is stuck", "rowsps",
			"Consumed allocations deleted because they are older than --consumed-retention. 0 where that is 0, and until the first are old enough.",
			byInstance(each(of("pruned_total")))...),
	}}
}

func didItGoBack() Row {
	return Row{"Did it go back?", []Panel{
		graph("Any alarm: stop and read the runbook", "short",
			"Counted since the start of each node. went back: signers stopped because the store showed less than was seen. invariant: rows not as the rules left them. panics and undeclared labels: mistakes of the program, to be reported.",
			Query{sum(of("store_went_back_total"), instanceVariable), "went back {{instance}}"},
			Query{sum(of("invariant_alarms_total"), instanceVariable), "invariant {{instance}}"},
			Query{sum(of("panics_total"), instanceVariable), "panics {{instance}}"},
			Query{sum(of("undeclared_labels_total"), instanceVariable), "undeclared {{instance}}"}),
		graph("Stopped signers fall to 0 = every one of them has its floor", "short",
			"Signers of each node that wait for a safe floor. A restart forgets them, and with them what was seen: do not.",
			byInstance(of("signers_stopped"))...),
		graph("Uptime falls to 0 = the node was restarted", "s",
			"Time since the start of each node. All counters begin at 0 there, and what was seen of the signers is forgotten.",
			Query{"time() - " + of("process_start_time_seconds"), "{{instance}}"}),
	}}
}
