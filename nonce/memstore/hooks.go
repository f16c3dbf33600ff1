package memstore

import (
	"noncegate/lease"
	"noncegate/nonce"
)

// Op names a method of the store to the hooks.
type Op string

// The methods that hooks see.
const (
	OpAcquire  Op = "acquire"
	OpCommit   Op = "commit"
	OpLoad     Op = "load"
	OpRelease  Op = "release"
	OpLocked   Op = "locked"
	OpSummary  Op = "summary"
	OpList     Op = "list"
	OpDue      Op = "due"
	OpPrune    Op = "prune"
	OpPing     Op = "ping"
	OpPrunable Op = "prunable"
	OpConsumed Op = "prune_consumed"
	OpRegister Op = "register"
	OpBeat     Op = "beat"
	OpLeave    Op = "leave"
	OpNodes    Op = "nodes"
	OpReserve  Op = "reserve"
	OpEnter    Op = "enter"
	OpReturn   Op = "return"
	OpLose     Op = "lose"
	OpApply    Op = "apply"
	OpVersions Op = "versions"
	OpCopy     Op = "copy"
	OpEntered  Op = "entered"
	OpState    Op = "engine_state"
	OpSwitch   Op = "switch_engine"
	OpAccept   Op = "accept_identities"
	OpShards   Op = "flush_shards"
	OpCounts   Op = "engine_counts"
	OpSigners  Op = "signers"
	OpTotals   Op = "totals"
	OpRemember Op = "remember_names"
	OpNames    Op = "names_of"
)

// Call is what a hook sees of a call: the arguments of the method that Op names.
type Call struct {
	Op      Op
	Holder  lease.Holder
	Needs   []nonce.Need
	Changes []nonce.Change
	Terms   []nonce.ReleaseTerm
	Pieces  []nonce.PrunePiece
	Blocks  []nonce.ReserveTerm
	Moves   []nonce.MoveTerm
	Events  []nonce.FlushEvent
}

// Hooks make a store fail or wait. They run in the caller's goroutine, without
// the store's lock, so they may block and may use the store.
type Hooks struct {
	// Before runs before anything happens. Its error is the call's: with a
	// *nonce.StoreError of NotSent it is a store out of reach, with Unknown a
	// commit that broke and did not happen.
	Before func(Call) error
	// After runs when the call has taken effect. Its error is the call's: with
	// a *nonce.StoreError of Unknown it is a reply that was lost.
	After func(Call) error
	// RowLocked reports that somebody else has the signer's row locked, so that
	// Commit, Prune and Apply skip it. It runs under the store's lock and must not use the store.
	RowLocked func(signer string) bool
}

// SetHooks replaces the hooks; calls under way keep the old ones.
func (s *Store) SetHooks(h Hooks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = h
}

// SetEpoch sets what Epoch returns.
func (s *Store) SetEpoch(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = epoch
}

// Backup is the content of a store at one moment.
type Backup struct{ db *database }

// Backup takes a copy of the content.
func (s *Store) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Backup{s.db.clone()}
}

// Restore puts a backup back: the database went back. It can be used again.
func (s *Store) Restore(b *Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db = b.db.clone()
}
