package storetest

import (
	"math/rand/v2"
	"sync"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var concurrentRules = []rule{
	{"owners that keep taking over from each other never hand out the same twice", func(f *fixture) {
		c := newCrowd(f, shift)
		c.run(c.owner, c.owner, c.owner)
	}},
	{"owners and locked transactions side by side never hand out the same twice", func(f *fixture) {
		c := newCrowd(f, shift)
		c.run(c.owner, c.basic, c.owner)
	}},
	{"a pruner beside owners and locked transactions takes only what is consumed", func(f *fixture) {
		c := newCrowd(f, spend)
		for range 20 { // until the lowest nonces happened to be consumed
			if c.run(c.owner, c.pruner, c.basic); c.all("s0").Pruned+c.all("s1").Pruned > 10 {
				return
			}
		}
		f.Error("hardly anything was pruned")
	}},
}

// handOut is what may be given once.
type handOut struct {
	signer         string
	nonce, attempt int64
}

// crowd is several nodes at work on the same few signers.
type crowd struct {
	*fixture
	change func(nonce.Snapshot) *edit

	mu       sync.Mutex // guards all below
	given    map[handOut]int
	consumed map[handOut]bool // at whatever attempt; attempt is 0 here
}

func newCrowd(f *fixture, change func(nonce.Snapshot) *edit) *crowd {
	return &crowd{fixture: f, change: change, given: map[handOut]int{}, consumed: map[handOut]bool{}}
}

// run lets two goroutines of each node work, each node with a handle of its own,
// and judges what was given.
func (c *crowd) run(nodes ...func(nonce.Store, lease.Holder, string, *rand.Rand) error) {
	const rounds = 30
	names := []string{"s0", "s1"}
	var all sync.WaitGroup
	for i, work := range nodes {
		store := c.another().Store
		for j := range 2 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for range rounds {
					h := lease.Holder{Node: []string{"n0", "n1", "n2"}[i], Incarnation: 1}
					if err := work(store, h, names[rng.IntN(len(names))], rng); err != nil && nonce.OutcomeOf(err) != nonce.Aborted {
						c.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	c.judge(names, len(nodes)*2*rounds)
}

// judge compares what was given with what the store holds.
func (c *crowd) judge(names []string, tried int) {
	for what, times := range c.given {
		if times != 1 {
			c.Errorf("%+v was given %d times", what, times)
		}
	}
	if len(c.given) < tried/10 {
		c.Errorf("only %d of %d rounds handed out anything", len(c.given), tried)
	}
	for _, name := range names {
		snap, held := c.all(name), int64(0)
		for _, row := range snap.Rows {
			if row.Status == nonce.Held {
				held++
			}
			if c.given[handOut{name, row.Nonce, row.Attempt}] == 0 {
				c.Errorf("%s nonce %d attempt %d is in the store, but nobody got it", name, row.Nonce, row.Attempt)
			}
		}
		if int64(len(snap.Rows)) != snap.Next-snap.Pruned || held != snap.Held {
			c.Errorf("%s: %d rows from %d to %d, %d held, the row says %d", name, len(snap.Rows), snap.Pruned, snap.Next, held, snap.Held)
		}
		for n := range snap.Pruned {
			if !c.consumed[handOut{name, n, 0}] {
				c.Errorf("%s nonce %d was pruned, but nobody consumed it", name, n)
			}
		}
	}
}

// owner takes the lease, which may be another's for a moment, and commits.
func (c *crowd) owner(store nonce.Store, h lease.Holder, name string, rng *rand.Rand) error {
	snaps, err := store.Acquire(c.Context(), h, time.Microsecond, []nonce.Need{some(name, rng)})
	if err != nil || !snaps[0].Acquired {
		return err
	}
	e := c.change(snaps[0])
	res, err := store.Commit(c.Context(), h, time.Microsecond, []nonce.Change{e.Change})
	if err == nil && res.Applied[0] {
		c.record(name, e)
	}
	return err
}

// basic does the same under the row's lock.
func (c *crowd) basic(store nonce.Store, _ lease.Holder, name string, rng *rand.Rand) error {
	var e *edit
	_, err := store.Locked(c.Context(), some(name, rng), func(s nonce.Snapshot) (nonce.Change, error) {
		e = c.change(s)
		return e.Change, nil
	})
	if err == nil {
		c.record(name, e)
	}
	return err
}

// some asks for the lowest released nonce and one of the first few.
func some(name string, rng *rand.Rand) nonce.Need {
	return nonce.Need{Signer: name, Released: 1, Nonces: []int64{rng.Int64N(9)}}
}

// shift hands out the lowest released nonce or else a new one, and gives one
// back that it finds held.
func shift(s nonce.Snapshot) *edit {
	e := on(s)
	for _, row := range s.Rows {
		if row.Status == nonce.Held {
			e.end(row.Nonce, row.Attempt, nonce.Released)
		}
		if len(s.Released) > 0 && row.Nonce == s.Released[0] {
			e.again(row.Nonce, row.Attempt, long)
		}
	}
	if len(s.Released) == 0 {
		e.hold(1, long)
	}
	return e
}

// spend is shift, but every third nonce that it finds held is given back, and the
// others are consumed.
func spend(s nonce.Snapshot) *edit {
	e := shift(s)
	for i, rc := range e.Rows {
		if rc.Status == nonce.Released && (rc.Nonce+rc.Attempt)%3 > 0 {
			e.Rows[i].Status, e.Rows[i].Reason = nonce.Consumed, ""
		}
	}
	return e
}

// pruner prunes as an owner or without a lease. Everything is old to it.
func (c *crowd) pruner(store nonce.Store, h lease.Holder, name string, rng *rand.Rand) error {
	need := nonce.Need{Signer: name}
	snaps, err := store.Load(c.Context(), []nonce.Need{need})
	if rng.IntN(2) == 0 {
		snaps, err = store.Acquire(c.Context(), h, time.Microsecond, []nonce.Need{need})
	} else {
		h = lease.Holder{}
	}
	if err != nil || !snaps[0].Exists {
		return err
	}
	_, err = store.Prune(c.Context(), h, nonce.Pruning{Age: -long, Epoch: store.Epoch(), Pieces: []nonce.PrunePiece{pieceOf(snaps[0], 1+rng.IntN(4))}})
	return err
}

func (c *crowd) record(name string, e *edit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rc := range e.Rows {
		switch rc.Status {
		case nonce.Held:
			c.given[handOut{name, rc.Nonce, rc.Attempt}]++
		case nonce.Consumed:
			c.consumed[handOut{name, rc.Nonce, 0}] = true
		}
	}
}
