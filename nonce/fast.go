package nonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noncegate/lease"
)

// FastConfig are the settings of the performance engine. All are required.
type FastConfig struct {
	Redis   Fast
	Ledger  EngineLedger
	Control EngineControl
	Figures FastFigures

	Grant    time.Duration // how long hand-outs may go on without the store
	BlockMin int64         // nonces of one block, at least and at most
	BlockMax int64
	Timeout  time.Duration // one batch of Redis. Past it the outcome is unknown
	// LossMargin is added to the wait after a loss, for clocks that drift.
	LossMargin  time.Duration
	MirrorQueue int // changes of one shard that wait to be mirrored
}

// FastFigures receives what the performance engine measures.
type FastFigures interface {
	Scripts(d time.Duration, changes int) // one batch of Redis
	Mirrored(delay time.Duration)         // from a commit until Redis had it too
	Lost(signers int)                     // declared lost with Redis
	Moved(to Engine, signers int)
	// GrantLeft is told of what is left of one signer's block and grant when it was
	// handed out from.
	GrantLeft(nonces int64, grant time.Duration)
	Waiting(ops int) // answers that wait for their flush, now
}

func (c *FastConfig) validate() error {
	switch {
	case c.Grant <= 0 || c.Timeout <= 0 || c.LossMargin <= 0:
		return errors.New("the grant, the timeout and the loss margin must be above 0")
	case c.BlockMin < 1 || c.BlockMax < c.BlockMin:
		return errors.New("the block must be at least 1, and its most not below its least")
	case c.MirrorQueue < 1:
		return errors.New("the mirror queue must have at least 1 place")
	}
	return nil
}

// fast reports whether Redis serves the signer, as far as memory goes.
func (st *state) fast() bool { return st.standing.Engine == Performance }

// granted reports whether this node may hand out from Redis at now.
func (st *state) granted(now time.Time) bool { return now.Before(st.grantTrusted) }

func (st *state) belief() FastBelief {
	return FastBelief{ID: st.id, Signer: st.signer, Token: st.term.Token, Version: st.version, Identity: st.standing.Identity}
}

var (
	errNoRedis   = errors.New("the signer is served by the performance engine, and this node has no Redis")
	errRedisLost = errors.New("it was lost with Redis before the store followed; ask again")
	errRedisAway = errors.New("the Redis that serves the signer is out of reach")
)

// redisAway refuses what Redis did not do, and was not asked for in vain.
func redisAway(err error) error {
	return &UnavailableError{Outcome: NotSent, Err: fmt.Errorf("%w: %w", errRedisAway, err)}
}

// taken is one result of taking a lease. Where Redis serves the signer, the snapshot
// is what Redis has, and verdict says whether it could be had.
type taken struct {
	Snapshot
	verdict FastVerdict
	err     error
}

// takeOver puts the tokens of the leases just acquired into Redis, where Redis
// serves the signers, and reads there what is newer than the store's rows.
func (sh *shard) takeOver(groups []*group, snaps []Snapshot, needs []Need) []taken {
	out := make([]taken, len(snaps))
	var reads []FastRead
	var at []int
	for i := range snaps {
		s := &snaps[i]
		out[i].Snapshot = *s
		if !s.Acquired || s.Engine != Performance {
			continue
		}
		if sh.svc.cfg.Fast == nil {
			out[i].verdict, out[i].err = FastNotSent, errNoRedis
			continue
		}
		reads = append(reads, FastRead{
			FastBelief: FastBelief{ID: s.ID, Signer: s.Signer, Token: s.Lease.Token, Version: s.Version, Identity: s.Identity},
			TakeOver:   true, Need: needs[i],
		})
		at = append(at, i)
	}
	for k, f := range sh.svc.fastRead(reads) {
		t, st := &out[at[k]], groups[at[k]].st
		if t.verdict, t.err = f.Verdict, f.Err; f.Verdict != FastDone {
			continue
		}
		if st.id != 0 && (f.Version < st.version || f.Next < st.next) {
			t.verdict, t.err = FastLost, fmt.Errorf("%w: version %d, seen %d", ErrLost, f.Version, st.version)
			continue
		}
		t.Snapshot = merge(&snaps[at[k]], &f.Snapshot)
	}
	return out
}

// merge is what Redis has of a signer, with what only the store's row knows.
func merge(row, redis *Snapshot) Snapshot {
	s := *redis
	s.Signer, s.Exists, s.ID, s.Pruned = row.Signer, row.Exists, row.ID, row.Pruned
	s.Lease, s.Standing, s.Acquired, s.TookOverFrom = row.Lease, row.Standing, row.Acquired, row.TookOverFrom
	s.Now = row.Now
	return s
}

// fastRead reads from Redis with the service's timeout.
func (s *Service) fastRead(reads []FastRead) []FastSnapshot {
	if len(reads) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Fast.Timeout)
	defer cancel()
	now, _ := s.clock.estimate(time.Now())
	out := s.cfg.Fast.Redis.Read(ctx, now, reads)
	for i := range out {
		s.trouble(out[i].Verdict, out[i].Err)
	}
	return out
}

func (s *Service) trouble(v FastVerdict, err error) {
	switch v {
	case FastNotSent, FastUnknown:
		s.cfg.Fast.Control.Trouble(TroubleRedis, err)
	case FastLost:
		s.cfg.Fast.Control.Trouble(TroubleLoss, err)
	}
}

// gone reports whether a verdict means that the signer is lost.
func (s *Service) gone(v FastVerdict) bool {
	return v == FastLost || (v == FastNotSent || v == FastUnknown) && s.cfg.Fast != nil && s.cfg.Fast.Control.RedisGone()
}

// notTaken deals with a group whose lease was acquired, while Redis, which serves
// the signer, could not be had. None of its ops happened.
func (sh *shard) notTaken(g *group, t *taken) {
	g.st.setOwned(sh, false)
	switch {
	case errors.Is(t.err, errNoRedis):
		sh.release([]ReleaseTerm{{ID: t.ID, Token: t.Lease.Token}})
		g.fail(sh, &UnavailableError{Outcome: NotSent, Err: errNoRedis})
	case sh.svc.gone(t.verdict):
		sh.lose([]*group{g}, []ReserveTerm{{ID: t.ID, Token: t.Lease.Token}}, []error{t.err})
	case t.verdict == FastFenced:
		sh.park(g, sh.svc.cfg.LockRetry, errLeaseMoved)
	default:
		g.fail(sh, redisAway(t.err))
	}
}

// lose declares signers lost with Redis. Their ops, of which nothing happened, are
// tried again with what the store has; if that cannot be said now, they are refused,
// and the next op finds the signer lost again.
func (sh *shard) lose(groups []*group, terms []ReserveTerm, causes []error) {
	if err := sh.declareLost(groups, terms, causes); err != nil {
		for _, g := range groups {
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
		}
		return
	}
	sh.anew = append(sh.anew, groups...)
}

// declareLost logs each signer with its own cause.
func (sh *shard) declareLost(groups []*group, terms []ReserveTerm, causes []error) error {
	svc := sh.svc
	for _, g := range groups {
		g.st.setOwned(sh, false)
		g.st.mirror = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), svc.cfg.StoreTimeout)
	defer cancel()
	lost, err := svc.cfg.Fast.Ledger.Lose(ctx, svc.holder, svc.cfg.Fast.LossMargin, terms)
	if err != nil {
		return err
	}
	n := 0
	for i, g := range groups {
		if !lost[i] {
			continue
		}
		n++
		svc.log.Error("Redis lost a signer: what it handed out and the store does not show is in doubt",
			"signer", g.st.signer, "fencing_token", terms[i].Token, "error", causes[i])
	}
	svc.cfg.Fast.Figures.Lost(n)
	return nil
}

// loseWritten declares signers lost to which something was just written. It may have
// happened on a server that is not the one of their rows, and a flush may have found
// it there. Once the signers are lost nothing more of it can come, and their rows
// tell.
func (sh *shard) loseWritten(groups []*group, terms []ReserveTerm, causes []error) []*group {
	if len(groups) == 0 {
		return nil
	}
	if err := sh.declareLost(groups, terms, causes); err != nil {
		for _, g := range groups {
			g.leaveUnknown(sh, err)
		}
		return nil
	}
	return sh.settle(groups, ErrLost)
}

// commitFast writes one round to Redis and returns the groups that go on.
func (sh *shard) commitFast(groups []*group, changes []Change) []*group {
	if len(groups) == 0 {
		return nil
	}
	sh.pace()
	results, now, started := sh.tryFast(groups, changes)
	ended := time.Now()
	for _, g := range groups {
		g.st.dropLoaded()
		g.loaded, g.idsRead = false, false
	}
	var next, fenced, unknown, lost []*group
	var terms []ReserveTerm
	var causes []error
	var cause error
	for i, g := range groups {
		r := results[i]
		sh.svc.trouble(r.Verdict, r.Err)
		if r.Verdict != FastDone {
			sh.unclaim(g)
		}
		switch {
		case r.Verdict == FastDone:
			sh.withhold(g, ended)
			sh.applied(g, now, started)
			if len(g.ops) > 0 {
				next = append(next, g)
			}
		case r.Verdict == FastKnown:
			g.byID = true
			next = append(next, g)
		case r.Verdict == FastFenced:
			fenced = append(fenced, g)
		case r.Verdict == FastUnknown:
			unknown, cause = append(unknown, g), r.Err
		case sh.svc.gone(r.Verdict):
			lost, causes = append(lost, g), append(causes, r.Err)
			terms = append(terms, ReserveTerm{ID: g.st.id, Token: g.st.term.Token})
		default:
			g.fail(sh, redisAway(r.Err))
		}
	}
	next = append(next, sh.loseWritten(lost, terms, causes)...)
	if len(unknown) > 0 {
		sh.svc.tally.unknown.Add(1)
		sh.svc.log.Warn("the outcome of a write to Redis is unknown; its signers are acquired anew", "signers", len(unknown), "error", cause)
		next = append(next, sh.settle(unknown, cause)...)
	}
	return append(next, sh.fencedFast(fenced)...)
}

func (sh *shard) tryFast(groups []*group, changes []Change) ([]FastResult, time.Time, time.Time) {
	fast := sh.svc.cfg.Fast
	ctx, cancel := context.WithTimeout(context.Background(), fast.Timeout)
	defer cancel()
	batch, ops := make([]FastChange, len(changes)), 0
	for i := range changes {
		batch[i] = FastChange{Change: changes[i], Identity: groups[i].st.standing.Identity}
		ops += groups[i].count
	}
	started := time.Now()
	now := sh.svc.clock.ahead(started)
	results := fast.Redis.Commit(ctx, now, batch)
	took := time.Since(started)
	fast.Figures.Scripts(took, len(changes))
	sh.svc.fig.Commit(took, ops)
	return results, now, started
}

// withhold makes hand-outs unknown, repeated ones too, whose grant had ended when
// Redis answered: another node may have declared the signer lost meanwhile, and wait
// no longer.
func (sh *shard) withhold(g *group, at time.Time) {
	if g.st.granted(at) {
		return
	}
	for _, op := range g.ops[:g.count] {
		if op.Kind == KindAllocate && op.Err == nil {
			op.late = true
		}
	}
}

var errGrantOver = errors.New("the answer of Redis came after the end of the grant; ask again with the same request id")

// fencedFast deals with groups whose signer has a higher token in Redis. The store
// says who has it.
func (sh *shard) fencedFast(groups []*group) []*group {
	if len(groups) == 0 {
		return nil
	}
	needs := make([]Need, len(groups))
	for i, g := range groups {
		needs[i] = Need{Signer: g.st.signer}
	}
	snaps, err := sh.svc.load(needs)
	for i, g := range groups {
		switch {
		case err != nil:
			g.st.setOwned(sh, false)
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
		case snaps[i].Lease.Token > g.st.term.Token:
			sh.lost(g, &snaps[i])
		default: // the row is behind Redis: the store went back
			sh.halt(g, &snaps[i])
		}
	}
	return nil
}

// loadFast reads from Redis what the groups' plans need, and from the store the
// rows that Redis does not have because they are CONSUMED and flushed.
func (sh *shard) loadFast(groups []*group, needs []Need) {
	reads := make([]FastRead, len(groups))
	for i, g := range groups {
		reads[i] = FastRead{FastBelief: g.st.belief(), Need: needs[i]}
	}
	var lost, fenced []*group
	var terms []ReserveTerm
	var causes []error
	var missing []*group
	var rows []Need
	for i, f := range sh.svc.fastRead(reads) {
		g := groups[i]
		switch {
		case f.Verdict == FastDone:
			f.Snapshot.Now = sh.svc.clock.ahead(time.Now()) // what is left of a hold is not overstated
			g.st.loaded(&f.Snapshot)
			if needs[i].Released > 0 {
				g.st.setFree(&f.Snapshot)
			}
			g.loaded, g.idsRead = true, g.byID
			if n := g.st.unknownNonces(needs[i].Nonces); len(n) > 0 {
				missing, rows = append(missing, g), append(rows, Need{Signer: g.st.signer, Nonces: n})
			}
		case f.Verdict == FastFenced:
			fenced = append(fenced, g)
		case sh.svc.gone(f.Verdict):
			lost, causes = append(lost, g), append(causes, f.Err)
			terms = append(terms, ReserveTerm{ID: g.st.id, Token: g.st.term.Token})
		default:
			g.fail(sh, redisAway(f.Err))
		}
	}
	if len(lost) > 0 {
		sh.lose(lost, terms, causes)
	}
	sh.fencedFast(fenced)
	sh.loadFlushed(missing, rows)
}

// unknownNonces are those that the load did not bring.
func (st *state) unknownNonces(nonces []int64) (missing []int64) {
	for _, n := range nonces {
		if !st.knows(n) {
			missing = append(missing, n)
		}
	}
	return missing
}

// loadFlushed reads CONSUMED rows from the store. What Redis did not have before is
// flushed, and final.
func (sh *shard) loadFlushed(groups []*group, needs []Need) {
	if len(groups) == 0 {
		return
	}
	snaps, err := sh.svc.load(needs)
	for i, g := range groups {
		if err != nil {
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
			continue
		}
		g.st.pruned = max(g.st.pruned, snaps[i].Pruned)
		g.st.loaded(&Snapshot{Now: g.st.detailsAt, Rows: snaps[i].Rows, Due: g.st.due})
	}
}

// grantMargin is the part of a grant that a node does not trust.
func grantMargin(grant time.Duration) time.Duration { return lease.Margin(grant) }
