//go:build unix

package sqlite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/history"
)

// planted is a gateway that is known to be wrong, and the faults that must show it.
type planted struct {
	variant
	what   string // is wrong about it
	faults []fault
}

const (
	storeFile   = "nonce/sqlite/sqlite.go"
	sessionFile = "nonce/sqlite/session.go"
	fileFile    = "nonce/sqlite/file.go"
)

// thePlanted are the known-bad builds. Each differs from the product in the lines
// named here and in the many checkpoints.
var thePlanted = []planted{
	{
		variant{"synchronous-off", []gateway.Patch{busyCheckpoints, {File: storeFile, Old: "synchronous(FULL)", New: "synchronous(OFF)"}}},
		"SQLite with synchronous=OFF", []fault{{none, kill, powerLoss}},
	},
	{
		variant{"synchronous-normal", []gateway.Patch{busyCheckpoints, {File: storeFile, Old: "synchronous(FULL)", New: "synchronous(NORMAL)"}}},
		"SQLite with synchronous=NORMAL", []fault{{none, kill, powerLoss}},
	},
	{
		variant{"answer-before-commit", []gateway.Patch{
			busyCheckpoints,
			{File: sessionFile,
				Old: "	defer func() { s.writer <- c }()\n	ctx = ",
				New: "	defer func() {\n		if c != nil {\n			s.writer <- c\n		}\n	}()\n	ctx = "},
			{File: sessionFile,
				Old: "		return refusal(err)\n	}\n",
				New: `		return refusal(err)
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
		}},
		"answered before the commit", []fault{{none, kill, none}, {none, kill, powerLoss}},
	},
	{
		variant{"journal-in-memory", []gateway.Patch{busyCheckpoints, {File: storeFile, Old: "journal_mode(WAL)", New: "journal_mode(MEMORY)"}}},
		"rollback journal in memory", []fault{{none, kill, none}, {none, kill, powerLoss}},
	},
	{
		variant{"failed-commit-is-done", []gateway.Patch{
			busyCheckpoints,
			{File: sessionFile, Old: "		return &nonce.StoreError{Outcome: nonce.Unknown, Err: err}", New: "		return nil"},
		}},
		"a COMMIT that failed is answered as done", []fault{{fullDisk, kill, none}},
	},
	{
		variant{"failed-commit-is-nothing", []gateway.Patch{busyCheckpoints, {File: sessionFile, Old: "Outcome: nonce.Unknown", New: "Outcome: nonce.Aborted"}}},
		"a COMMIT that failed is answered as not done", []fault{{failedSync, kill, none}, {failedSync, kill, none}, {failedSync, kill, none}},
	},
	{
		variant{"failed-sync-is-forgotten", []gateway.Patch{busyCheckpoints, {File: fileFile, Old: "writeAgain(real + \"-wal\"); err", New: "error(nil); err"}}},
		"after a sync that failed, a start trusts what the file shows",
		[]fault{{failedSync, kill, none}, {none, kill, powerLoss}, {failedSync, kill, none}, {none, kill, powerLoss}},
	},
}

// caught is how a planted fault fared.
type caught struct {
	what        string
	runs, times int
	rules       map[history.Rule]int // runs in which each was broken
}

// String is a row of a table in Markdown.
func (c caught) String() string {
	var rules []string
	for _, rule := range slices.SortedFunc(maps.Keys(c.rules), func(a, b history.Rule) int { return c.rules[b] - c.rules[a] }) {
		rules = append(rules, fmt.Sprintf("%s (%d)", rule, c.rules[rule]))
	}
	return fmt.Sprintf("| %s | %d of %d | %s |", c.what, c.times, c.runs, strings.Join(rules, ", "))
}

// tryPlanted runs histories of every known-bad build with so many seeds, and tells
// how many of them were found out. One that never is says that the proof is blind.
func tryPlanted(ctx context.Context, cfg config, runs int) ([]caught, error) {
	table := make([]caught, 0, len(thePlanted))
	for _, p := range thePlanted {
		c, err := runPlanted(ctx, cfg, p, runs)
		if err != nil {
			return table, err
		}
		table = append(table, c)
	}
	return table, nil
}

func runPlanted(ctx context.Context, cfg config, p planted, runs int) (caught, error) {
	c := caught{what: p.what, rules: map[history.Rule]int{}}
	b, err := buildAll(ctx, cfg, p.variant)
	if err != nil {
		return c, err
	}
	for seed := range uint64(runs) {
		r, err := runHistory(ctx, cfg, b, p.name, seed+1, p.faults)
		if err != nil {
			return c, err
		}
		c.runs++
		if len(r.Violations) > 0 {
			c.times++
		}
		seen := map[history.Rule]bool{}
		for _, v := range r.Violations {
			if !seen[v.Rule] {
				seen[v.Rule] = true
				c.rules[v.Rule]++
			}
		}
	}
	return c, nil
}
