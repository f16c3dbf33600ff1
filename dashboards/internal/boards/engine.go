package boards

// engine is about the performance engine: which engine serves, do logs work, do the rows follow,
// and what would a loss of Redis cost.
func engine() Board {
	return Board{
		File: "engine.json", UID: "noncegate-engine", Title: "Noncegate: the performance engine",
		Description: "Which engine serves, does Redis take records, do the rows of PostgreSQL follow, and what would a loss of Redis cost. Everything is 0 without --redis. docs/engine.md says what the states are and what to do.",
		Rows:        []Row{whichEngineServes(), doLogsWork(), doTheRowsFollow()},
	}
}

// orZero is 0 where nothing was observed.
func orZero(expr string) string { return "(" + expr + " >= 0) or vector(0)" }

func whichEngineServes() Row {
	return Row{"Which engine serves?", []Panel{
		stat("DEGRADED not 0 = read the reason: engine status", "short", 0, 1, highest(of("engine_degraded")),
			"1 from when a node left the performance engine because of a trouble until somebody switches. gateway engine status says why."),
		stat("Shards that Redis answers for", "short", 0, 0, highest(of("shards_logged")),
			"Shards that have the performance engine, as the node saw last that sees most of them. The others are answered by PostgreSQL."),
		stat("Logs lost: not 0 = nonces are in doubt", "short", 0, 1, sum(of("logs_lost")),
			"Logs that nodes declared lost since they started, with what was not shipped to the rows. docs/engine.md, \"Runbook: Redis is lost\"."),
		stat("Logs that fail: not 0 = look at Redis", "short", 1, 0, sum(of("logs_failing")),
			"Logs that their nodes cannot use just now. After --redis-lost-after the shard goes back to the rows, or before to a node that reaches Redis."),
		graph("Below all for long = one does not go up, or down", "short",
			"Shards that have the performance engine, those that have kept up with the rehearsal that runs, and all.",
			Query{highest(of("shards_logged")), "performance"}, Query{highest(of("shards_rehearsed")), "rehearsed"}, Query{highest(of("shards")), "all"}),
		graph("1 for a while = the engine was left, see the log", "short",
			"1 while the state is DEGRADED, as each node knows it.", byInstance(of("engine_degraded"))...),
	}}
}

func doLogsWork() Row {
	return Row{"Do the logs in Redis work?", []Panel{
		graph("0 = the node does not reach Redis, its shards move", "short",
			"1 while a node reaches the Redis that was accepted. Shards that have a log are for nodes that do.", byInstance(of("log_reached"))...),
		graph("All together below the first = a shard waits", "short",
			"Shards that have the performance engine, and the logs that each node serves.",
			Query{highest(of("shards_logged")), "shards"}, Query{sum(of("logs_served"), instanceVariable), "{{instance}}"}),
		graph("Failing at one node = its way to Redis; at all = Redis", "short",
			"Logs that each node has and cannot use just now.", byInstance(of("logs_failing"))...),
		graph("A step = Redis and the owner were lost together", "short",
			"Logs that each node declared lost since it started.", byInstance(of("logs_lost"))...),
	}}
}

func doTheRowsFollow() Row {
	return Row{"Do the rows follow?", []Panel{
		graph("Rises by 1 s a second = nothing is shipped", "s",
			"For how long the change that waits for the longest has been in the log and not in the rows. Beyond --ship-sla hand-outs wait for it, unless PostgreSQL is away. It is what marks wait for.",
			byInstance(of("log_behind_seconds"))...),
		graph("Grows = PostgreSQL is slower than the load", "short",
			"Changes of signers that are in the log and not in the rows: what is lost when Redis and the owner are lost together.",
			byInstance(of("log_unshipped_changes"))...),
	}}
}
