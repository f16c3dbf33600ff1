package lease

import (
	"context"
	"time"
)

// AcquireResult is what became of an attempt to take a shard: a label of metrics.
type AcquireResult string

// The results of an acquire.
const (
	AcquireNew      AcquireResult = "acquired" // it had no owner, or its owner had given it up
	AcquireTakeover AcquireResult = "takeover" // its owner was another node, whose lease had ended
	AcquireHeld     AcquireResult = "held"     // another node owns it
	AcquireError    AcquireResult = "error"    // the store did not say
)

// Acquisition is what an acquire brought of one shard. The shard is this node's if Err is nil
// and the row says that it was taken.
type Acquisition struct {
	Row Shard
	Err error
}

// Follow takes and gives up shards as it was ordered, in one statement for each of the two. A failure is
// counted or logged and not retried here: the balance and the heartbeat order again, and a request
// acquires by itself.
func (t *Table) Follow(orders []Order, now time.Time) {
	var take, give []*Term
	for _, o := range orders {
		switch m := o.Shard; {
		case o.Back != nil:
			if !m.Mine() && m.row.CompareAndSwap(o.Seen, o.Back) {
				t.Server.WentBack(m.ID, o.Seen, o.Back)
			}
		case !o.Take && o.To != "" && m.Performance && !t.Server.Leave(m.ID):
			// It is kept: memory has what another owner may not find.
		case !o.Take || t.Retired():
			give = append(give, m)
			m.leftTo, m.leftUntil = o.To, now.Add(freeFor)
		case !t.Server.Halted() && (!m.Mine() || m.Row().Token > m.Token()):
			take = append(take, m)
		}
	}
	t.Acquire(take)
	t.GiveUp(give)
}

// Acquire takes shards in one statement, or, when that is aborted, each by itself: the row of one may be
// locked. Those that were taken are this node's from now on.
func (t *Table) Acquire(shards []*Term) []Acquisition {
	if len(shards) == 0 {
		return nil
	}
	seen := make([]Shard, len(shards))
	for i, m := range shards {
		seen[i] = *m.Row()
	}
	rows, err := t.tryAcquire(shards)
	out := make([]Acquisition, 0, len(shards))
	for i, m := range shards {
		switch {
		case err == nil:
			out = append(out, Acquisition{rows[i], t.acquired(m, &rows[i], &seen[i])})
		case len(shards) > 1 && t.Aborted(err):
			one := t.Acquire([]*Term{m})[0]
			if out = append(out, one); one.Err != nil && !t.Aborted(one.Err) {
				err = one.Err // the store does not answer: it is not asked for the others
			}
		default:
			t.Acquired(AcquireError)
			out = append(out, Acquisition{Err: err})
		}
	}
	return out
}

// Again acquires one shard again, under a higher token; forget: what is remembered of it is not valid any
// more. An error says that it is not known whether it was acquired, or why this node does not have it
// although it was.
func (t *Table) Again(m *Term, forget bool) (Shard, error) {
	was := *m.Row()
	rows, err := t.tryAcquire([]*Term{m})
	if err != nil {
		return Shard{}, err
	}
	if forget && rows[0].Taken {
		t.Lose(m)
	}
	return rows[0], t.acquired(m, &rows[0], &was)
}

func (t *Table) tryAcquire(shards []*Term) (rows []Shard, err error) {
	ids := make([]int, len(shards))
	for i, m := range shards {
		ids[i] = m.ID
	}
	err = t.Server.Ask(ids[0], func(ctx context.Context) error {
		rows, err = t.Store.Acquire(ctx, t.Holder, ids)
		return err
	})
	return rows, err
}

// acquired follows one result of an acquire. What is remembered of the shard stays valid only if this
// node owned it and the new token is the next one: then no other node owned it in between. was is the row
// as it was known before the acquire was sent. An error says why this node does not have the shard
// although it was taken.
func (t *Table) acquired(m *Term, row, was *Shard) error {
	before := m.Token()
	m.Believe()
	m.AskedAt = time.Now()
	if row.Token < was.Token {
		t.WentBack(m, row)
	}
	m.See(*row)
	if !row.Taken || row.Token < m.Row().Token {
		t.Acquired(AcquireHeld)
		t.Lose(m)
		if row.Taken { // and another node took it since, as was read meanwhile
			return t.TakenSince
		}
		return nil
	}
	if before == 0 || row.Token != before+1 || m.Performance || row.Performance {
		t.Lose(m)
	}
	m.token.Store(row.Token)
	m.Took = *row
	if err := t.Server.Taken(m.ID, row, before == 0); err != nil {
		t.GiveUp([]*Term{m})
		return err
	}
	result := AcquireNew
	if from := was.Owner.Node; from != "" && from != t.Holder.Node && row.Token == was.Token+1 { // else it was given back
		result = AcquireTakeover
		t.Log.Info("took over a shard", "shard", m.ID, "from_node", from, "owner_node", t.Holder.Node, "fencing_token", row.Token)
	}
	t.Acquired(result)
	return nil
}

// WentBack follows a shard's row with a lower token than was seen, which a store only shows after it
// lost commits.
func (t *Table) WentBack(m *Term, row *Shard) {
	seen := m.Row()
	m.row.Store(row)
	t.Server.WentBack(m.ID, seen, row)
}

// Lose makes a shard not this node's.
func (t *Table) Lose(m *Term) {
	if !m.Mine() {
		return
	}
	if m.Performance {
		t.Server.Losing(m.ID)
	}
	m.Performance = false
	m.token.Store(0)
	m.Stay++
	t.Server.Lost(m.ID)
}

// GiveUpAll is GiveUp of all shards, in one statement: the locks of all of them are held.
func (t *Table) GiveUpAll() { t.GiveUp(t.terms) }

// GiveUp gives back those of the shards that this node has a token of, or that the store was last seen
// to call its own.
func (t *Table) GiveUp(shards []*Term) {
	var terms []ShardTerm
	for _, m := range shards {
		if m.Performance {
			t.Server.Leave(m.ID)
		}
		token, row := m.Token(), m.Row()
		if row.Owner == t.Holder {
			token = max(token, row.Token)
		}
		t.Lose(m)
		if token != 0 {
			terms = append(terms, ShardTerm{Shard: m.ID, Token: token})
		}
	}
	if len(terms) == 0 {
		return
	}
	ctx, cancel := t.Bound() // for all of it
	defer cancel()
	t.release(ctx, terms)
}

// release gives shards back in one statement, or, when that is aborted, each by itself: the row of one
// may be locked. It is best effort: what the store calls this node's still, the next heartbeat takes up
// again, or gives back; or it is free when the node's lease is over.
func (t *Table) release(ctx context.Context, terms []ShardTerm) {
	given, err := t.Store.Release(ctx, t.Holder, terms)
	switch {
	case err != nil && len(terms) > 1 && t.Aborted(err):
		for i := range terms {
			t.release(ctx, terms[i:i+1])
		}
	case err != nil:
		t.Log.Warn("shards were not given back; they are free when the lease of this node is over", "shards", len(terms), "error", err)
	case given == len(terms):
		for _, of := range terms {
			row := *t.terms[of.Shard].Row() // which engine it has, and the node it is pinned to, stays
			row.Owner, row.Token, row.Taken = Holder{}, of.Token+1, false
			t.terms[of.Shard].See(row)
		}
	}
}
