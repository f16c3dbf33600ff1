// Package storetest holds every nonce.Store to the sentences of its interface. Each
// rule is one test whose name is the rule.
//
// A store that passes fences, compares versions, lists and counts as the service expects,
// also through several handles. It does not cover durability, failover or a broken
// connection: those tests are each store's own. Goroutines it starts end with their test.
package storetest

import (
	"slices"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// Database is one empty database under test.
type Database struct {
	// Open returns a handle to the database, as one more node would have it. Who made the
	// Database closes the handles, by t.Cleanup.
	Open func(t *testing.T) nonce.Store
	// Advance moves the store's clock on, or back.
	Advance func(d time.Duration)
	// Damage makes what lives of a signer, which has a row, unreadable.
	Damage func(t *testing.T, signer string)
}

// Run runs the suite. open makes an empty database with at least two shards.
func Run(t *testing.T, open func(t *testing.T) Database) {
	all := slices.Concat(written, holderRules)
	for _, file := range []string{"nodes", "shards", "commits", "locked", "watch", "lists", "figures", "sent"} {
		all = append(all, scripted(t, file+".txt")...)
	}
	run(t, open, all)
}

func run(t *testing.T, open func(t *testing.T) Database, rules []rule) {
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			db := open(t)
			f := &fixture{T: t, Store: db.Open(t), db: db}
			f.alice, f.bob = f.node("alice"), f.node("bob")
			rule.test(f)
		})
	}
}

type rule struct {
	name string
	test func(*fixture)
}

// ttl is that of the leases of the tests.
const ttl = time.Minute

// fixture is a test with a store and what tests do with it. Its methods fail the test on
// errors.
type fixture struct {
	*testing.T
	nonce.Store
	db         Database
	alice, bob lease.Holder // with leases that run
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// node starts an incarnation of a node, and gives it a lease.
func (f *fixture) node(id string) lease.Holder {
	f.Helper()
	h, err := f.Register(f.Context(), lease.Presence{Node: id, URL: "ws://" + id, Mode: "worker-queue"})
	f.ok(err)
	f.renew(h, ttl)
	return h
}

func (f *fixture) renew(h lease.Holder, ttl time.Duration) lease.Renewal {
	f.Helper()
	r, err := f.Renew(f.Context(), h, ttl)
	f.ok(err)
	return r
}

// named is the name of a signer of a shard, one of several.
func (f *fixture) named(shard, which int) string {
	for i := 0; ; i++ {
		name := "signer-" + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		if nonce.ShardOf(name, f.Shards()) == shard {
			which--
			if which < 0 {
				return name
			}
		}
	}
}

func (f *fixture) acquire(h lease.Holder, shards ...int) []lease.Shard {
	f.Helper()
	got, err := f.Acquire(f.Context(), h, shards)
	f.ok(err)
	if len(got) != len(shards) {
		f.Fatalf("%d rows of %d shards", len(got), len(shards))
	}
	return got
}

// take takes a shard and returns its term.
func (f *fixture) take(h lease.Holder, shard int) lease.ShardTerm {
	f.Helper()
	got := f.acquire(h, shard)[0]
	if !got.Taken || got.Owner != h || got.Shard != shard {
		f.Fatalf("%v does not get shard %d: %+v", h, shard, got)
	}
	return lease.ShardTerm{Shard: shard, Token: got.Token}
}

func (f *fixture) load(needs ...nonce.SignerNeed) []nonce.LoadedSigner {
	f.Helper()
	got, err := f.Load(f.Context(), needs)
	f.ok(err)
	if len(got.Signers) != len(needs) {
		f.Fatalf("%d signers for %d needs", len(got.Signers), len(needs))
	}
	return got.Signers
}

func (f *fixture) read(name string) nonce.LoadedSigner {
	f.Helper()
	return f.load(nonce.SignerNeed{Signer: name})[0]
}

func (f *fixture) commit(h lease.Holder, writes ...nonce.Write) nonce.Committed {
	f.Helper()
	got, err := f.Commit(f.Context(), h, writes)
	f.ok(err)
	if len(got.Results) != len(writes) {
		f.Fatalf("%d results of %d writes", len(got.Results), len(writes))
	}
	return got
}

// results commits and wants each write to end so.
func (f *fixture) results(h lease.Holder, writes []nonce.Write, want ...nonce.WriteResult) {
	f.Helper()
	if got := f.commit(h, writes...).Results; !slices.Equal(got, want) {
		f.Fatalf("got %v, want %v", got, want)
	}
}

// hold is an entry that ends in so long.
func (f *fixture) hold(n, attempt int64, in time.Duration) nonce.Entry {
	return nonce.Entry{Nonce: n, Attempt: attempt, Status: nonce.Held, Until: f.now().Add(in).UnixMilli(), Holder: 7}
}

func (f *fixture) now() time.Time {
	f.Helper()
	o, err := f.Owners(f.Context())
	f.ok(err)
	return o.Now
}

// first is the write with which a signer begins: one hold.
func (f *fixture) first(term lease.ShardTerm, name string) nonce.Write {
	return nonce.Write{Name: name, Term: term, Generation: f.Generation(), Signer: nonce.Signer{Version: 1, Next: 1, Live: []nonce.Entry{f.hold(0, 1, time.Hour)}}}
}
