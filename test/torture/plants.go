//go:build unix

package torture

// Plant is a gateway that is known to be wrong. Runs with it are to notice.
type Plant struct {
	Name    string
	Patches []Patch
	Faults  []string // what brings it to light
	Crowd   bool     // it takes many clients at few signers
	Engine  bool     // it is of the performance engine
	Chain   bool     // it is about what a chain says
	Args    []string // with Engine: more flags of the nodes that have a Redis
}

// The files that plants are in.
const (
	shardStatementFile = "nonce/postgres/statement.go"
	shardCommitFile    = "nonce/postgres/commit.go"
	shardLoadFile      = "nonce/postgres/load.go"
	shardNodesFile     = "nonce/postgres/nodes.go"
	openFile           = "nonce/postgres/open.go"
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

// Plants are the known-bad gateways. Each breaks one sentence of
// how a commit is fenced, of how an unknown outcome is settled, or of what a client may be
// told.
var Plants = []Plant{
	{
		Name:    "version not compared",
		Patches: []Patch{{shardStatementFile, versionCompared, "s.signer = `+name+` AND `+w(\"not_before\")"}},
	},
	{
		Name: "token not compared",
		Patches: []Patch{
			{shardStatementFile, "w(\"belief\")+\" / 2\", \" AND (SELECT beliefs FROM mine)[\"+w(\"place\")+\"] = \"+w(\"belief\"), \" AND s.owner_node = $1 AND s.owner_incarnation = $2\"", "w(\"belief\")+\" / 2\", \"\", \"\""},
			{shardCommitFile, "case b == nil || form&partBasic == 0 && *b != belief(writes[i].Term) || form&partBasic != 0 && *b%2 != 0:", "case b == nil:"},
		},
		Faults: []string{"late-commits"},
		Crowd:  true,
	},
	{
		Name:    "shard not locked",
		Patches: []Patch{{shardStatementFile, " ORDER BY s.shard_id FOR ` + lock + `)", " ORDER BY s.shard_id` + strings.Repeat(\" \", 0*len(lock)) + `)"}},
		Faults:  []string{"late-commits-while-rows-are-locked"},
		Crowd:   true,
	},
	{
		Name:    "token not raised at acquire",
		Patches: []Patch{{shardNodesFile, "owner_incarnation = $3, fencing_token = s.fencing_token + 1\n", "owner_incarnation = $3, fencing_token = greatest(s.fencing_token, 1)\n"}},
		Faults:  []string{"pause"},
	},
	{
		Name:    "token not raised at release",
		Patches: []Patch{{shardNodesFile, "owner_incarnation = 0, fencing_token = s.fencing_token + 1 FROM mine m", "owner_incarnation = 0 FROM mine m"}},
		Faults:  []string{"move-shards"},
	},
	{
		Name: "load in the acquiring statement",
		Patches: []Patch{
			{serviceSettleFile, settleAcquires, ""},
			{serviceSettleFile, "	loaded, err := w.svc.load(needs)\n", "	loaded, err := w.svc.load(needs)\n" + settleAcquires + `	for i, g := range groups {
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
		Name:    "history written without the signer's update",
		Patches: []Patch{{shardStatementFile, "FROM written x, generate_series(` + wx(\"past_lo\")", "FROM " + allWrites + ", generate_series(` + wx(\"past_lo\")"}},
		Faults:  []string{"row-lock"},
	},
	{
		Name: "request ids written without the signer's update",
		Patches: []Patch{
			{shardStatementFile, idsWritten, "FROM " + allWrites + ", generate_series(`+wx(\"ask_lo\")+`, `+wx(\"ask_hi\")+` - 1) q WHERE q + 0 = q ON CONFLICT DO NOTHING)`)"},
		},
	},
	{
		Name: "memory followed before the result",
		Patches: []Patch{{serviceCommitFile, "	started := time.Now()\n	res, err := w.svc.store.Commit(", `	for _, g := range groups {
		if g.plan.Writes {
			w.set(g.sig, g.plan.Signer, g.write.Term.Token)
		}
	}
	started := time.Now()
	res, err := w.svc.store.Commit(`}},
	},
	{
		Name: "unknown outcome answered from a plain read",
		Patches: []Patch{
			{serviceSettleFile, settleAcquires, "	acquired := make([]had, len(shards))\n"},
			{serviceSettleFile, "case l.Err != nil || l.Shard.Token <= token:", "case l.Err != nil || l.Shard.Token < token:"},
		},
		Faults: []string{"late-commits-while-rows-are-locked"},
		Crowd:  true,
	},
	{
		Name:    "blind retry after an unknown commit",
		Patches: []Patch{{serviceCommitFile, "		return w.settle(groups, err)\n", "		for _, g := range groups {\n			w.releaseHolds(g)\n			g.unread()\n		}\n		return groups\n"}},
		Faults:  []string{"cut-reply"},
	},
	{
		Name:    "repeat or conflict answered from memory",
		Patches: []Patch{{serviceCommitFile, "		if res.Results[i] == nonce.Applied {\n", "		if res.Results[i] == nonce.Applied || g.write.Check {\n"}},
	},
	{
		Name: "request id taken as new",
		Patches: []Patch{
			{shardStatementFile, "WHERE known.signer_id = ` + signer", "WHERE false AND known.signer_id = ` + signer"},
			{shardStatementFile, idsWritten, idsWritten[:len(idsWritten)-len(")`)")] + " ON CONFLICT DO NOTHING)`)"},
		},
	},
	{
		Name: "expiry before the deadline",
		Patches: []Patch{
			{expiryFile, "e.Until+second > d.in.Now.Earliest", "e.Until-300 > d.in.Now.Earliest"},
			{expiryFile, "max(d.plan.NotBefore, e.Until+second)", "max(d.plan.NotBefore, e.Until-300)"},
		},
	},
	{
		Name: "expiry within the second behind the deadline",
		Patches: []Patch{
			{expiryFile, "e.Until+second > d.in.Now.Earliest", "e.Until+second-300 > d.in.Now.Earliest"},
			{expiryFile, "max(d.plan.NotBefore, e.Until+second)", "max(d.plan.NotBefore, e.Until+second-300)"},
		},
	},
	{
		Name:    "expiry by the node's idea of the store's clock",
		Patches: []Patch{{shardStatementFile, "`+w(\"version\")+` AND `+w(\"not_before\")+` <= (SELECT now FROM c)`+mine+", "`+w(\"version\")+mine+"}},
		Faults:  []string{"store-clock-back"},
	},
	{
		Name:    "attempt ignored",
		Patches: []Patch{{marksFile, "	case row.Attempt != op.Attempt:\n", "	case row.Attempt < 0:\n"}},
	},
	{
		Name:    "basic does not raise the version",
		Patches: []Patch{{shardStatementFile, "SET version = s.version + `+w(\"rise\")+`, fencing_token", "SET version = s.version + `+w(\"rise\")+` * `+strconv.Itoa(1-int(p&partBasic/partBasic))+`, fencing_token"}},
	},
	{
		Name: "basic reads before it locks, and does not compare the version",
		Patches: []Patch{
			{shardLoadFile, "	b.Queue(lockShardSigner, need.Signer)\n	loaded := s.queueLoad(b, []nonce.SignerNeed{need}) // later statements see what the locks waited for\n", "	loaded := s.queueLoad(b, []nonce.SignerNeed{need})\n	b.Queue(lockShardSigner, need.Signer)\n"},
			{shardStatementFile, versionCompared, "s.signer = `+name+` AND (s.version = `+w(\"version\")+` OR ` + strconv.FormatBool(p&partBasic != 0) + `) AND `+w(\"not_before\")"},
		},
	},
	{
		Name:    "basic writes the owner's token",
		Patches: []Patch{{shardStatementFile, "token, mine, owner = \"0\", ", "token, mine, owner = \"(SELECT beliefs FROM mine)[\"+w(\"place\")+\"] / 2\", "}},
		Faults:  []string{"backend"},
		Crowd:   true,
	},
	{
		Name: "answer before the commit",
		Patches: []Patch{
			{shardCommitFile, "	defer conn.Release()\n	epoch := ", `	release := conn.Release
	defer func() { release() }()
	begin := func() {
		conn.Exec(ctx, "ROLLBACK")
		conn.Exec(ctx, "BEGIN")
	}
	epoch := `},
			{shardCommitFile, "	out, err := s.commit(", "	begin()\n	out, err := s.commit("},
			{shardCommitFile, "		out, err = s.commit(", "		begin()\n		out, err = s.commit("},
			{shardCommitFile, "	case err != nil:\n		return nonce.Shipped{}, storeError(\"commit\", err)\n", "	case err != nil:\n		conn.Exec(context.Background(), \"ROLLBACK\")\n		return nonce.Shipped{}, storeError(\"commit\", err)\n"},
			{shardCommitFile, "		return nonce.Shipped{}, errSyncRep\n	}\n", `		return nonce.Shipped{}, errSyncRep
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
		Patches: []Patch{
			{openFile, `"synchronous_commit":                  "on",`, `"synchronous_commit":                  "off",`},
			{openFile, `if syncCommit == "off" || syncCommit == "local" {`, `if syncCommit == "never" {`},
		},
		Faults: []string{"postgres-crash"},
	},
	{
		Name:    "holds end as without a chain",
		Patches: []Patch{{expiryFile, "	case d.in.Chain == nil:\n		return because(nonce.Released, nonce.ReasonExpired)\n", "	case d != nil:\n		return because(nonce.Released, nonce.ReasonExpired)\n"}},
		Chain:   true,
	},
	{
		Name:    "unknown holds end without asking the nodes",
		Patches: []Patch{{expiryFile, "d.view.UnknownFor > 0 && d.in.Chain.Unseen(e.Nonce, e.Attempt):\n", "d.view.UnknownFor > 0:\n"}},
		Faults:  []string{"nodes-away"},
		Chain:   true,
	},
	{
		Name:    "released nonces are handed out although a block has used them",
		Patches: []Patch{{expiryFile, "e.Nonce < v.Mined && e.Status", "e.Nonce < 0 && e.Status"}},
		Chain:   true,
	},
}
