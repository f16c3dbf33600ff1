package memstore

import (
	"context"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var _ nonce.LogStore = (*Store)(nil)

// believes reports whether a shard is as a writer believes.
func (db *database) believes(h lease.Holder, t lease.ShardTerm) bool {
	return db.owns(h, t) && db.owners[t.Shard].Performance == t.Performance
}

// Ship implements nonce.LogStore.
func (s *Store) Ship(ctx context.Context, h lease.Holder, what nonce.Shipment) (nonce.Shipped, error) {
	c := Call{Op: OpShip, Holder: h, Writes: what.Writes}
	for _, sh := range what.Shards {
		c.Shards, c.Terms = append(c.Shards, sh.Term.Shard), append(c.Terms, sh.Term)
	}
	return s.ship(ctx, c, what)
}

// shipped does with the shards of a shipment what is asked.
func (db *database) shipped(h lease.Holder, what *nonce.Shipment, out *nonce.Shipped) {
	for _, sh := range what.Shards {
		mine, whole := db.believes(h, sh.Term), true
		for i := range what.Writes {
			whole = whole && (what.Writes[i].Term.Shard != sh.Term.Shard || out.Results[i] == nonce.Applied)
		}
		whole = whole && mine
		if mine {
			db.granted(sh.Term.Shard, what.Grant, out.Now)
		}
		if o := &db.owners[sh.Term.Shard]; whole {
			o.Shipped, o.Performance = max(o.Shipped, sh.Head), !sh.Off
		}
		out.Granted, out.Whole = append(out.Granted, mine), append(out.Whole, whole)
	}
}

func (db *database) granted(shard int, g nonce.Grant, now time.Time) {
	o := &db.owners[shard]
	o.GrantUntil = max(o.GrantUntil, now.Add(g.For).UnixMilli())
	db.longest[shard] = max(db.longest[shard], g.LongestHold.Milliseconds())
}

// Reserve implements nonce.LogStore.
func (s *Store) Reserve(ctx context.Context, h lease.Holder, ceilings []nonce.Ceiling) ([]bool, error) {
	out := make([]bool, len(ceilings))
	c := Call{Op: OpReserve, Holder: h}
	for _, up := range ceilings {
		c.Needs = append(c.Needs, nonce.SignerNeed{Signer: up.Name})
	}
	err := s.call(ctx, c, func(db *database, _ time.Time) error {
		for i, up := range ceilings {
			at, shard := db.signer(up.Name), nonce.ShardOf(up.Name, s.shards)
			epoch := db.owners[shard].Epoch
			if !db.owns(h, lease.ShardTerm{Shard: shard, Token: up.Term.Token}) || !db.owners[shard].Performance || at.row.Epoch != epoch && at.row.Ceiling > 0 {
				continue
			}
			at.row.Ceiling, at.row.Epoch, out[i] = max(at.row.Ceiling, up.Next), epoch, true
			db.signers[up.Name] = at
		}
		return nil
	})
	return out, err
}

// TurnOn implements nonce.LogStore.
func (s *Store) TurnOn(ctx context.Context, h lease.Holder, t lease.ShardTerm, identity string, g nonce.Grant) (on bool, err error) {
	err = s.call(ctx, Call{Op: OpTurnOn, Holder: h, Shards: []int{t.Shard}}, func(db *database, now time.Time) error {
		if o := &db.owners[t.Shard]; db.owns(h, t) && !o.Performance {
			o.Performance, o.Identity, o.Shipped, on = true, identity, 0, true
			db.granted(t.Shard, g, now)
		}
		return nil
	})
	return on, err
}

// Declare implements nonce.LogStore.
func (s *Store) Declare(ctx context.Context, h lease.Holder, t lease.ShardTerm, margin time.Duration) (done bool, err error) {
	err = s.call(ctx, Call{Op: OpDeclare, Holder: h, Shards: []int{t.Shard}}, func(db *database, _ time.Time) error {
		if o := &db.owners[t.Shard]; db.owns(h, t) && o.Performance {
			o.Performance, o.Epoch, o.DoubtUntil = false, o.Epoch+1, o.GrantUntil+db.longest[t.Shard]+margin.Milliseconds()
			done = true
		}
		return nil
	})
	return done, err
}

// Rehearsed implements nonce.LogStore.
func (s *Store) Rehearsed(ctx context.Context, h lease.Holder, terms []lease.ShardTerm, change int64) error {
	return s.call(ctx, Call{Op: OpEngine, Holder: h, Terms: terms}, func(db *database, _ time.Time) error {
		for _, t := range terms {
			if o := &db.owners[t.Shard]; db.owns(h, t) && !o.Performance {
				o.Rehearsed = change
			}
		}
		return nil
	})
}

// Engine implements nonce.LogStore.
func (s *Store) Engine(ctx context.Context) (g nonce.EngineGoal, err error) {
	err = s.call(ctx, Call{Op: OpEngine}, func(db *database, _ time.Time) error {
		g = db.goal
		return nil
	})
	return g, err
}

// SetEngine implements nonce.LogStore.
func (s *Store) SetEngine(ctx context.Context, from int64, goal nonce.EngineGoal) (g nonce.EngineGoal, err error) {
	err = s.call(ctx, Call{Op: OpEngine}, func(db *database, now time.Time) error {
		if db.goal.Change == from {
			db.goal, db.goal.Change, db.goal.At = goal, from+1, now
		}
		g = db.goal
		return nil
	})
	return g, err
}
