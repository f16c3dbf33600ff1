package lease

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// freeFor is how long a shard has no owner, or its owner's lease is over, before a node takes it that
	// should not have it: two looks of the node that should, at the default.
	freeFor = time.Second
	// movesPerLook bounds the shards that a node gives up at a look.
	movesPerLook = 2
	// keepFor is how long a node keeps a shard that the node which should have it did not take, before it
	// is offered to it again.
	keepFor = 5 * time.Second
)

// Store is the part of a store that has the shards.
type Store interface {
	// Acquire takes those of the shards that it may, with a higher token, and returns all of them as they
	// are then; Release gives back those that the holder has under these tokens, and returns how many.
	Acquire(ctx context.Context, h Holder, shards []int) ([]Shard, error)
	Release(ctx context.Context, h Holder, terms []ShardTerm) (int, error)
	// Owners says which node has which shard.
	Owners(context.Context) (Owners, error)
	// Pin has a shard be at a node while that node lives; "": wherever the balance says.
	Pin(ctx context.Context, shard int, node string) error
}

// Server serves the shards of a Table, each in a lock, which it holds when it calls Follow, Acquire, Again,
// WentBack, Lose and GiveUp with it.
type Server interface {
	// These are called from any goroutine, and must not block.

	// Order has something done with a shard when its lock is free. The same need not be done twice.
	Order(Order)
	// Now is the store's clock at the earliest, in Unix milliseconds.
	Now() int64
	// Reaches reports whether requests, or clients, can go to a node.
	Reaches(node string) bool
	// Leaves reports whether this node leaves a shard of that row, which any node could have taken since
	// then, to others.
	Leaves(row *Shard, since time.Time) bool
	// Halted reports whether this node stopped serving for good.
	Halted() bool

	// These are called in the lock of the shard.

	// Ask calls the store for what requests wait for, and bounds that wait.
	Ask(shard int, ask func(context.Context) error) error
	// Taken is told that the shard is this node's, under a higher token than before; anew: it was not.
	// With an error it is given back.
	Taken(shard int, row *Shard, anew bool) error
	// Leave ends the performance engine of a shard that another node is to have, and reports whether
	// that other node may.
	Leave(shard int) bool
	// Losing is told that a shard with the performance engine is about to be lost; Lost, that any was.
	Losing(shard int)
	Lost(shard int)
	// WentBack is told that the shard has a row with a lower token than was seen: what is remembered of
	// it is to be compared with the store.
	WentBack(shard int, seen, row *Shard)
}

// Order is what is to be done with a shard, in its lock.
type Order struct {
	Shard *Term
	Take  bool
	To    string // for which node it is given up; "": for none
	// Back is a row with a lower token than that of Seen, which was the row before it was asked for: the
	// store went back. nil: the order is about something else.
	Seen, Back *Shard
}

// Config is what a Table is made of.
type Config struct {
	Store   Store
	Server  Server
	Holder  Holder
	Mode    string        // the nodes of this mode own shards
	Owns    bool          // this node is one of them
	Timeout time.Duration // bounds a look
	// Bound bounds a call that gives shards back.
	Bound func() (context.Context, context.CancelFunc)
	// Aborted reports whether an error of the store says that nothing happened, and that others may hold
	// a lock; TakenSince is such an error: another node took the shard right after this one.
	Aborted    func(error) bool
	TakenSince error
	// Passes reports whether an error says that a row was locked by others, which release it soon; Retry is
	// the pause before it is tried again.
	Passes   func(error) bool
	Retry    time.Duration
	Acquired func(AcquireResult) // counts an attempt
	OnNodes  func([]Node)        // is given the nodes after each look; nil: it is not wanted
	Log      *slog.Logger
}

// Table is what this node knows of all shards, and of the nodes.
type Table struct {
	Config
	terms   []*Term
	looking chan struct{} // capacity 1: full while the store is asked for the fleet
	fleet   atomic.Pointer[Fleet]
	retired atomic.Bool // no shard is acquired any more
	// Still has no shard moved to where it should be: what this node remembers of its signers is needed.
	Still atomic.Bool
}

// NewTable is a table of these shards, of which nothing is known. Look is to be called first.
func NewTable(cfg Config, terms []*Term) *Table {
	for i, m := range terms {
		m.ID = i
		m.row.Store(&Shard{Shard: i})
	}
	return &Table{Config: cfg, terms: terms, looking: make(chan struct{}, 1)}
}

// Fleet is what the last look showed of the nodes.
func (t *Table) Fleet() *Fleet { return t.fleet.Load() }

// Retired reports whether this node acquires no shard any more.
func (t *Table) Retired() bool { return t.retired.Load() }

// Retire has this node acquire no shard any more.
func (t *Table) Retire() {
	t.looking <- struct{}{}
	defer func() { <-t.looking }()
	t.fleet.Store(t.fleet.Load().Without(t.Holder.Node)) // before any shard looks for another node
	t.retired.Store(true)
}

// Look reads the shards and the nodes, for one caller at a time.
func (t *Table) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	select {
	case t.looking <- struct{}{}:
		defer func() { <-t.looking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	before := make([]*Shard, len(t.terms))
	for i, m := range t.terms {
		before[i] = m.Row()
	}
	all, err := t.Store.Owners(ctx)
	if err != nil {
		return err
	}
	for _, row := range all.Shards {
		m := t.terms[row.Shard]
		if seen := before[row.Shard]; row.Token < seen.Token && !m.Mine() {
			t.Server.Order(Order{Shard: m, Seen: seen, Back: &row})
		}
		m.See(row)
	}
	leaving := ""
	if t.Retired() {
		leaving = t.Holder.Node
	}
	t.fleet.Store(NewFleet(&all, t.Mode, leaving, t.fleet.Load(), time.Now()))
	if t.OnNodes != nil {
		t.OnNodes(all.Nodes)
	}
	return nil
}

// Renewed follows a heartbeat. A shard that the store calls this node's under another token than this
// node has was acquired by a statement that came late, or by an earlier run of the node: it is acquired
// again, or, by a node that retired, given back.
func (t *Table) Renewed(shards []Shard) {
	for _, row := range shards {
		m := t.terms[row.Shard]
		m.See(row)
		if t.Owns && m.Token() < row.Token && m.Row().Token == row.Token {
			t.Server.Order(Order{Shard: m, Take: !t.Retired()})
		}
	}
}

// Balance asks for shards that this node should have and that are free, and for those that have been free
// for a while; it gives up some that others should have and can serve. It is called by one goroutine.
func (t *Table) Balance() {
	f, moves := t.Fleet(), movesPerLook
	for i, m := range t.terms {
		row, preferred := m.Row(), f.Preferred(i)
		free := row.Owner.Node == "" || row.Owner.Node == t.Holder.Node || !f.Runs(row.Owner, t.Server.Now())
		if m.Mine() || !free {
			m.freeSince = time.Time{}
		} else if m.freeSince.IsZero() {
			m.freeSince = time.Now()
		}
		switch {
		case !m.Mine() && t.Server.Leaves(row, m.freeSince):
		case m.Mine() && row.Owner != t.Holder && row.Token > m.Token():
			// It was taken from this node, which was paused perhaps. To ask for it tells.
			t.Server.Order(Order{Shard: m, Take: true})
		case m.Mine():
			if moves > 0 && t.mayMove(m, preferred) {
				moves--
				t.Server.Order(Order{Shard: m, To: preferred})
			}
		case !free:
		case preferred == t.Holder.Node:
			t.Server.Order(Order{Shard: m, Take: true})
		case time.Since(m.freeSince) >= freeFor:
			m.keptUntil = time.Now().Add(keepFor)
			t.Server.Order(Order{Shard: m, Take: true})
		}
	}
}

// Blind follows a look of the goroutine that balances that failed: other nodes may not have been able to take
// a shard either, so none counts as free since before.
func (t *Table) Blind() {
	for _, m := range t.terms {
		m.freeSince = time.Time{}
	}
}

// mayMove reports whether this node gives a shard up for the node that should have it.
func (t *Table) mayMove(m *Term, preferred string) bool {
	return preferred != "" && preferred != t.Holder.Node && m.Stopped.Load() == 0 && !t.Still.Load() &&
		time.Now().After(m.keptUntil) && t.Server.Reaches(preferred)
}

// Destination is where the requests of a shard go that is not this node's: a node that owns it, or
// should, and is reached from here. "" is nowhere: this node asks for the shard itself.
func (t *Table) Destination(m *Term) (node, url string) {
	f, row := t.Fleet(), m.Row()
	if m.Unsure {
		return "", ""
	}
	if m.hint.node != "" && m.hintToken == row.Token {
		return m.hint.node, m.hint.url
	}
	if owner := row.Owner; owner.Node != "" && owner.Node != t.Holder.Node && f.Runs(owner, t.Server.Now()) {
		return owner.Node, f.URL(owner.Node)
	}
	free := row.Owner.Node == "" || t.Server.Leaves(row, time.Time{})
	if preferred := f.Preferred(m.ID); free && preferred != "" && preferred != t.Holder.Node && t.Server.Reaches(preferred) {
		return preferred, f.URL(preferred)
	}
	return "", ""
}

// YieldedTo is the node for which this one gave the shard up, while that node may still be about to take
// it; "": there is none.
func (t *Table) YieldedTo(m *Term) string {
	free := m.Row().Owner.Node == "" && time.Now().Before(m.leftUntil)
	if to := m.leftTo; !m.Mine() && to != "" && to != t.Holder.Node && free && t.Server.Reaches(to) {
		return to
	}
	return ""
}

// View is a shard as this node sees it.
type View struct {
	Shard     int
	Owner     string // node id; "": none
	URL       string // where that node is
	Token     int64
	Mine      bool   // this node serves it
	Preferred string // the node that should have it; "": there is none
	Pinned    string // the node that it is pinned to; "": the balance says which should have it
	// Stopped is how many of its signers are stopped here. While there are any, this node
	// keeps a shard that it serves.
	Stopped     int
	Performance bool // it has the performance engine
}

// Views says which node owns which shard, as this node sees it.
func (t *Table) Views() []View {
	f, out := t.Fleet(), make([]View, len(t.terms))
	for i, m := range t.terms {
		row := m.Row()
		out[i] = View{
			Shard: i, Owner: row.Owner.Node, URL: f.URL(row.Owner.Node), Token: row.Token,
			Mine: m.Mine(), Preferred: f.Preferred(i), Pinned: f.Pinned[i],
			Stopped: int(m.Stopped.Load()), Performance: row.Performance,
		}
	}
	return out
}

// NoShardError refuses the move of a shard that there is not.
type NoShardError struct{ Shard, Shards int }

// Error implements error.
func (e *NoShardError) Error() string {
	return fmt.Sprintf("%d is none of the shards of this database, which are 0 to %d", e.Shard, e.Shards-1)
}

// NoNodeError refuses the move of a shard to a node that could not serve it.
type NoNodeError struct {
	Node, Mode string
	Live       []string // those that could, in order
}

// Error implements error.
func (e *NoNodeError) Error() string {
	there := "there is none"
	if len(e.Live) > 0 {
		there = "there are " + strings.Join(e.Live, ", ")
	}
	return fmt.Sprintf("%.128q is no live node of mode %s; %s", e.Node, e.Mode, there)
}

// MayMove says whether Move would pin a shard to the node: a *NoNodeError, or nil.
func (t *Table) MayMove(node string) error {
	if live := t.Fleet().Live; node != "" && !slices.Contains(live, node) {
		return &NoNodeError{node, t.Mode, live}
	}
	return nil
}

// Move pins a shard to a node, which must be one that serves shards by the last look, or with "" unpins
// it. Its owner gives it up, and the node that should have it takes it, when they look next. A
// *NoNodeError means that nothing changed; any other error is the store's.
func (t *Table) Move(ctx context.Context, shard int, node string) error {
	if err := t.MayMove(node); err != nil {
		return err
	}
	pinning, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	pin := func() error { return t.Store.Pin(pinning, shard, node) }
	err := pin()
	for ; t.Passes(err) && pinning.Err() == nil; err = pin() { // commits have the row locked
		select {
		case <-time.After(t.Retry):
		case <-pinning.Done():
		}
	}
	if err != nil {
		return err
	}
	if err := t.Look(ctx); err != nil {
		t.Log.Warn("a shard was moved, and who owns which shard cannot be read", "shard", shard, "error", err)
	}
	return nil
}
