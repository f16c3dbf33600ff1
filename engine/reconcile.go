package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

// Difference is a signer whose copy in Redis is not what the store has, at the same
// version of both.
type Difference struct {
	Signer string `json:"signer"`
	What   string `json:"what"`
	Redis  string `json:"redis"`
	Store  string `json:"store"`
}

// ReconcileReport is the result of a comparison of Redis and the store.
type ReconcileReport struct {
	Equal     int `json:"equal"`     // signers
	Different int `json:"different"` // signers
	// Behind are signers whose copy is of an older version: the next write mirrors
	// them anew. It says nothing of whether they are right.
	Behind int `json:"behind"`
	// Busy are signers that were written to each time they were looked at.
	Busy int `json:"busy"`
	// Differences are at most maxDifferences.
	Differences []Difference `json:"differences,omitempty"`
	More        bool         `json:"more,omitempty"` // there are more differences
	Took        string       `json:"took"`
}

const (
	maxDifferences = 1000
	compareTries   = 20
	compareRest    = 20 * time.Millisecond
	comparePage    = 1000
	// timeSlack is by how much deadlines may differ: Redis and the store round.
	timeSlack = time.Millisecond
)

// Reconcile compares what Redis has with the store, for every signer that Redis has
// or should have. It changes nothing, and disturbs nobody: what is written to
// meanwhile is looked at again.
func (m *Manager) Reconcile(ctx context.Context) (ReconcileReport, error) {
	began := time.Now()
	var r ReconcileReport
	err := m.signers(ctx, func(signer string) error {
		return m.compare(ctx, signer, &r)
	})
	r.Took = time.Since(began).Round(time.Millisecond).String()
	if err == nil {
		m.figures.Reconciled(r)
	}
	return r, err
}

// copied is one signer as both sides show it, at one version.
type copied struct {
	snap     nonce.SignerCopy
	identity nonce.Identity
	summary  nonce.Summary
	store    map[int64]nonce.Row
	redis    map[int64]nonce.Row
	requests []nonce.Remembered
}

// compare looks at one signer until both sides show the same version, or it has been
// tried often enough.
func (m *Manager) compare(ctx context.Context, signer string, r *ReconcileReport) error {
	behind, elsewhere := false, error(nil)
	for try := range compareTries {
		if try > 0 && !sleep(ctx, compareRest) {
			return ctx.Err()
		}
		c, state, err := m.readBoth(ctx, signer)
		elsewhere = nil
		switch {
		case errors.Is(err, redisstore.ErrIdentity):
			elsewhere = err // the signer may be on its way to that server
			continue
		case err != nil:
			return fmt.Errorf("compare %s: %w", signer, err)
		case state == gone:
			return nil
		case state == missing:
			r.differ(Difference{Signer: signer, What: "signer", Redis: "missing", Store: "served by the performance engine"})
			return nil
		case state == older:
			behind = true
			continue
		case state == moved:
			behind = false
			continue
		}
		if d := c.difference(); d != nil {
			r.differ(*d)
		} else if d, err := m.missingIDs(ctx, c); err != nil {
			return err
		} else if d != nil {
			r.differ(*d)
		} else {
			r.Equal++
		}
		return nil
	}
	switch {
	case elsewhere != nil:
		return fmt.Errorf("compare %s, which another Redis serves than the one that answers here: %w", signer, elsewhere)
	case behind:
		r.Behind++
	default:
		r.Busy++
	}
	return nil
}

func (r *ReconcileReport) differ(d Difference) {
	r.Different++
	if len(r.Differences) < maxDifferences {
		r.Differences = append(r.Differences, d)
	} else {
		r.More = true
	}
}

// bothState says whether both sides could be compared.
type bothState uint8

const (
	same    bothState = iota // of one version
	moved                    // it was written to meanwhile, or Redis is ahead
	older                    // the copy is of an older version than the store's row
	missing                  // Redis does not have what it must have
	gone                     // there is nothing to compare
)

// readBoth reads a signer: Redis' version, the store's rows, Redis' rows, and Redis'
// version again. When nothing moved all of it is of one version.
func (m *Manager) readBoth(ctx context.Context, signer string) (*copied, bothState, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*storeTimeout)
	defer cancel()
	snaps, err := m.store.Load(ctx, []nonce.Need{{Signer: signer}})
	if err != nil {
		return nil, gone, err
	}
	if !snaps[0].Exists {
		return nil, gone, nil
	}
	c := &copied{identity: snaps[0].Identity, store: make(map[int64]nonce.Row), redis: make(map[int64]nonce.Row)}
	fast := snaps[0].Engine == nonce.Performance
	if !fast {
		if c.identity, err = m.serverOf(ctx, signer); err != nil {
			return nil, gone, err
		}
	}
	var res nonce.FastResult
	if c.summary, res = m.redis.Summary(ctx, signer, c.identity, snaps[0].Now); res.Verdict != nonce.FastDone {
		return nil, absent(res, fast), unanswered(res)
	}
	if state, err := m.readStore(ctx, snaps[0].ID, c); state != same || err != nil {
		return c, state, err
	}
	return m.readRedis(ctx, signer, c, snaps[0].Now)
}

// absent is what it means that Redis has no such signer.
func absent(res nonce.FastResult, fast bool) bothState {
	if res.Verdict == nonce.FastLost && fast {
		return missing
	}
	return gone
}

// unanswered is the error where Redis did not say, or another one did.
func unanswered(res nonce.FastResult) error {
	switch {
	case res.Verdict == nonce.FastNotSent || res.Verdict == nonce.FastUnknown:
		return fmt.Errorf("Redis did not answer: %w", res.Err)
	case errors.Is(res.Err, redisstore.ErrIdentity):
		return res.Err
	}
	return nil
}

func (m *Manager) readStore(ctx context.Context, id int64, c *copied) (bothState, error) {
	for row, request := int64(0), ""; ; {
		page, err := m.store.Copy(ctx, id, row, request, comparePage)
		switch {
		case err != nil:
			return gone, err
		case !page.Exists:
			return gone, nil
		case page.Version < c.summary.Version:
			return moved, nil // its flush is under way
		case page.Version > c.summary.Version:
			return older, nil
		}
		c.snap = page
		for _, r := range page.Rows {
			c.store[r.Nonce] = r
		}
		c.requests = append(c.requests, page.Requests...)
		if !page.More {
			return same, nil
		}
		row, request = page.NextRow, page.NextID
	}
}

func (m *Manager) readRedis(ctx context.Context, signer string, c *copied, now time.Time) (*copied, bothState, error) {
	rows, res := m.redis.Rows(ctx, signer, c.identity, 0, math.MaxInt32) // one walk, whatever the limit
	if res.Verdict != nonce.FastDone {
		return c, moved, unanswered(res)
	}
	for _, r := range rows {
		if r.Status != nonce.Consumed { // it leaves Redis by itself
			c.redis[r.Nonce] = r
		}
	}
	again, res := m.redis.Summary(ctx, signer, c.identity, now)
	if res.Verdict != nonce.FastDone || again.Version != c.summary.Version {
		return c, moved, unanswered(res)
	}
	return c, same, nil
}

// difference is the first one in the figures or the rows; nil: there is none.
func (c *copied) difference() *Difference {
	s, r := &c.snap, &c.summary
	for _, n := range []struct {
		what         string
		redis, store int64
	}{{"next", r.Next, s.Next}, {"floor", r.Floor, s.Floor}} {
		if n.redis != n.store {
			return c.differs(n.what, fmt.Sprint(n.redis), fmt.Sprint(n.store))
		}
	}
	for n, a := range c.store {
		b, ok := c.redis[n]
		if !ok {
			return c.differs(fmt.Sprintf("nonce %d", n), "missing", rowText(&a))
		}
		if !equalRows(&a, &b) {
			return c.differs(fmt.Sprintf("nonce %d", n), rowText(&b), rowText(&a))
		}
	}
	for n, b := range c.redis {
		if _, ok := c.store[n]; !ok {
			return c.differs(fmt.Sprintf("nonce %d", n), rowText(&b), "missing")
		}
	}
	return nil
}

func (c *copied) differs(what, redis, store string) *Difference {
	return &Difference{Signer: c.snap.Signer, What: what, Redis: redis, Store: store}
}

func equalRows(a, b *nonce.Row) bool {
	return a.Status == b.Status && a.Attempt == b.Attempt && a.Holder == b.Holder &&
		a.TxHash == b.TxHash && a.Replaced == b.Replaced && a.Reason == b.Reason &&
		(a.Status != nonce.Held || a.HeldUntil.Sub(b.HeldUntil).Abs() <= timeSlack)
}

func rowText(r *nonce.Row) string {
	text := fmt.Sprintf("%v, attempt %d of %x", r.Status, r.Attempt, uint64(r.Holder))
	if r.Status == nonce.Held {
		text += ", until " + r.HeldUntil.UTC().Format(time.RFC3339Nano)
	}
	if r.Reason != "" {
		text += fmt.Sprintf(", reason %q", r.Reason)
	}
	for i := range r.Replaced.Len() {
		text += ", replaced " + r.Replaced.At(i).String()
	}
	if r.TxHash != (nonce.TxHash{}) {
		text += ", transaction " + r.TxHash.String()
	}
	return text
}

// missingIDs looks for request ids that the store remembers and Redis does not: it
// would take a repeat of them for new. Those about to be forgotten are left alone.
func (m *Manager) missingIDs(ctx context.Context, c *copied) (*Difference, error) {
	for ids := range slices.Chunk(c.requests, comparePage/2) {
		need := nonce.Need{Signer: c.snap.Signer}
		for _, q := range ids {
			if left := m.cfg.RequestRetention - c.snap.Now.Sub(q.At); m.cfg.RequestRetention == 0 || left > time.Minute {
				need.RequestIDs = append(need.RequestIDs, q.ID)
			}
		}
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		out := m.redis.Read(ctx, c.snap.Now, []nonce.FastRead{{Need: need, FastBelief: nonce.FastBelief{
			ID: c.snap.ID, Signer: c.snap.Signer, Token: c.snap.Lease.Token, Version: c.summary.Version, Identity: c.identity,
		}}})[0]
		cancel()
		if out.Verdict != nonce.FastDone {
			return nil, unanswered(nonce.FastResult{Verdict: out.Verdict, Err: out.Err}) // its owner changed meanwhile
		}
		for _, id := range need.RequestIDs {
			if !slices.ContainsFunc(out.Requests, func(q nonce.Request) bool { return q.ID == id }) {
				return c.differs("request id "+id, "missing", "remembered"), nil
			}
		}
	}
	return nil, nil
}
