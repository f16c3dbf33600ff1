package boards

// shards is about shards and their owners.
func shards() Row {
	return Row{Title: "Shards and signer memory", Panels: []Panel{
		stat("Shards owned", "percentunit", 0, 0, share(sum(of("shards_owned")), highest(of("shards"))),
			"Shards that the nodes own, as far as each knows, of those of the database. Just below 100 % while shards move. Which node has which says gateway shard list."),
		stat("Shards without an owner", "short", 1, 0, highest(of("shards_unowned")),
			"Shards that no node owns by a lease that runs, on the node that sees most of them. They are taken within a second or two of the end of a dead node's lease. docs/runbooks.md, \"A shard has no owner\"."),
		stat("Longest time without an owner", "s", 3, 10, highest(of("shard_unowned_seconds")),
			"How long the shard has been without an owner that has been so for the longest, after the lease of the last one was over. Requests for its signers are told unavailable. docs/runbooks.md, \"A shard has no owner\"."),
		stat("Signer memory: signers used", "percentunit", 0.9, 0, highest(share(of("signers_remembered"), of("signers_remembered_max"))),
			"Signers that are remembered, of --max-signers, on the node where it is most. At 100 % those used least recently are forgotten, and read again with their next request: right, and slower. At 100 % signers are forgotten."),
		stat("Signer memory: bytes used", "percentunit", 0.9, 0, highest(share(of("signer_memory_bytes"), of("signer_memory_max_bytes"))),
			"The same of their bytes, of --max-signer-bytes. The bound that is reached first decides. At 100 % signers are forgotten."),
		stat("Unreadable signers", "short", 0, 1, highest(of("signers_unreadable")),
			"Signers in the whole store whose state cannot be read, as counted every 15 s. Each is stopped by itself; others are served. docs/runbooks.md, \"A signer's row cannot be read\"."),
		graph("Shards owned, by node", "short",
			"Shards that each node owns, and how many there are. Nodes that reach each other have an even share each, rounded up, within seconds after one came or went; a node in mode basic has none. gateway shard list shows which, and which are pinned. Uneven for long: pinned shards, or nodes that are not reached.",
			Query{sum(of("shards_owned"), instanceVariable), "{{instance}}"}, Query{highest(of("shards")), "all"}),
		graph("Shards taken, by node", "ops",
			"Shards that each node took: acquired, when nobody owned them, or their owner had given them up; takeover, when the lease of their owner was over. With all nodes up there is neither. takeover: a node died. acquired: shards were handed over.",
			Query{sum(each(among("lease_acquire_total", "result", "acquired|takeover")), instanceVariable, "result"), "{{result}} {{instance}}"}),
		graph("Shards without an owner, as each node sees them", "short",
			"Shards that no node owns by a lease that runs, as each node saw last. 0 where no node of mode worker-queue is live. A step: a node is gone. A plateau: nobody takes them.",
			byInstance(of("shards_unowned"))...),
		graph("Longest time without an owner, by node", "s",
			"How long each node has seen a shard without an owner, and how long a lease is. It begins when the lease is over. Above the lease: nobody can take the shard.",
			Query{highest(of("shard_unowned_seconds"), instanceVariable), "{{instance}}"}, Query{highest(of("lease_ttl_seconds")), "--lease-ttl"}),
		graph("Signer memory used of the bound, by node", "percentunit",
			"Signers that each node remembers, of --max-signers, and their bytes, of --max-signer-bytes. At 100 % signers are forgotten, and read again when they are used.",
			Query{ofBound("signers_remembered", "signers_remembered_max"), "count {{instance}}"},
			Query{ofBound("signer_memory_bytes", "signer_memory_max_bytes"), "bytes {{instance}}"}),
		graph("Signer memory, by node", "bytes",
			"Memory for the state of signers, about, and the bound of a node, --max-signer-bytes. A signer takes as much as it has nonces that are held or released. It grows with the same number of signers: each has more open holds.",
			Query{sum(of("signer_memory_bytes"), instanceVariable), "{{instance}}"}, Query{highest(of("signer_memory_max_bytes")), "bound of a node"}),
	}}
}

// ofBound is how much of its bound each node has of something.
func ofBound(part, whole string) string {
	return share(sum(of(part), instanceVariable), sum(of(whole), instanceVariable))
}
