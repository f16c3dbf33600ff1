package boards

// engine is about the performance engine: which engine serves, do logs work, do the rows follow,
// and what would a loss of Redis cost.
func engine() Board {
	return Board{
		File: "engine.json", UID: "noncegate-engine", Title: "Noncegate: the performance engine",
		Description: "Which engine serves, does Redis take records, do the rows of PostgreSQL follow, and what would a loss of Redis cost. Its rows are collapsed, because without --redis everything is 0. docs/engine.md says what the states are and what to do.",
		Rows:        []Row{engineState(), engineLogs(), shipping()},
	}
}

// orZero is 0 where nothing was observed.
func orZero(expr string) string { return "(" + expr + " >= 0) or vector(0)" }

func engineState() Row {
	return Row{Title: "State of the engine", Needs: "--redis", Panels: []Panel{
		stat("Engine degraded", "short", 0, 1, highest(of("engine_degraded")),
			"1 from when a node left the performance engine because of a fault until somebody switches. Not 0: gateway engine status has the reason."),
		stat("Shards with the performance engine", "short", 0, 0, highest(of("shards_logged")),
			"Shards that have the performance engine, as the node saw last that sees most of them. The others are answered by PostgreSQL."),
		stat("Logs lost", "short", 0, 1, sum(of("logs_lost")),
			"Logs that nodes declared lost since they started, with what was not shipped to the rows. docs/engine.md, \"Runbook: Redis is lost\". Not 0: nonces are in doubt."),
		stat("Failing logs", "short", 1, 0, sum(of("logs_failing")),
			"Logs that their nodes cannot use just now. After --redis-lost-after the shard goes back to the rows, or before to a node that reaches Redis. Not 0: look at Redis."),
		graph("Shards: performance, rehearsed, all", "short",
			"Shards that have the performance engine, those that have kept up with the rehearsal that runs, and all. Below all for long: one does not go up, or down.",
			Query{highest(of("shards_logged")), "performance"}, Query{highest(of("shards_rehearsed")), "rehearsed"}, Query{highest(of("shards")), "all"}),
		graph("Engine degraded, by node", "short",
			"1 while the state is DEGRADED, as each node knows it: the performance engine was left because of a fault. 1: the log and gateway engine status say why.", byInstance(of("engine_degraded"))...),
	}}
}

func engineLogs() Row {
	return Row{Title: "Logs in Redis", Needs: "--redis", Panels: []Panel{
		graph("Redis reached, by node", "short",
			"1 while a node reaches the Redis that was accepted. Shards that have a log are for nodes that do. 0: the node does not reach it, and its shards move.", byInstance(of("log_reached"))...),
		graph("Logs served, by node", "short",
			"Shards that have the performance engine, and the logs that each node serves. All together below the first line: a shard waits.",
			Query{highest(of("shards_logged")), "shards"}, Query{sum(of("logs_served"), instanceVariable), "{{instance}}"}),
		graph("Failing logs, by node", "short",
			"Logs that each node has and cannot use just now. At one node: its way to Redis. At all: Redis.", byInstance(of("logs_failing"))...),
		graph("Logs lost, by node", "short",
			"Logs that each node declared lost since it started. A step: Redis and the owner were lost together.", byInstance(of("logs_lost"))...),
	}}
}

func shipping() Row {
	return Row{Title: "Shipping to PostgreSQL", Needs: "--redis", Panels: []Panel{
		graph("Age of the oldest change not shipped, by node", "s",
			"For how long the change that waits for the longest has been in the log and not in the rows. Beyond --ship-sla hand-outs wait for it, unless PostgreSQL is away. It is what marks wait for. It rises by a second each second: nothing is shipped.",
			byInstance(of("log_behind_seconds"))...),
		graph("Changes not shipped, by node", "short",
			"Changes of signers that are in the log and not in the rows: what is lost when Redis and the owner are lost together. It grows: PostgreSQL is slower than the load.",
			byInstance(of("log_unshipped_changes"))...),
	}}
}
