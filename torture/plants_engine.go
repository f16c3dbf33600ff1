//go:build unix

package torture

// EnginePlants are the known-bad gateways of the performance engine.
var EnginePlants = []Plant{
	{
		Name: "ceiling not reserved first",
		// Either of the two looks is enough where no floor is set.
		Patches: []Patch{
			{"nonce/moves.go", "return n == 0 || g.st.next+n <= g.st.standing.Ceiling && g.st.granted(now)", "return n == 0 || g.st.granted(now)"},
			{rulesFile, "if d.st.fast() && fromFree < count && d.change.Next", "if false && d.change.Next"},
		},
		Faults: []string{"all-lost-while-postgres-is-away"},
		Crowd:  true, Engine: true,
		Args: []string{"--engine-block-min=2", "--engine-block-max=4"},
	},
	{
		Name: "released nonces below the ceiling handed out after a loss",
		Patches: []Patch{
			{loadFile, "x.nonce >= greatest(s.floor, ` + doubtText + `)", "x.nonce >= greatest(s.floor, 0 * ` + doubtText + `)"},
		},
		Faults: []string{"redis-empty"}, Engine: true,
	},
	{
		Name:    "version not checked in the script",
		Patches: []Patch{{"nonce/redisstore/lua/commit.lua", "if not s or string.sub(s, 1, #want) ~= want then", "if not s or string.match(s, '^%d+ %d+ ') ~= string.match(want, '^%d+ %d+ ') then"}},
		// The counts and rows that a script compares beside it notice nearly all of what was
		// set back, so that a run seldom shows this one.
		Test: "TestARefusedCommitWritesNothing", In: "./nonce/redisstore",
	},
	{
		Name:    "identity not checked",
		Patches: []Patch{{"nonce/redisstore/batch.go", "a.server != (nonce.Identity{}) && believed != (nonce.Identity{}) && a.server != believed:", "a.server != (nonce.Identity{}) && believed != (nonce.Identity{}) && a.server != believed && false:"}},
		Faults:  []string{"redis-failover-and-back"}, Engine: true,
	},
	{
		Name:    "grant not checked again on the reply",
		Patches: []Patch{{"nonce/fast.go", "	if g.st.granted(at) {\n		return\n", "	if g.st.granted(at) || true {\n		return\n"}},
		// What is answered late was stamped before the grant's end, so its hold ends within
		// the doubt. Only a nonce that was marked in doubt a moment before would show it.
		Test: "TestAHandOutThatRedisAnswersAfterTheGrantIsUnknown", In: "./nonce",
	},
	{
		Name:    "attempts not raised by the epoch",
		Patches: []Patch{{rulesFile, "	first := FirstAttempt(d.change.Version)\n", "	first := int64(1)\n"}},
		Faults:  []string{"redis-empty"}, Engine: true,
	},
	{
		Name:    "mark answered before its flush",
		Patches: []Patch{{"nonce/answers.go", "	if op.Kind == KindAllocate && (op.Err != nil || ", "	if op.Kind != KindAllocate || (op.Err != nil || "}},
		Faults:  []string{"all-lost-while-postgres-is-away"}, Engine: true,
	},
	{
		Name:    "flush acknowledged before its commit",
		Patches: []Patch{{"flush/apply.go", "	case r.err != nil:\n		l.failed(ctx, s, r)\n		return\n", "	case r.err != nil:\n		s.settle(r.group.entries)\n		s.next(id)\n		l.w.hooks.Flushed(r.group.event.Signer, r.group.event.To)\n"}},
		Faults:  []string{"postgres-crash"}, Engine: true,
	},
	{
		Name: "pending entries not read again",
		Patches: []Patch{
			{"nonce/redisstore/stream.go", `pipe.XRangeN(ctx, s.streamKey(shard), "-", "+", int64(most))`, `pipe.XRangeN(ctx, s.streamKey(shard), beganText, "+", int64(most))`},
			{"nonce/redisstore/stream.go", "// ask runs commands on", "var beganText = strconv.FormatInt(time.Now().UnixMilli(), 10)\n\n// ask runs commands on"},
		},
		Faults: []string{"kill-while-rows-are-locked"}, Engine: true,
	},
	{
		Name:    "signer drained with events pending",
		Patches: []Patch{{"nonce/postgres/move.go", "where: ` AND s.version = w.version` + performanceText}.String() + `,\nu AS (\n  UPDATE signer_nonce_state s SET engine = 0,", "where: performanceText}.String() + `,\nu AS (\n  UPDATE signer_nonce_state s SET engine = 0,"}},
		Faults:  []string{"drain-while-rows-are-locked"}, Engine: true,
	},
	{
		Name: "served without its token in Redis first",
		Patches: []Patch{
			{"nonce/redisstore/lua/takeover.lua", "if token ~= wtoken then\n", "if false then\n"},
			{"nonce/redisstore/lua/commit.lua", "if not s or string.sub(s, 1, #want) ~= want then", "if not s or string.gsub(s, '^(%d+) %d+ (%d+) .*$', '%1 %2') ~= string.gsub(want, '^(%d+) %d+ (%d+) $', '%1 %2') then"},
		},
		Faults: []string{"redis-late-scripts"}, Crowd: true, Engine: true,
	},
}
