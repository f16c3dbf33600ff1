// Package storetest holds every nonce.Store to the rules of the interface. Each
// rule is one test whose name is the rule.
//
// It promises that a store which passes fences, counts and reads as the service
// expects, also through two handles at once and compared with the in-memory
// model over random scripts. It does not cover durability, failover or a broken
// connection: those tests are each store's own. Goroutines it starts end with
// the test that started them.
package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// Database is one empty database under test.
type Database struct {
	// Open returns a handle to the database, as one more node would have it. A
	// store that one process may open only once returns the same handle. Who
	// made the Database closes the handles, by t.Cleanup.
	Open func(t *testing.T) nonce.Store
	// Advance moves the store's clock on. When it is nil the clock runs by
	// itself, and the suite, whose waits are of milliseconds, polls it.
	Advance func(d time.Duration)
}

// Run runs the suite. open makes an empty database for one test.
func Run(t *testing.T, open func(t *testing.T) Database) {
	for _, rule := range slices.Concat(
		acquireRules, loadRules, commitRules, fenceRules, requestRules, releaseRules, lockedRules, readerRules, registryRules,
		holderRules, chainRules, unknownRules, figureRules, pruneRules, concurrentRules, modelRules,
	) {
		t.Run(rule.name, func(t *testing.T) {
			db := open(t)
			rule.test(&fixture{T: t, Store: db.Open(t), db: db})
		})
	}
}

type rule struct {
	name string
	test func(*fixture)
}

// The holders of the tests.
var (
	alice  = lease.Holder{Node: "alice", Incarnation: 1}
	alice2 = lease.Holder{Node: "alice", Incarnation: 2}
	bob    = lease.Holder{Node: "bob", Incarnation: 1}
)

const (
	signer = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"
	other  = "eip155:1:0x0000000000000000000000000000000000000001"
	// long does not pass within a test; short does, see passes.
	long  = time.Hour
	short = time.Millisecond
)

// fixture is a test with a store and what tests do with it. Its methods fail the
// test on errors; they are for the test's own goroutine.
type fixture struct {
	*testing.T
	nonce.Store
	db Database
}

// another opens the database once more.
func (f *fixture) another() *fixture {
	return &fixture{T: f.T, Store: f.db.Open(f.T), db: f.db}
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// try acquires name and returns its snapshot, acquired or not.
func (f *fixture) try(h lease.Holder, ttl time.Duration, need nonce.Need) nonce.Snapshot {
	f.Helper()
	snaps, err := f.Store.Acquire(f.Context(), h, ttl, []nonce.Need{need})
	f.ok(err)
	if len(snaps) != 1 {
		f.Fatalf("got %d snapshots, want 1", len(snaps))
	}
	return snaps[0]
}

// take acquires name for long.
func (f *fixture) take(h lease.Holder, name string) nonce.Snapshot {
	f.Helper()
	snap := f.try(h, long, nonce.Need{Signer: name})
	if !snap.Acquired {
		f.Fatalf("%v did not get the lease of %s: %+v", h, name, snap.Lease)
	}
	return snap
}

func (f *fixture) load(need nonce.Need) nonce.Snapshot {
	f.Helper()
	snaps, err := f.Store.Load(f.Context(), []nonce.Need{need})
	f.ok(err)
	if len(snaps) != 1 {
		f.Fatalf("got %d snapshots, want 1", len(snaps))
	}
	return snaps[0]
}

// all loads everything there is of a signer with small nonces.
func (f *fixture) all(name string) nonce.Snapshot {
	f.Helper()
	need := nonce.Need{Signer: name, Released: 1000, Due: 1000}
	for n := range f.load(nonce.Need{Signer: name}).Next {
		need.Nonces = append(need.Nonces, n)
	}
	return f.load(need)
}

// filled has alice take name, hold n nonces for long and release some of them.
func (f *fixture) filled(name string, n int, released ...int64) nonce.Snapshot {
	f.Helper()
	f.applied(alice, on(f.take(alice, name)).hold(n, long))
	if len(released) > 0 {
		f.applied(alice, on(f.all(name)).release(released...))
	}
	return f.all(name)
}

// commit commits for h and returns the result.
func (f *fixture) commit(h lease.Holder, edits ...*edit) nonce.CommitResult {
	f.Helper()
	res, err := f.tryCommit(h, edits...)
	f.ok(err)
	if len(res.Applied) != len(edits) {
		f.Fatalf("got %d results for %d changes", len(res.Applied), len(edits))
	}
	return res
}

func (f *fixture) tryCommit(h lease.Holder, edits ...*edit) (nonce.CommitResult, error) {
	changes := make([]nonce.Change, len(edits))
	for i, e := range edits {
		changes[i] = e.Change
	}
	return f.Store.Commit(f.Context(), h, long, changes)
}

// applied commits one change that must take effect.
func (f *fixture) applied(h lease.Holder, e *edit) nonce.CommitResult {
	f.Helper()
	res := f.commit(h, e)
	if !res.Applied[0] {
		f.Fatalf("a change was not applied: %+v", e.Change)
	}
	return res
}

// now reads the store's clock.
func (f *fixture) now() time.Time {
	f.Helper()
	_, now, err := f.Store.Due(f.Context(), 1)
	f.ok(err)
	return now
}

// release gives leases back and returns how many.
func (f *fixture) release(h lease.Holder, terms []nonce.ReleaseTerm) int {
	f.Helper()
	n, err := f.Store.Release(f.Context(), h, terms)
	f.ok(err)
	return n
}

// passes returns when the store's clock is past until.
func (f *fixture) passes(until time.Time) {
	f.Helper()
	if f.db.Advance != nil {
		f.db.Advance(max(0, until.Sub(f.now())) + short)
	}
	ctx, cancel := context.WithTimeout(f.Context(), 10*time.Second)
	defer cancel()
	poll := time.NewTicker(short)
	defer poll.Stop()
	for !f.now().After(until) {
		select {
		case <-poll.C:
		case <-ctx.Done():
			f.Fatalf("the store's clock did not reach %v", until)
		}
	}
}

// unchanged fails the test when the signer is not as in before.
func (f *fixture) unchanged(before nonce.Snapshot) {
	f.Helper()
	f.same("signer", f.all(before.Signer), before)
}

// same compares by what is printed, so that nil and empty are equal.
func (f *fixture) same(what string, got, want any) {
	f.Helper()
	if g, w := printed(got), printed(want); g != w {
		f.Fatalf("%s:\n got %s\nwant %s", what, g, w)
	}
}
