//go:build unix

package torture

import "noncegate/test/lab/gateway"

// The files that plants of SQLite are in.
const (
	storeFile   = "nonce/sqlite/sqlite.go"
	sessionFile = "nonce/sqlite/session.go"
	fileFile    = "nonce/sqlite/file.go"
)

// filePlants are the known-bad gateways on a file. Each also has what every such gateway has.
var filePlants = []plant{
	{
		Name:    "SQLite with synchronous=OFF",
		Patches: []gateway.Patch{{File: storeFile, Old: "synchronous(FULL)", New: "synchronous(OFF)"}},
		Faults:  []string{"file-kill", "power-loss"}, File: true,
	},
	{
		Name:    "SQLite with synchronous=NORMAL",
		Patches: []gateway.Patch{{File: storeFile, Old: "synchronous(FULL)", New: "synchronous(NORMAL)"}},
		Faults:  []string{"file-kill", "power-loss"}, File: true,
	},
	{
		Name: "answered before the commit",
		Patches: []gateway.Patch{
			{File: sessionFile,
				Old: "	defer func() { s.writer <- c }()\n	ctx = ",
				New: "	defer func() {\n		if c != nil {\n			s.writer <- c\n		}\n	}()\n	ctx = "},
			{File: sessionFile,
				Old: "		return refusal(s.named(err))\n	}\n",
				New: `		return refusal(s.named(err))
	}
	if late := c; true {
		open, c = false, nil
		go func() {
			_, _ = late.exec(ctx, "COMMIT")
			s.writer <- late
		}()
		return nil
	}
`},
		},
		Faults: []string{"file-kill", "file-kill", "power-loss"}, File: true,
	},
	{
		Name:    "rollback journal in memory",
		Patches: []gateway.Patch{{File: storeFile, Old: "journal_mode(WAL)", New: "journal_mode(MEMORY)"}},
		Faults:  []string{"file-kill", "file-kill", "power-loss"}, File: true,
	},
	{
		Name: "a COMMIT that failed is answered as done",
		Patches: []gateway.Patch{
			{File: sessionFile, Old: "		return &nonce.StoreError{Outcome: nonce.Unknown, Err: err}", New: "		return nil"},
		},
		Faults: []string{"full-disk"}, File: true,
	},
	{
		Name:    "a COMMIT that failed is answered as not done",
		Patches: []gateway.Patch{{File: sessionFile, Old: "Outcome: nonce.Unknown", New: "Outcome: nonce.Aborted"}},
		Faults:  []string{"failed-sync", "failed-sync", "failed-sync"}, File: true,
	},
	{
		Name:    "after a sync that failed, a start trusts what the file shows",
		Patches: []gateway.Patch{{File: fileFile, Old: "writeAgain(real + \"-wal\"); err", New: "error(nil); err"}},
		Faults:  []string{"failed-sync", "file-kill", "power-loss", "failed-sync", "file-kill", "power-loss"}, File: true,
	},
}
