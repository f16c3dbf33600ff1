//go:build unix

package torture

import "noncegate/test/lab/gateway"

// The files that plants of the performance engine are in.
const (
	logFile         = "nonce/service/log.go"
	logShipFile     = "nonce/service/log_ship.go"
	logShipperFile  = "nonce/service/log_shipper.go"
	redislogFile    = "nonce/redislog/log.go"
	redisAppendFile = "nonce/redislog/append.go"
	appendLua       = "nonce/redislog/lua/append.lua"
	enterLua        = "nonce/redislog/lua/enter.lua"
	shardLogFile    = "nonce/postgres/log.go"
	basicFile       = "nonce/service/basic.go"
	doubtFile       = "nonce/rules/doubt.go"
)

// enginePlants are the known-bad gateways of the performance engine. Each breaks one sentence
// of how a log is fenced, shipped, taken over, left or lost.
var enginePlants = []plant{
	{
		Name: "identity not compared",
		Patches: []gateway.Patch{
			{File: redisAppendFile, Old: "case c.server != f.Identity:", New: "case c.server != f.Identity && false:"},
			{File: redislogFile, Old: "if err == nil && is != accepted {", New: "if err == nil && is != accepted && false {"},
		},
		Faults: []string{"redis-failover-and-back"}, Engine: true,
	},
	{
		Name: "token not put into Redis first",
		Patches: []gateway.Patch{
			{File: enterLua, Old: "redis.call('SET', KEYS[1], after)", New: "if ARGV[2] == 'raise' then redis.call('SET', KEYS[1], after) end"},
			{File: appendLua,
				Old: "found == ARGV[4 * i - 3]",
				New: "found and string.match(found, ' %d+$') == string.match(ARGV[4 * i - 3], ' %d+$')"},
		},
		Faults: []string{"owner-without-postgres"}, Engine: true,
	},
	{
		Name:    "stream not read at a take-over",
		Patches: []gateway.Patch{{File: redislogFile, Old: "return f, all, l.same(", New: "return f, all[:0], l.same("}},
		Faults:  []string{"kill-while-rows-are-locked"}, Engine: true,
	},
	{
		Name:    "try not raised at a timeout",
		Patches: []gateway.Patch{{File: enterLua, Old: "math.max(tonumber(try), tonumber(ARGV[3]))", New: "tonumber(try)"}},
		Faults:  []string{"redis-late-scripts"}, Engine: true,
	},
	{
		Name:    "grant not checked on the reply",
		Patches: []gateway.Patch{{File: logFile, Old: "now.Before(lg.trust) && (u == nil", New: "(u == nil"}},
		Faults:  []string{"parted-for-long"}, Engine: true,
	},
	{
		Name:    "ceiling not reserved first",
		Patches: []gateway.Patch{{File: logFile, Old: "return sig.row.Ceiling >= next && ", New: "return true || sig.row.Ceiling >= next && "}},
		Faults:  []string{"all-lost-after-the-switch"}, Engine: true,
	},
	{
		Name:    "marks answered before shipping",
		Patches: []gateway.Patch{{File: logFile, Old: "t.op.Kind == nonce.KindStatus || w.early(", New: "t.op.Kind != nonce.KindAllocate || w.early("}},
		Faults:  []string{"all-lost-while-postgres-is-away"}, Engine: true,
	},
	{
		Name:    "a loss does not wait for grant and longest hold",
		Patches: []gateway.Patch{{File: shardLogFile, Old: "doubt_until = grant_until + longest_hold + $5", New: "doubt_until = store_millis() + 0 * $5"}},
		Faults:  []string{"parted-for-long"}, Engine: true,
		Args: []string{"--engine-grant=6s"}, // the old owner hands out beside the new one
	},
	{
		Name:    "what lived is not in doubt after a loss",
		Patches: []gateway.Patch{{File: doubtFile, Old: "max(e.Until, sh.DoubtUntil, 1)", New: "max(e.Until, 1)"}},
		Faults:  []string{"parted-for-long"}, Engine: true,
		Args: []string{"--engine-grant=6s"}, // the old owner hands out beside the new one
	},
	{
		Name:    "attempts not raised by the epoch",
		Patches: []gateway.Patch{{File: expiryFile, Old: "e.Attempt = d.afterLoss(e.Attempt)", New: "_ = d.afterLoss"}},
		Faults:  []string{"all-lost-while-postgres-is-away"}, Crowd: true, Engine: true,
	},
	{
		Name: "engine not compared by commits",
		Patches: []gateway.Patch{
			{File: shardStatementFile, Old: "s.fencing_token * 2 + s.performance::int AS belief", New: "s.fencing_token * 2 AS belief"},
			{File: shardStatementFile, Old: "return 2*t.Token + 1", New: "return 2 * t.Token"},
			{File: basicFile, Old: "if l.Shard.Performance {", New: "if l.Shard.Performance && false {"},
		},
		Engine: true,
	},
	{
		Name: "drain and switch in two statements",
		Patches: []gateway.Patch{{File: logShipFile,
			Old: "		s.what.Shards[0].Off = off\n",
			New: `		if off {
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
		Patches: []gateway.Patch{{File: logFile,
			Old: "		lg.unanswered = groups\n",
			New: `		lg.unanswered = groups
		for _, g := range groups {
			u, row := w.unship(g.sig), g.plan.Signer
			ctx, cancel := w.svc.timeout()
			_, _ = w.svc.store.Commit(ctx, w.svc.holder, []nonce.Write{{
				Name: g.name, Term: sh.shardTerm(), Generation: w.generation, Signer: row, Rise: row.Version - u.base.Version - 1, History: g.plan.History, Requests: g.plan.Requests,
			}})
			cancel()
		}
`}},
		Faults: []string{"redis-late-scripts"}, Engine: true,
	},
	{
		Name: "trimming before the rows have it",
		Patches: []gateway.Patch{
			{File: logShipperFile, Old: "if lg.shipped > lg.trimmed {", New: "if lg.fence.Head > lg.trimmed {"},
			{File: logShipperFile, Old: "f.Head = lg.shipped", New: "f.Head = lg.fence.Head"},
		},
		Faults: []string{"kill-while-rows-are-locked"}, Engine: true,
	},
	{
		Name: "a shipment that failed counts as done",
		Patches: []gateway.Patch{{File: logShipFile,
			Old: "		w.notShipped(s)",
			New: `		for i, sig := range s.signers {
			if sig.unshipped != nil && sig.shard.log != nil {
				w.inRow(sig, s.what.Writes[i].Signer, s.what.Writes[i].Term.Token)
			}
		}
		w.notShipped(s)`}},
		Faults: []string{"postgres-crash"}, Engine: true,
	},
}
