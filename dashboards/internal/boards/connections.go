package boards

// connections is about those who are connected, and what becomes of the slow
// ones.
func connections() Board {
	return Board{
		File: "connections.json", UID: "noncegate-connections", Title: "Noncegate: connections and backpressure",
		Description: "Who is connected, do they read, what happened to those who do not, and what it costs. Slow clients harm themselves only: the rows below say whether that holds.",
		Rows:        []Row{whoIsConnected(), whoIsLetIn(), doTheyRead(), whatOfTheSlow(), isTheWayOutWide(), whatDoesItCost()},
	}
}

func whoIsConnected() Row {
	return Row{"Who is connected?", []Panel{
		stat("Connections: near 100 % = 503 next", "percentunit", 0.8, 0.95,
			highest(of("connections")+" / "+of("connections_max")),
			"Open connections of the fullest node, of --max-connections."),
		stat("Not read: some = clients that do not read", "short", 1, 0, sum(of("connections_paused")),
			"Connections above --write-high-bytes whose requests wait in their own TCP window until they have read."),
		stat("Subscriptions: events are made for these", "short", 0, 0, sum(of("subscriptions")),
			"Open subscriptions of all chosen nodes. Without any, the post-DB stage has nothing to do."),
		stat("Fullest queue: at --write-max-bytes it is closed", "bytes", 65536, 524288, highest(of("outbound_largest_bytes")),
			"Bytes that wait for the client that has most. Orange and red are at --write-high-bytes and half of --write-max-bytes by default."),
		graph("Connections fall on one node = clients went elsewhere", "short",
			"Open WebSocket connections of each node.", byInstance(of("connections"))...),
		graph("Opened and closed both high = clients reconnect", "ops",
			"WebSocket connections that were accepted, and that ended.",
			Query{sum(each(of("connections_opened_total"))), "opened"}, Query{sum(each(of("connections_closed_total"))), "closed"}),
		graph("Why they end: lost = network; slow = does not read", "ops",
			"client: closed in order by the client. lost: broken. slow: kicked. idle: silent. restart, stopped: this node's end. unused: it asked for nothing. expired, revoked: its credential. unsupported, protocol, policy, too_large: a client that speaks wrongly. internal: a mistake of ours, report it.",
			byLabel("connections_closed_total", "reason")...),
		graph("Not let in: full = more nodes or --max-connections", "ops",
			"Clients refused at the WebSocket handshake. draining: the node is going away. origin: pages of other hosts. bad_request: no WebSocket client. broken: gone before the answer. unauthorized, throttled: no good credential. unchecked: it could not be checked. principal_full, address_full: as many connections as they may have. address_fast, address_waiting, waiting_full: sockets closed unread. node_secret, misdirected: other nodes that show another secret, or meant another node.",
			byLabel("upgrade_refused_total", "reason")...),
	}}
}

func doTheyRead() Row {
	return Row{"Do they read?", []Panel{
		graph("Waiting bytes grow = clients read slower than they ask", "bytes",
			"waiting: messages queued, encoded or being written. promised: room reserved for answers whose work is under way. Over all connections of all chosen nodes.",
			Query{sum(of("outbound_bytes")), "waiting"}, Query{sum(of("outbound_promised_bytes")), "promised"}),
		graph("One line far above the rest = one slow client there", "bytes",
			"Bytes that wait for the client that has most, of each node. It is closed above --write-max-bytes.",
			byInstance(of("outbound_largest_bytes"))...),
		graph("Messages grow without requests = events pile up", "short",
			"Messages queued or being written, and answers under way, of each node.", byInstance(of("outbound_messages"))...),
		graph("Not read now: requests wait in their own TCP window", "short",
			"Connections whose reads are paused because their clients do not read, of each node.", byInstance(of("connections_paused"))...),
	}}
}

func whatOfTheSlow() Row {
	return Row{"What happened to those who do not?", []Panel{
		graph("Write queue grows = clients read slowly", "s",
			"Encoded, until its write starts. Not the time of delivery: a write ends when the kernel has taken it.",
			percentiles("write_queue_seconds")...),
		graph("Dropped events: slow = the client; *_full = this node", "ops",
			"Events not delivered. slow: the client is above --write-high-bytes. no_room, messages: its queue is full. encode_full, postdb_full: ours are; postdb_full loses them for every subscriber.",
			byLabel("dropped_total", "reason")...),
		graph("Kicked: each reason is a bound that a client passed", "ops",
			"slow: above --write-high-bytes for --slow-after. hard_cap: above --write-max-bytes. too_old, write_timeout: it takes nothing. idle: nothing was heard of it, not a matter of reading.",
			byLabel("kicked_total", "reason")...),
		graph("server_busy at connection = one client asks too much", "reqps",
			"Requests told server_busy, by the stage that was full.", byLabel("rejected_total", "stage")...),
	}}
}

func isTheWayOutWide() Row {
	return Row{"Is the way out wide enough?", []Panel{
		graph("Encode queue grows = no processor is free", "s",
			"An answer's wait until its encoding starts. Raise --encode-workers, up to the number of processors.",
			percentiles("encode_queue_seconds")...),
		graph("Encode slow = large pages and batches", "s", "The encoding of one message.", percentiles("encode_seconds")...),
		graph("Post-DB queue grows = many subscribers", "s",
			"A commit's events, until they are handed to subscribers. Answers do not wait for it. Nothing without subscribers.",
			percentiles("postdb_queue_seconds")...),
		graph("Pool workers all at work = the pool is the limit", "short",
			"Workers of the encode and post-DB pools that are busy at the moment of the scrape, all chosen nodes together. Compare with --encode-workers and --postdb-workers.",
			Query{sum(of("encode_running")), "encode"}, Query{sum(of("postdb_running")), "post-DB"}),
	}}
}

func whatDoesItCost() Row {
	return Row{"What does it cost?", []Panel{
		memory(),
		graph("Memory per connection jumps = slow clients, or a leak", "bytes",
			"Resident memory of each node by open connections. It says nothing while there are few.",
			Query{of("process_resident_memory_bytes") + " / clamp_min(" + of("connections") + ", 1)", "{{instance}}"}),
		graph("Heap grows with the same connections = report it", "bytes",
			"Memory of the Go heap in use, of each node. It falls at each collection.", byInstance(of("go_memstats_heap_inuse_bytes"))...),
		graph("Goroutines: one for each connection; more = writes under way", "short",
			"Goroutines of each node. An idle connection has one.", byInstance(of("go_goroutines"))...),
		processor(), descriptors(),
	}}
}
