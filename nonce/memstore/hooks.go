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
)

// Call is what a hook sees of a call: the arguments of the method that Op names.
type Call struct {
	Op      Op
	Holder  lease.Holder
	Needs   []nonce.Need
	Changes []nonce.Change
	Terms   []nonce.ReleaseTerm
	Pieces  []nonce.PrunePiece
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
	// Commit and Prune skip it. It runs under the store's lock and must not use the store.
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

// Copy is the content of a store at one moment.
type Copy struct{ db *database }

// Copy takes a copy of the content.
func (s *Store) Copy() *Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Copy{s.db.clone()}
}

// Restore puts a copy back: the database went back. The copy can be used again.
func (s *Store) Restore(c *Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db = c.db.clone()
}
