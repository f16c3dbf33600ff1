package boards

// engine is about the performance engine: which engine serves, does the store follow,
// is Redis fast, and what would a loss of it cost.
func engine() Board {
	return Board{
		File: "engine.json", UID: "noncegate-engine", Title: "Noncegate: the performance engine",
		Description: "Which engine serves, does PostgreSQL follow Redis, is Redis fast, and what would a loss of Redis cost. Everything is 0 without --redis. docs/engine.md says what the states are and what to do.",
		Rows:        []Row{whichEngineServes(), doesTheStoreFollow(), isRedisFast(), whatWouldALossCost()},
	}
}

// orZero is 0 where nothing was observed.
func orZero(expr string) string { return "(" + expr + " >= 0) or vector(0)" }

// calm are the percentiles of what may never happen.
func calm(metric string) []Query {
	return []Query{{orZero(quantile(0.5, metric)), "p50"}, {orZero(quantile(0.99, metric)), "p99"}}
}

func whichEngineServes() Row {
	return Row{"Which engine serves?", []Panel{
		stat("DEGRADED not 0 = read the reason: engine status", "short", 0, 1, highest(with("engine_state", "state", "DEGRADED")),
			"1 while signers return from Redis because of a trouble, and until it was observed for --engine-observe. gateway engine status says why."),
		stat("Signers that Redis serves", "short", 0, 0, highest(of("engine_signers")),
			"Signers in the performance engine, in the whole cluster. The others are served by PostgreSQL alone."),
		stat("In doubt: not 0 = Redis was lost, nonces wait", "short", 0, 1, highest(of("engine_signers_in_doubt")),
			"Signers of which nonces wait because somebody may hold them of whom PostgreSQL knows nothing. It ends by itself."),
		stat("Dead letters: not 0 = gateway engine replay", "short", 0, 1, highest(of("flush_dead_letters")),
			"Changes that PostgreSQL could never take. Their signers were declared lost. docs/engine.md, \"Alarms\"."),
		graph("One line at 1: the state of the cluster", "short",
			"The state as the nodes know it; two lines at 1 for a second while it changes.",
			Query{highest(of("engine_state"), "state"), "{{state}}"}),
		graph("Signers stay while it drains = unowned, or not flushed", "short",
			"Signers in the performance engine, and of those the ones that no node owns just now.",
			Query{highest(of("engine_signers")), "entered"}, Query{highest(of("engine_signers_unowned")), "unowned"}),
		graph("Moves without a switch = a loss, or a degradation", "ops",
			"Signers that moved to an engine.", byLabel("engine_moves_total", "to")...),
		graph("Degraded = the cluster left Redis, and why", "short",
			"Times that a node left the performance engine for all, since the nodes' start.",
			Query{sum(of("engine_degraded_total"), "reason"), "{{reason}}"}),
	}}
}

func doesTheStoreFollow() Row {
	return Row{"Does PostgreSQL follow?", []Panel{
		graph("Oldest rises by 1 s a second = the flush stands still", "s",
			"Age of the oldest change of Redis that PostgreSQL has not. Beyond --flush-sla hand-outs wait for it, unless PostgreSQL is away.",
			Query{highest(of("flush_oldest_seconds")), "oldest"}),
		graph("Waiting grows with the oldest = more than it can take", "short",
			"Changes of Redis that PostgreSQL has not.", Query{highest(of("flush_waiting_events")), "events"}),
		graph("Flush slow = the disk, or the way to PostgreSQL", "s",
			"One transaction of the flush with its commit.", calm("flush_seconds")...),
		graph("Rows a second: what is written to PostgreSQL", "ops",
			"Rows that the flush wrote. Changes of one signer that follow each other are merged.",
			Query{sum(each(of("flush_rows_total"))), "rows"}),
		graph("dead not 0 = alarm; over = of lost signers", "ops",
			"Changes that were settled. already: PostgreSQL had it, the flush was repeated. over: its signer was lost or left meanwhile.",
			byLabel("flush_events_total", "result")...),
		graph("refused, gap = events at fault; lost = another Redis", "ops",
			"Times that a shard was put off. away: PostgreSQL; redis: Redis; locked: somebody has the row.",
			byLabel("flush_retries_total", "reason")...),
		graph("Waiting answers grow = marks wait for the flush", "short",
			"Answers that are said once PostgreSQL has followed: marks, and beyond --flush-sla hand-outs too.",
			byInstance(of("engine_answers_waiting"))...),
		graph("Shards per node differ much = a node has just come", "short",
			"Flush shards of each node. All of them together are those of the cluster. unreadable: what a node leaves to others since Redis does not give it to it.",
			append(byInstance(of("flush_shards_held")), Query{sum(of("flush_shards_unreadable")), "unreadable"})...),
	}}
}

func isRedisFast() Row {
	return Row{"Is Redis fast?", []Panel{
		graph("Batches slow = Redis is busy, or the way to it", "s",
			"One batch of scripts, there and back. More than one in a hundred above --engine-script-limit ends the performance engine.",
			calm("engine_script_seconds")...),
		graph("Mirror late = DUAL_WRITE cannot keep up", "s",
			"From a commit of PostgreSQL until Redis had it too, in DUAL_WRITE.", calm("engine_mirror_seconds")...),
		graph("Troubles: what may end the performance engine", "ops",
			"redis: errors of Redis. loss: a signer was not there. different: a reconciliation. lag, slow and retries are judged by limits.",
			byLabel("engine_troubles_total", "reason")...),
		graph("Differences not 0 = copies are wrong", "short",
			"Signers of the last reconciliation of each node, and those whose copy in Redis was not what PostgreSQL had.",
			Query{sum(of("engine_reconcile_differences"), instanceVariable), "differ {{instance}}"},
			Query{sum(of("engine_reconcile_signers"), instanceVariable), "compared {{instance}}"}),
	}}
}

func whatWouldALossCost() Row {
	const grant, block = "engine_grant_left_seconds", "engine_block_left_nonces"
	return Row{"What would a loss of Redis cost?", []Panel{
		graph("Grant left falls = PostgreSQL does not extend it", "s",
			"How long signers could go on without PostgreSQL when they were handed out from. p1: all but one in a hundred have more.",
			Query{orZero(quantile(0.5, grant)), "p50"}, Query{orZero(quantile(0.01, grant)), "p1"}),
		graph("Block left falls = reserved too little, see block-max", "short",
			"Nonces that signers could still be handed out without PostgreSQL when they were handed out from.",
			Query{orZero(quantile(0.5, block)), "p50"}, Query{orZero(quantile(0.01, block)), "p1"}),
		graph("Lost = Redis did not have what it acknowledged", "short",
			"Signers that this cluster declared lost, since the nodes' start.",
			byInstance(of("engine_signers_lost_total"))...),
		graph("In doubt: how many signers still wait", "short",
			"Signers with nonces in doubt. They wait one grant, the longest hold and a margin.",
			Query{highest(of("engine_signers_in_doubt")), "signers"}),
	}}
}
