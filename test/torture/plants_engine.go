//go:build unix

package torture

// The files that plants of the performance engine are in.
const (
	logFile         = "nonce/service/log.go"
	logShipFile     = "nonce/service/log_ship.go"
	redislogFile    = "nonce/redislog/log.go"
	redisAppendFile = "nonce/redislog/append.go"
	appendLua       = "nonce/redislog/lua/append.lua"
	enterLua        = "nonce/redislog/lua/enter.lua"
	shardLogFile    = "nonce/postgres/log.go"
	basicFile       = "nonce/service/basic.go"
	doubtFile       = "nonce/rules/doubt.go"
)

// EnginePlants are the known-bad gateways of the performance engine. Each breaks one sentence
// of how a log is fenced, shipped, taken over, left or lost.
var EnginePlants = []Plant{
	{
		Name: "identity not compared",
		Patches: []Patch{
			{redisAppendFile, "case is != f.Identity:", "case is != f.Identity && false:"},
			{redislogFile, "if err == nil && is != accepted {", "if err == nil && is != accepted && false {"},
		},
		Faults: []string{"redis-failover-and-back"}, Engine: true,
	},
	{
		Name: "token not put into Redis first",
		Patches: []Patch{
			{enterLua, "redis.call('SET', KEYS[1], after)", "if ARGV[2] == 'raise' then redis.call('SET', KEYS[1], after) end"},
			{appendLua, "found == ARGV[4 * i - 3]", "found and string.match(found, ' %d+$') == string.match(ARGV[4 * i - 3], ' %d+$')"},
		},
		Faults: []string{"owner-without-postgres"}, Engine: true,
	},
	{
		Name:    "stream not read at a take-over",
		Patches: []Patch{{redislogFile, "return f, all, l.same(", "return f, all[:0], l.same("}},
		Faults:  []string{"kill-while-rows-are-locked"}, Engine: true,
	},
	{
		Name:    "try not raised at a timeout",
		Patches: []Patch{{enterLua, "tonumber(try) + 1", "tonumber(try) + (ARGV[2] == 'enter' and 1 or 0)"}},
		Faults:  []string{"redis-late-scripts"}, Engine: true,
	},
	{
		Name:    "grant not checked on the reply",
		Patches: []Patch{{logFile, "now.Before(lg.trust) && (u == nil", "(u == nil"}},
		Faults:  []string{"parted-for-long"}, Engine: true,
	},
	{
		Name:    "ceiling not reserved first",
		Patches: []Patch{{logFile, "return sig.row.Ceiling >= next && ", "return true || sig.row.Ceiling >= next && "}},
		Faults:  []string{"all-lost-after-the-switch"}, Engine: true,
	},
	{
		Name:    "marks answered before shipping",
		Patches: []Patch{{logFile, "t.op.Kind == nonce.KindStatus || w.early(", "t.op.Kind != nonce.KindAllocate || w.early("}},
		Faults:  []string{"all-lost-while-postgres-is-away"}, Engine: true,
	},
	{
		Name:    "a loss does not wait for grant and longest hold",
		Patches: []Patch{{shardLogFile, "doubt_until = grant_until + longest_hold + $5", "doubt_until = store_millis() + 0 * $5"}},
		Faults:  []string{"parted-for-long"}, Engine: true,
		Args: []string{"--engine-grant=6s"}, // the old owner hands out beside the new one
	},
	{
		Name:    "what lived is not in doubt after a loss",
		Patches: []Patch{{doubtFile, "max(e.Until, sh.DoubtUntil, 1)", "max(e.Until, 1)"}},
		Faults:  []string{"parted-for-long"}, Engine: true,
		Args: []string{"--engine-grant=6s"}, // the old owner hands out beside the new one
	},
	{
		Name:    "attempts not raised by the epoch",
		Patches: []Patch{{expiryFile, "max(e.Attempt, d.firstAttempt())", "max(e.Attempt, 0*d.firstAttempt())"}},
		Faults:  []string{"all-lost-while-postgres-is-away"}, Crowd: true, Engine: true,
	},
	{
		Name: "engine not compared by commits",
		Patches: []Patch{
			{shardStatementFile, "s.fencing_token * 2 + s.performance::int AS belief", "s.fencing_token * 2 AS belief"},
			{shardStatementFile, "return 2*t.Token + 1", "return 2 * t.Token"},
			{basicFile, "if l.Shard.Performance {", "if l.Shard.Performance && false {"},
		},
		Engine: true,
	},
	{
		Name: "drain and switch in two statements",
		Patches: []Patch{{logShipFile, "		s.what.Shards[0].Off = off\n", `		if off {
			first := *s
			first.what.Shards = slices.Clone(s.what.Shards)
			ctx, done := w.svc.timeout()
			first.out, first.err = w.svc.cfg.Log.Store.Ship(ctx, w.svc.holder, first.what)
			done()
			w.shipped(&first)
			s.what.Writes, s.signers = nil, nil
		}
		s.what.Shards[0].Off = off
`}},
		Faults: []string{"drain-while-rows-are-locked"}, Engine: true,
	},
	{
		Name: "shipping of what Redis had not confirmed",
		Patches: []Patch{{logFile, "		lg.unanswered = groups\n", `		lg.unanswered = groups
		for _, g := range groups {
			u, row := w.unship(g.sig), g.plan.Signer
			ctx, cancel := w.svc.timeout()
			_, _ = w.svc.store.Commit(ctx, w.svc.holder, []nonce.Write{{
				Name: g.name, Term: sh.shardTerm(), Epoch: w.epoch, Signer: row, Rise: row.Version - u.base.Version - 1, History: g.plan.History, Requests: g.plan.Requests,
			}})
			cancel()
		}
`}},
		Faults: []string{"redis-late-scripts"}, Engine: true,
	},
	{
		Name: "trimming before the rows have it",
		Patches: []Patch{
			{logShipFile, "if lg.shipped > lg.trimmed {", "if lg.fence.Head > lg.trimmed {"},
			{logShipFile, "f.Head = lg.shipped", "f.Head = lg.fence.Head"},
		},
		Faults: []string{"kill-while-rows-are-locked"}, Engine: true,
	},
	{
		Name: "a shipment that failed counts as done",
		Patches: []Patch{{logShipFile, "		w.svc.log.Warn(\"what the log has was not shipped;", `		for i, sig := range s.signers {
			if sig.unshipped != nil && sig.shard.log != nil {
				w.inRow(sig, s.what.Writes[i].Signer, s.what.Writes[i].Term.Token)
			}
		}
		w.svc.log.Warn("what the log has was not shipped;`}},
		Faults: []string{"postgres-crash"}, Engine: true,
	},
}
