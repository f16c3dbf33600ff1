//go:build unix

package torture

// Plant is a gateway that is known to be wrong. Runs with it are to notice; or, where
// what is wrong takes a moment that no run can arrange, a test of a package.
type Plant struct {
	Name    string
	Patches []Patch
	Faults  []string // what brings it to light
	Crowd   bool     // it takes many clients at few signers
	Engine  bool     // it is of the performance engine
	Chain   bool     // it is about what a chain says
	Args    []string // with Engine: more flags of the nodes that have a Redis
	Test    string   // "": runs are to notice; or the test of package In that is
	In      string
}

// The files that plants are in.
const (
	statementFile = "nonce/postgres/statement.go"
	runFile       = "nonce/postgres/statement_run.go"
	commitFile    = "nonce/postgres/commit.go"
	loadFile      = "nonce/postgres/load.go"
	lockedFile    = "nonce/postgres/locked.go"
	openFile      = "nonce/postgres/open.go"
	rulesFile     = "nonce/rules.go"
	roundFile     = "nonce/round.go"
	roundsFile    = "nonce/commit.go"
	settleFile    = "nonce/settle.go"
)

// Pieces of statements that more than one plant replaces.
const (
	versionOfRuns    = ` AND s.version = ($5::bigint[])[o+3]`
	ownerOfRuns      = ` AND s.fencing_token = ($5::bigint[])[o+2] AND s.owner_node = c.owner AND s.owner_incarnation = c.incarnation`
	ownerOfSigners   = "const ownerText = ` AND s.fencing_token = w.token AND s.owner_node = c.owner AND s.owner_incarnation = c.incarnation`"
	versionOfSigners = `WHERE s.signer_id = w.id AND s.version = w.version`
	loadedSigner     = "		t.Signer, t.Acquired, t.TookOverFrom = s.Signer, s.Acquired, s.TookOverFrom\n"
	keepRows         = loadedSigner + "		t.Released, t.ReleasedMore, t.Due, t.Rows, t.Requests = s.Released, s.ReleasedMore, s.Due, s.Rows, s.Requests\n"
	signersFirst     = "	b.Queue(loadSigners, l.signers).Query(l.scanSigners)\n	if len(l.freeOrds) > 0 {\n"
	rowsLast         = "		b.Queue(loadRows, l.nonceOrds, l.nonceSigners, l.nonces).Query(l.scanRows)\n	}\n"
)

// Plants are the known-bad gateways. Each breaks one rule of how the signer's row
// fences, or of what a client may be told.
var Plants = []Plant{
	{
		Name: "token compared on the allocation's row only",
		Patches: []Patch{
			{runFile, versionOfRuns, ``},
			{runFile, ownerOfRuns, ``},
			{statementFile, ownerOfSigners, "const ownerText = ``"},
			{statementFile, versionOfSigners, `WHERE s.signer_id = w.id`},
			{statementFile, `AND (x.status <> 1 OR a.status = 2 OR `, `AND (a.fencing_token <= x.token OR `},
		},
		Faults: []string{"pause"},
	},
	{
		Name: "version not compared",
		Patches: []Patch{
			{runFile, versionOfRuns, ``},
			{statementFile, versionOfSigners, `WHERE s.signer_id = w.id`},
		},
		Faults: []string{"row-lock"},
	},
	{
		Name:    "token not raised on acquire",
		Patches: []Patch{{loadFile, `SET fencing_token = s.fencing_token + 1, owner_node = $2`, `SET fencing_token = greatest(s.fencing_token, 1), owner_node = $2`}},
		Faults:  []string{"pause", "kill"},
	},
	{
		Name: "acquire and load with one snapshot",
		Patches: []Patch{
			{loadFile, "	b := &pgx.Batch{}\n	b.Queue(createSigners, signers)\n", "	b := &pgx.Batch{}\n	l := queueRows(b, needs, snaps)\n	b.Queue(createSigners, signers)\n"},
			{loadFile, "	queueLoad(b, needs, snaps)\n	if err := conn.SendBatch(ctx, b).Close(); err != nil {\n		return nil, storeError(\"acquire\", err)", "	b.Queue(loadSigners, l.signers).Query(l.scanSigners)\n	if err := conn.SendBatch(ctx, b).Close(); err != nil {\n		return nil, storeError(\"acquire\", err)"},
			{loadFile, loadedSigner, keepRows},
			{loadFile, "	l := newLoading(needs, snaps)\n" + signersFirst, "	l := newLoading(needs, snaps)\n	b.Queue(loadSigners, l.signers).Query(l.scanSigners)\n	l.queue(b)\n}\n\nfunc queueRows(b *pgx.Batch, needs []nonce.Need, snaps []nonce.Snapshot) *loading {\n	l := newLoading(needs, snaps)\n	l.queue(b)\n	return l\n}\n\nfunc (l *loading) queue(b *pgx.Batch) {\n	if len(l.freeOrds) > 0 {\n"},
		},
		Faults: []string{"cut-reply", "late-commit"},
		Crowd:  true,
	},
	{
		Name: "answer before commit",
		Patches: []Patch{
			{commitFile, "	defer conn.Release()\n	if len(changes) > 0 &&", "	release := conn.Release\n	defer func() { release() }()\n	begin := func() {\n		conn.Exec(ctx, \"ROLLBACK\")\n		conn.Exec(ctx, \"BEGIN\")\n	}\n	if len(changes) > 0 &&"},
			{commitFile, "	res, err := e.execute(", "	begin()\n	res, err := e.execute("},
			{commitFile, "		res, err = e.execute(", "		begin()\n		res, err = e.execute("},
			{commitFile, "	if err != nil {\n		return nonce.CommitResult{}, storeError(\"commit\", err)\n	}\n", "	if err != nil {\n		conn.Exec(context.Background(), \"ROLLBACK\")\n		return nonce.CommitResult{}, storeError(\"commit\", err)\n	}\n	release = func() {}\n	go func() {\n		time.Sleep(15 * time.Millisecond)\n		conn.Exec(context.Background(), \"COMMIT\")\n		conn.Release()\n	}()\n	return res, nil\n"},
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
		Name:    "blind retry after an unknown commit",
		Patches: []Patch{{roundsFile, "	return sh.settle(groups, err)\n", "	return groups\n"}},
		Faults:  []string{"cut-reply"},
	},
	{
		Name: "plain read after an unknown commit",
		Patches: []Patch{
			{settleFile, "	snaps, started, err := sh.tryAcquire(groups, needs)\n", "	started := time.Now()\n	read, err := sh.svc.load(needs)\n	snaps := make([]taken, len(read))\n	for i := range read {\n		read[i].Acquired = true\n		snaps[i].Snapshot = read[i]\n	}\n"},
			{roundFile, "st.wentBack(s, st.term.Token+1)", "st.wentBack(s, st.term.Token)"},
		},
		Faults: []string{"late-commit", "late-commit", "late-commit"},
		Crowd:  true,
	},
	{
		Name: "later statements not bound to the row the update returned",
		Patches: []Patch{
			{
				runFile,
				"  SELECT u.signer_id, ` + choose(p&partOne != 0, \"u.first\", \"n\") + `, 1, 1, u.token, u.held_until, u.now, u.now` + column + `\n  FROM u` + choose(p&partOne != 0, \"\", \", generate_series(u.first, u.first + u.count - 1) n\") + `)`",
				"  SELECT ($5::bigint[])[o+1], n, 1, 1, ($5::bigint[])[o+2], c.now + ($5::bigint[])[o+6] * interval '1 microsecond', c.now, c.now` + column[:0] + choose(p&partHolder != 0, \", NULL::bigint\", \"\") + `\n  FROM c, generate_series(0, cardinality($5::bigint[]) - 1, ` + runWidth(p) + `) o, LATERAL generate_series(($5::bigint[])[o+4], ($5::bigint[])[o+4] + ($5::bigint[])[o+5] - 1) n WHERE o + 0 = o)`",
			},
		},
		Faults: []string{"pause"},
	},
	{
		Name:    "attempt ignored in marks",
		Patches: []Patch{{rulesFile, "	case row.Attempt != op.Attempt:\n", "	case row.Attempt < 0:\n"}},
	},
	{
		Name: "reload of the allocations before the row",
		Patches: []Patch{
			{loadFile, signersFirst, "	if len(l.freeOrds) > 0 {\n"},
			{loadFile, rowsLast, rowsLast + "	b.Queue(loadSigners, l.signers).Query(l.scanSigners)\n"},
			{loadFile, loadedSigner, keepRows},
		},
		Faults: []string{"cut-reply", "row-lock"},
		Crowd:  true,
	},
	{
		Name:    "memory changed before the commit's result",
		Patches: []Patch{{roundsFile, "	res, started, err := sh.tryCommit(groups, changes)\n", "	for _, g := range groups {\n		g.st.next, g.st.released = g.draft.change.Next, g.draft.released\n	}\n	res, started, err := sh.tryCommit(groups, changes)\n"}},
		Faults:  []string{"row-lock"},
	},
	{
		Name: "request id trusted from memory",
		Patches: []Patch{
			{statementFile, "generate_series(u.req_lo, u.req_hi - 1) AS q FROM u) r)`", "generate_series(u.req_lo, u.req_hi - 1) AS q FROM u) r ON CONFLICT DO NOTHING)`"},
		},
	},
	{
		Name:    "what writes nothing is answered from memory",
		Patches: []Patch{{roundsFile, "		if !res.Applied[i] {\n", "		if !res.Applied[i] && !changes[i].Check {\n"}},
		Faults:  []string{"pause"},
	},
	{
		Name:    "mode basic reads before it locks",
		Patches: []Patch{{lockedFile, "	b.Queue(`SELECT 1 FROM signer_nonce_state WHERE signer = $1 FOR NO KEY UPDATE`, need.Signer)\n	queueLoad(b, needs, snaps)\n", "	queueLoad(b, needs, snaps)\n	b.Queue(`SELECT 1 FROM signer_nonce_state WHERE signer = $1 FOR NO KEY UPDATE`, need.Signer)\n"}},
	},
	{
		Name:    "holds end a little early",
		Patches: []Patch{{loadFile, "held_until <= (SELECT clock_timestamp())", "held_until <= (SELECT clock_timestamp() + interval '300 milliseconds')"}},
	},
}
