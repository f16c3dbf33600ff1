package boards

// connections is about those who are connected, and what becomes of the slow
// ones.
func connections() Board {
	return Board{
		File: "connections.json", UID: "noncegate-connections", Title: "Noncegate: connections and backpressure",
		Description: "Who is connected, do they read, what happened to those who do not, and what it costs. Slow clients cost others no reply, no order and no memory: the rows say whether that holds.",
		Rows:        []Row{connected(), logins(), outbound(), slowClients(), pools(), resources()},
	}
}

func connected() Row {
	return Row{Title: "Connections", Panels: []Panel{
		stat("Connections used (fullest node)", "percentunit", 0.8, 0.95,
			highest(of("connections")+" / "+of("connections_max")),
			"Open connections of the fullest node, of --max-connections. Near 100 %: 503 is next."),
		stat("Paused connections", "short", 1, 0, sum(of("connections_paused")),
			"Connections above --write-high-bytes whose requests wait in their own TCP window until they have read."),
		stat("Subscriptions", "short", 0, 0, sum(of("subscriptions")),
			"Open subscriptions of all chosen nodes, for which events are made. Without any, the post-DB stage has nothing to do."),
		stat("Largest outbound queue", "bytes", 65536, 524288, highest(of("outbound_largest_bytes")),
			"Bytes that wait for the client that has most. Orange and red are at --write-high-bytes and half of --write-max-bytes by default. At --write-max-bytes the client is closed."),
		graph("Connections, by node", "short",
			"Open WebSocket connections of each node. They fall on one node: its clients went elsewhere.", byInstance(of("connections"))...),
		graph("Connections opened and closed", "ops",
			"WebSocket connections that were accepted, and that ended. Both are high: clients reconnect.",
			Query{sum(each(of("connections_opened_total"))), "opened"}, Query{sum(each(of("connections_closed_total"))), "closed"}),
		graph("Closed connections, by reason", "ops",
			"client: closed in order by the client. lost: broken. slow: kicked. idle: silent. restart, stopped: this node's end. unused: it asked for nothing. expired, revoked: its credential. events_lost: its subscription lost events for good. unsupported, protocol, policy, too_large: a client that speaks wrongly. internal: a mistake of ours, report it.",
			byLabel("connections_closed_total", "reason")...),
		graph("Refused upgrades, by reason", "ops",
			"Clients refused at the WebSocket handshake. draining: the node is going away. origin: pages of other hosts. bad_request: no WebSocket client. broken: gone before the answer. unauthorized, throttled: no good credential. unchecked: it could not be checked. principal_full, address_full: as many connections as they may have. address_fast, address_waiting, waiting_full: sockets closed unread. node_secret, misdirected: other nodes that show another secret, or meant another node. full: more nodes, or a higher --max-connections.",
			byLabel("upgrade_refused_total", "reason")...),
	}}
}

func outbound() Row {
	return Row{Title: "Outbound queues", Panels: []Panel{
		graph("Outbound bytes", "bytes",
			"waiting: messages queued, encoded or being written. promised: room reserved for answers whose work is under way. Over all connections of all chosen nodes. They grow: clients read more slowly than they ask.",
			Query{sum(of("outbound_bytes")), "waiting"}, Query{sum(of("outbound_promised_bytes")), "promised"}),
		graph("Largest outbound queue, by node", "bytes",
			"Bytes that wait for the client that has most, of each node. It is closed above --write-max-bytes. One line far above the others: one slow client there.",
			byInstance(of("outbound_largest_bytes"))...),
		graph("Outbound messages, by node", "short",
			"Messages queued or being written, and answers under way, of each node. They grow without requests: events pile up.", byInstance(of("outbound_messages"))...),
		graph("Paused connections, by node", "short",
			"Connections whose reads are paused because their clients do not read, of each node.", byInstance(of("connections_paused"))...),
	}}
}

func slowClients() Row {
	return Row{Title: "Slow clients", Panels: []Panel{
		graph("Write queue time (p50, p95, p99)", "s",
			"Encoded, until its write starts. Not the time of delivery: a write ends when the kernel has taken it. It grows: clients read slowly.",
			percentiles("write_queue_seconds")...),
		graph("Dropped events, by reason", "ops",
			"Events not delivered. slow: the client is above --write-high-bytes. no_room, messages: its queue is full. encode_full, postdb_full: ours are; postdb_full loses them for every subscriber.",
			byLabel("dropped_total", "reason")...),
		graph("Clients closed by the gateway, by reason", "ops",
			"slow: above --write-high-bytes for --slow-after. hard_cap: above --write-max-bytes. too_old, write_timeout: it takes nothing. idle: nothing was heard of it, not a matter of reading.",
			byLabel("kicked_total", "reason")...),
		graph("server_busy, by stage", "reqps",
			"Requests told server_busy, by the stage that was full. connection: one client asks too much.", byLabel("rejected_total", "stage")...),
	}}
}

func pools() Row {
	return Row{Title: "Encode and post-DB pools", Panels: []Panel{
		graph("Encode queue time (p50, p95, p99)", "s",
			"An answer's wait until its encoding starts. Raise --encode-workers, up to the number of processors. It grows: no processor is free.",
			percentiles("encode_queue_seconds")...),
		graph("Encode time (p50, p95, p99)", "s", "The encoding of one message. Slow: large pages and batches.", percentiles("encode_seconds")...),
		graph("Post-DB queue time (p50, p95, p99)", "s",
			"A commit's events, until they are handed to subscribers. Answers do not wait for it. Nothing without subscribers. It grows: many subscribers.",
			percentiles("postdb_queue_seconds")...),
		graph("Busy pool workers, by pool", "short",
			"Workers of the encode and post-DB pools that are busy at the moment of the scrape, all chosen nodes together. Compare with --encode-workers and --postdb-workers. All of them: the pool is the limit.",
			Query{sum(of("encode_running")), "encode"}, Query{sum(of("postdb_running")), "post-DB"}),
	}}
}

func resources() Row {
	return Row{Title: "Memory, goroutines and processors", Panels: []Panel{
		memory(),
		graph("Resident memory per connection, by node", "bytes",
			"Resident memory of each node by open connections. It says nothing while there are few. It jumps: slow clients, or a leak.",
			Query{of("process_resident_memory_bytes") + " / clamp_min(" + of("connections") + ", 1)", "{{instance}}"}),
		graph("Go heap, by node", "bytes",
			"Memory of the Go heap in use, of each node. It falls at each collection. It grows with the same connections: report it.", byInstance(of("go_memstats_heap_inuse_bytes"))...),
		graph("Goroutines, by node", "short",
			"Goroutines of each node. An idle connection has one. One for each connection; more: writes under way.", byInstance(of("go_goroutines"))...),
		processor(), descriptors(),
	}}
}
