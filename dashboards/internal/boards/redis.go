package boards

// redisEvents is about the way of events between nodes that have a Redis.
func redisEvents() Row {
	return Row{Title: "Events between nodes by Redis", Needs: "--redis", Panels: []Panel{
		stat("Nodes without their Redis", "short", 0, 1, sum(of("redis_down")),
			"Nodes with --redis whose events Redis does not take, or that do not get those of others. Nonces do not depend on it. docs/runbooks.md, \"Redis is away\". Not 0: look at Redis."),
		graph("Events published and received", "ops",
			"Events that Redis took, and events of other nodes that came by it. Each node gets only what its subscribers want, and each is sent once for all nodes. 0 without --redis. Apart: fewer subscribers, or a loss.",
			Query{sum(each(of("redis_events_published_total"))), "published"}, Query{sum(each(of("redis_events_received_total"))), "received"}),
		graph("Failed, dropped and missed events", "ops",
			"Events that Redis did not take, or did not say that it took; events that found no room while they waited; events that did not come, and one for each loss of unknown size. failed: Redis. dropped: more than it takes. missed: subscribers were told.",
			Query{sum(each(of("redis_events_failed_total"))), "failed"}, Query{sum(each(of("redis_events_dropped_total"))), "dropped"},
			Query{sum(each(of("redis_events_missed_total"))), "missed"}),
		graph("Events queued for Redis, by node", "short",
			"Events of each node that wait for Redis. At 8192 further ones are dropped. They grow: Redis is slow, or hangs.", byInstance(of("redis_queued_events"))...),
		graph("Silent nodes, as each node sees them", "short",
			"Nodes, live by the registry, of which Redis brings nothing although somebody subscribes. Not 0: a node has another Redis, or none.", byInstance(of("redis_nodes_silent"))...),
		graph("Foreign messages on Redis channels, by node", "ops",
			"Messages on the channels of the gateways that no gateway wrote. They are ignored. Not 0: somebody else writes to the gateways' channels.", byInstance(each(of("redis_messages_garbled_total")))...),
	}}
}
