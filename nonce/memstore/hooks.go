package memstore

import (
	"noncegate/lease"
	"noncegate/nonce"
)

// Op names a method of the store to the hooks.
type Op string

// The methods that hooks see. Prune and PruneRequests are one, as are Signers, Totals and
// List; Nodes is Owners.
const (
	OpRegister Op = "register"
	OpLeave    Op = "leave"
	OpRenew    Op = "renew"
	OpAcquire  Op = "acquire"
	OpRelease  Op = "release"
	OpOwners   Op = "owners"
	OpLoad     Op = "load"
	OpCommit   Op = "commit"
	OpLocked   Op = "locked"
	OpDue      Op = "due"
	OpWatched  Op = "watched"
	OpPin      Op = "pin"
	OpPrune    Op = "prune"
	OpFigures  Op = "figures"
	OpNames    Op = "names"
	OpPing     Op = "ping"
	OpSent     Op = "sent" // of nonce.SentStore, all
	OpShip     Op = "ship"
	OpReserve  Op = "reserve"
	OpTurnOn   Op = "turn on"
	OpDeclare  Op = "declare"
	OpEngine   Op = "engine" // Engine, SetEngine and Rehearsed
)

// Call is what a hook sees of a call: the arguments of the method that Op names.
type Call struct {
	Op     Op
	Holder lease.Holder
	Shards []int
	Terms  []lease.ShardTerm
	Needs  []nonce.SignerNeed
	Writes []nonce.Write
	Done   <-chan struct{} // closed when the caller waits no longer
}

// Hooks make a store fail or wait. Before and After run in the caller's goroutine, without
// the store's lock, so they may block and may use the store.
type Hooks struct {
	// Before runs before anything happens, and its error is the call's: with a
	// *nonce.StoreError of NotSent it is a store out of reach, with Aborted one that
	// refuses, with Unknown a commit that broke and did not happen. One that happens later
	// is told Unknown here, and committed by the test afterwards.
	Before func(Call) error
	// After runs when the call has taken effect, and its error is the call's: with a
	// *nonce.StoreError of Unknown it is a reply that was lost.
	After func(Call) error
	// RowLocked reports that somebody is writing the signer just now, so that it is left
	// out of a commit as Moved. It runs under the store's lock and must not use the store.
	RowLocked func(signer string) bool
}

// SetHooks replaces the hooks; calls under way keep the old ones of Before and After.
func (s *Store) SetHooks(h Hooks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = h
}

// Generation implements nonce.Database. It is 0 until RaiseGeneration.
func (s *Store) Generation() uint64 { return s.generation.Load() }

// RaiseGeneration makes the store one that may have become another one.
func (s *Store) RaiseGeneration() { s.generation.Add(1) }

// Backup takes a copy of all that is stored, which restore puts back, as often as it is
// called: the database goes back.
func (s *Store) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.db.clone()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.db = kept.clone()
	}
}

// Damage makes what lives of a signer unreadable (nonce.ErrLive), until mend is called. The signer has a row.
func (s *Store) Damage(name string) (mend func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.db.signers[name].live
	s.db.signers[name].live = []byte{0xff}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.db.signers[name].live = was
	}
}
