//go:build unix

package torture

import (
	"slices"

	"noncegate/test/lab/gateway"
)

// plant is a gateway that is known to be wrong. Runs with it are to notice.
type plant struct {
	Name    string
	Patches []gateway.Patch
	Faults  []string // what brings it to light
	Crowd   bool     // it takes many clients at few signers
	Engine  bool     // it is of the performance engine
	Chain   bool     // it is about what a chain says
	File    bool     // it is of SQLite
	Args    []string // with Engine: more flags of the nodes that have a Redis
}

// The files that plants are in.
const (
	shardStatementFile = "nonce/postgres/statement.go"
	shardCommitFile    = "nonce/postgres/commit.go"
	shardLoadFile      = "nonce/postgres/load.go"
	shardNodesFile     = "nonce/postgres/nodes.go"
	openFile           = "nonce/postgres/open.go"
	inspectFile        = "nonce/postgres/inspect.go"
	serviceCommitFile  = "nonce/service/commit.go"
	serviceSettleFile  = "nonce/service/settle.go"
	marksFile          = "nonce/rules/marks.go"
	expiryFile         = "nonce/rules/chain.go"
)

// Pieces that more than one plant replaces.
const (
	versionCompared = "s.signer = `+name+` AND s.version = `+w(\"version\")+` AND `+w(\"not_before\")"
	settleAcquires  = "	acquired := w.acquire(shards)\n"
	idsWritten      = "FROM written x, generate_series(`+wx(\"ask_lo\")+`, `+wx(\"ask_hi\")+` - 1) q WHERE q + 0 = q)`)"
	// allWrites are those of the batch, whatever became of them.
	allWrites = "(SELECT * FROM written UNION SELECT o, s.signer_id, s.shard_id `+all+`, signer s WHERE s.signer = `+name+`) x"
)

// storePlants are the known-bad gateways. Each breaks one sentence of
// how a commit is fenced, of how an unknown outcome is settled, or of what a client may be
// told.
var storePlants = []plant{
	{
		Name:    "version not compared",
		Patches: []gateway.Patch{{File: shardStatementFile, Old: versionCompared, New: "s.signer = `+name+` AND `+w(\"not_before\")"}},
	},
	{
		Name: "token not compared",
		Patches: []gateway.Patch{
			{File: shardStatementFile,
				Old: "w(\"belief\")+\" / 2\", \" AND (SELECT beliefs FROM mine)[\"+w(\"place\")+\"] = \"+w(\"belief\"), \" AND s.owner_node = $1 AND s.owner_incarnation = $2\"",
				New: "w(\"belief\")+\" / 2\", \"\", \"\""},
			{File: shardCommitFile,
				Old: "case b == nil || form&partBasic == 0 && *b != belief(writes[i].Term) || form&partBasic != 0 && *b%2 != 0:",
				New: "case b == nil:"},
		},
		Faults: []string{"late-commits"},
		Crowd:  true,
	},
	{
		Name: "shard not locked",
		Patches: []gateway.Patch{{File: shardStatementFile,
			Old: " ORDER BY s.shard_id FOR ` + lock + `)",
			New: " ORDER BY s.shard_id` + strings.Repeat(\" \", 0*len(lock)) + `)"}},
		Faults: []string{"late-commits-while-rows-are-locked"},
		Crowd:  true,
	},
	{
		Name: "token not raised at acquire",
		Patches: []gateway.Patch{{File: shardNodesFile,
			Old: "owner_incarnation = $3, fencing_token = s.fencing_token + 1\n",
			New: "owner_incarnation = $3, fencing_token = greatest(s.fencing_token, 1)\n"}},
		Faults: []string{"pause"},
	},
	{
		Name: "token not raised at release",
		Patches: []gateway.Patch{{File: shardNodesFile,
			Old: "owner_incarnation = 0, fencing_token = s.fencing_token + 1 FROM mine m",
			New: "owner_incarnation = 0 FROM mine m"}},
		Faults: []string{"move-shards"},
	},
	{
		Name: "load in the acquiring statement",
		Patches: []gateway.Patch{
			{File: serviceSettleFile, Old: settleAcquires, New: ""},
			{File: serviceSettleFile,
				Old: "	loaded, err := w.svc.load(needs)\n",
				New: "	loaded, err := w.svc.load(needs)\n" + settleAcquires + `	for i, g := range groups {
		if got := &acquired[slices.Index(shards, g.shard)]; err == nil && got.err == nil {
			loaded.Signers[i].Shard = got.row
		}
	}
`},
		},
		Faults: []string{"late-commits-while-rows-are-locked"},
		Crowd:  true,
	},
	{
		Name: "history written without the signer's update",
		Patches: []gateway.Patch{{File: shardStatementFile,
			Old: "FROM written x, generate_series(` + wx(\"past_lo\")",
			New: "FROM " + allWrites + ", generate_series(` + wx(\"past_lo\")"}},
		Faults: []string{"row-lock"},
	},
	{
		Name: "request ids written without the signer's update",
		Patches: []gateway.Patch{
			{File: shardStatementFile,
				Old: idsWritten,
				New: "FROM " + allWrites + ", generate_series(`+wx(\"ask_lo\")+`, `+wx(\"ask_hi\")+` - 1) q WHERE q + 0 = q ON CONFLICT DO NOTHING)`)"},
		},
	},
	{
		Name: "memory followed before the result",
		Patches: []gateway.Patch{{File: serviceCommitFile,
			Old: "	started := time.Now()\n	res, err := w.svc.store.Commit(",
			New: `	for _, g := range groups {
		if g.plan.Writes {
			w.set(g.sig, g.plan.Signer, g.write.Term.Token)
		}
	}
	started := time.Now()
	res, err := w.svc.store.Commit(`}},
	},
	{
		Name: "unknown outcome answered from a plain read",
		Patches: []gateway.Patch{
			{File: serviceSettleFile, Old: settleAcquires},
			{File: serviceSettleFile, Old: "if err != nil || acquired[slices.Index(shards, g.shard)].row.Token == 0 {", New: "if err != nil {"},
			{File: serviceSettleFile, Old: "case l.Err != nil || l.Shard.Token <= token:", New: "case l.Err != nil || l.Shard.Token < token:"},
		},
		Faults: []string{"late-commits-while-rows-are-locked"},
		Crowd:  true,
	},
	{
		Name: "blind retry after an unknown commit",
		Patches: []gateway.Patch{{File: serviceCommitFile,
			Old: "		return w.settle(groups, err)\n",
			New: "		for _, g := range groups {\n			w.releaseHolds(g)\n			g.unread()\n		}\n		return groups\n"}},
		Faults: []string{"cut-reply"},
	},
	{
		Name: "repeat or conflict answered from memory",
		Patches: []gateway.Patch{{File: serviceCommitFile,
			Old: "		if res.Results[i] == nonce.Applied {\n",
			New: "		if res.Results[i] == nonce.Applied || g.write.Check {\n"}},
	},
	{
		Name: "request id taken as new",
		Patches: []gateway.Patch{
			{File: shardStatementFile, Old: "WHERE known.signer_id = ` + signer", New: "WHERE false AND known.signer_id = ` + signer"},
			{File: shardStatementFile, Old: idsWritten, New: idsWritten[:len(idsWritten)-len(")`)")] + " ON CONFLICT DO NOTHING)`)"},
		},
	},
	{
		Name: "expiry before the deadline",
		Patches: []gateway.Patch{
			{File: expiryFile, Old: "e.Until+graceMs > d.in.Now.Earliest", New: "e.Until-300 > d.in.Now.Earliest"},
			{File: expiryFile, Old: "max(d.plan.NotBefore, e.Until+graceMs)", New: "max(d.plan.NotBefore, e.Until-300)"},
		},
	},
	{
		Name: "expiry within the second behind the deadline",
		Patches: []gateway.Patch{
			{File: expiryFile, Old: "e.Until+graceMs > d.in.Now.Earliest", New: "e.Until+graceMs-300 > d.in.Now.Earliest"},
			{File: expiryFile, Old: "max(d.plan.NotBefore, e.Until+graceMs)", New: "max(d.plan.NotBefore, e.Until+graceMs-300)"},
		},
	},
	{
		Name: "expiry by the node's idea of the store's clock",
		Patches: []gateway.Patch{{File: shardStatementFile,
			Old: "`+w(\"version\")+` AND `+w(\"not_before\")+` <= (SELECT now FROM c)`+mine+",
			New: "`+w(\"version\")+mine+"}},
		Faults: []string{"store-clock-back"},
	},
	{
		Name:    "attempt ignored",
		Patches: []gateway.Patch{{File: marksFile, Old: "	case row.Attempt != op.Attempt:\n", New: "	case row.Attempt < 0:\n"}},
	},
	{
		Name: "basic does not raise the version",
		Patches: []gateway.Patch{{File: shardStatementFile,
			Old: "SET version = s.version + `+w(\"rise\")+`, fencing_token",
			New: "SET version = s.version + `+w(\"rise\")+` * `+strconv.Itoa(1-int(p&partBasic/partBasic))+`, fencing_token"}},
	},
	{
		Name: "basic reads before it locks, and does not compare the version",
		Patches: []gateway.Patch{
			{File: shardLoadFile,
				Old: "	b.Queue(lockShardSigner, need.Signer)\n	loaded := s.queueLoad(b, []nonce.SignerNeed{need}) // later statements see what the locks waited for\n",
				New: "	loaded := s.queueLoad(b, []nonce.SignerNeed{need})\n	b.Queue(lockShardSigner, need.Signer)\n"},
			{File: shardStatementFile,
				Old: versionCompared,
				New: "s.signer = `+name+` AND (s.version = `+w(\"version\")+` OR ` + strconv.FormatBool(p&partBasic != 0) + `) AND `+w(\"not_before\")"},
		},
	},
	{
		Name: "basic writes the owner's token",
		Patches: []gateway.Patch{{File: shardStatementFile,
			Old: "token, mine, owner = \"0\", ",
			New: "token, mine, owner = \"(SELECT beliefs FROM mine)[\"+w(\"place\")+\"] / 2\", "}},
		Faults: []string{"backend"},
		Crowd:  true,
	},
	{
		Name: "answer before the commit",
		Patches: []gateway.Patch{
			{File: shardCommitFile,
				Old: "	defer conn.Release()\n	generation := ",
				New: `	release := conn.Release
	defer func() { release() }()
	begin := func() {
		conn.Exec(ctx, "ROLLBACK")
		conn.Exec(ctx, "BEGIN")
	}
	generation := `},
			{File: shardCommitFile, Old: "	out, err := s.commit(", New: "	begin()\n	out, err := s.commit("},
			{File: shardCommitFile, Old: "		out, err = s.commit(", New: "		begin()\n		out, err = s.commit("},
			{File: shardCommitFile,
				Old: "	case err != nil:\n		return nonce.Shipped{}, storeError(\"commit\", err)\n",
				New: "	case err != nil:\n		conn.Exec(context.Background(), \"ROLLBACK\")\n		return nonce.Shipped{}, storeError(\"commit\", err)\n"},
			{File: shardCommitFile,
				Old: "		return nonce.Shipped{}, errSyncRep\n	}\n",
				New: `		return nonce.Shipped{}, errSyncRep
	}
	release = func() {}
	go func() {
		time.Sleep(15 * time.Millisecond)
		conn.Exec(context.Background(), "COMMIT")
		conn.Release()
	}()
`},
		},
		Faults: []string{"backend"},
	},
	{
		Name: "commit not on disk when answered",
		Patches: []gateway.Patch{
			{File: openFile, Old: `"synchronous_commit":                  "on",`, New: `"synchronous_commit":                  "off",`},
			{File: inspectFile, Old: `if syncCommit == "off" || syncCommit == "local" {`, New: `if syncCommit == "never" {`},
		},
		Faults: []string{"postgres-crash"},
	},
	{
		Name: "holds end as without a chain",
		Patches: []gateway.Patch{{File: expiryFile,
			Old: "	case d.in.Chain == nil && row.Reason != nonce.ReasonUnknown:",
			New: "	case row.Reason != nonce.ReasonUnknown:"}},
		Chain: true,
	},
	{
		Name:    "unknown holds end without asking the nodes",
		Patches: []gateway.Patch{{File: expiryFile, Old: "d.view.UnknownFor > 0 && d.in.Chain.Unseen(e.Nonce, e.Attempt):\n", New: "d.view.UnknownFor > 0:\n"}},
		Faults:  []string{"nodes-away"},
		Chain:   true,
	},
	{
		Name:    "released nonces are handed out although a block has used them",
		Patches: []gateway.Patch{{File: expiryFile, Old: "e.Nonce < v.Mined && e.Status", New: "e.Nonce < 0 && e.Status"}},
		Chain:   true,
	},
}

// plants are all of them.
func plants() []plant { return slices.Concat(storePlants, enginePlants, filePlants) }

// axis is what the plant is tried on.
func (p *plant) axis() Axis {
	return Axes[slices.IndexFunc(Axes, func(a Axis) bool { return a.Engine == p.Engine && a.Chain == p.Chain && a.File == p.File })]
}
