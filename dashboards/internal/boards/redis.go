package boards

// doEventsComeByRedis is about the way of events between nodes that have a Redis.
func doEventsComeByRedis() Row {
	return Row{"Do events come by Redis?", []Panel{
		stat("Nodes without their Redis: not 0 = look at it", "short", 0, 1, sum(of("redis_down")),
			"Nodes with --redis whose events Redis does not take, or that do not get those of others. Nonces do not depend on it. docs/runbooks.md, \"Redis is away\"."),
		graph("Published and received apart = fewer subscribers, or a loss", "ops",
			"Events that Redis took, and events of other nodes that came by it. Each node gets only what its subscribers want, and each is sent once for all nodes. 0 without --redis.",
			Query{sum(each(of("redis_events_published_total"))), "published"}, Query{sum(each(of("redis_events_received_total"))), "received"}),
		graph("Failed = Redis; dropped = more than it takes; missed = told", "ops",
			"Events that Redis did not take, or did not say that it took; events that found no room while they waited; events that did not come, and one for each loss of unknown size.",
			Query{sum(each(of("redis_events_failed_total"))), "failed"}, Query{sum(each(of("redis_events_dropped_total"))), "dropped"},
			Query{sum(each(of("redis_events_missed_total"))), "missed"}),
		graph("Waiting events grow = Redis is slow, or hangs", "short",
			"Events of each node that wait for Redis. At 8192 further ones are dropped.", byInstance(of("redis_queued_events"))...),
		graph("Silent not 0 = a node with another Redis, or none", "short",
			"Nodes, live by the registry, of which Redis brings nothing although somebody subscribes.", byInstance(of("redis_nodes_silent"))...),
		graph("Garbled not 0 = somebody else writes to our channels", "ops",
			"Messages on the channels of the gateways that no gateway wrote. They are ignored.", byInstance(each(of("redis_messages_garbled_total")))...),
	}}
}
