package nonce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

const (
	// moveRetry is how long after a try that failed the next copy is begun, or the
	// next move tried.
	moveRetry = time.Second
	// moveWait is how long a signer in use is set aside for its copy to become
	// equal, at most once every movePause.
	moveWait  = 2 * time.Millisecond
	movePause = 100 * time.Millisecond
	// rateOver is the least time over which a signer's rate is taken.
	rateOver = time.Second
	// reserveBatch bounds the signers of one statement.
	reserveBatch = 1000
	// reserveRest is how long no block is asked for ahead after an error.
	reserveRest = 100 * time.Millisecond
)

var (
	errLeaving     = errors.New("the signer is on its way back to the reliable engine")
	errFloorBehind = errors.New("the store has not followed Redis to the signer's new floor yet")
)

// engines lets each signer of the groups go where the cluster wants it, and asks for
// blocks where the rest of one does not suffice.
func (sh *shard) engines(groups []*group) []*group {
	fast := sh.svc.cfg.Fast
	if fast == nil {
		return groups
	}
	goal, gone := fast.Control.Goal(), fast.Control.RedisGone()
	var reserve, enter, leave, lost []*group
	for _, g := range groups {
		switch st := g.st; {
		case st.fast() && gone:
			lost = append(lost, g)
		case st.fast() && (goal == GoalDrain || goal == GoalReliable):
			leave = append(leave, g)
		case st.fast() && !g.covered(sh.marked):
			reserve = append(reserve, g)
		case st.fast():
		case sh.keepMirror(st, goal) && goal == GoalPerformance:
			enter = sh.mayEnter(g, enter)
		}
	}
	sh.loseGone(lost)
	sh.leave(leave)
	sh.enter(enter)
	sh.reserveBlocks(reserve)
	left := groups[:0]
	for _, g := range groups {
		if len(g.ops) > 0 && g.st.owned && sh.parked[g.st.signer] != g {
			left = append(left, g)
		}
	}
	return left
}

func (sh *shard) loseGone(groups []*group) {
	if len(groups) == 0 {
		return
	}
	terms, causes := make([]ReserveTerm, len(groups)), make([]error, len(groups))
	for i, g := range groups {
		terms[i] = ReserveTerm{ID: g.st.id, Token: g.st.term.Token}
		causes[i] = fmt.Errorf("%w: it is out of reach for too long", ErrLost)
	}
	sh.lose(groups, terms, causes)
}

// takes is how many nonces the group's ops want.
func (g *group) takes() (n int64) {
	for _, op := range g.ops {
		n += int64(op.takes())
	}
	return n
}

// covered reports whether block and grant suffice for the group's hand-outs.
func (g *group) covered(now time.Time) bool {
	n := g.takes()
	return n == 0 || g.st.next+n <= g.st.standing.Ceiling && g.st.granted(now)
}

// leave gives signers back to the reliable engine. Where the store has not followed
// Redis to the end yet, the group waits for that, and is refused when it takes long.
func (sh *shard) leave(groups []*group) {
	if len(groups) == 0 {
		return
	}
	terms := make([]MoveTerm, len(groups))
	for i, g := range groups {
		terms[i] = MoveTerm{ID: g.st.id, Token: g.st.term.Token, Version: g.st.version}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sh.svc.cfg.StoreTimeout)
	defer cancel()
	left, err := sh.svc.cfg.Fast.Ledger.Return(ctx, sh.svc.holder, terms)
	if err != nil {
		sh.moveFailed(groups, err)
		return
	}
	moved := 0
	var behind []*group
	for i, g := range groups {
		if !left[i] {
			behind = append(behind, g)
			continue
		}
		moved++
		st := g.st
		st.standing.Engine, st.standing.Identity, st.grantTrusted = Reliable, Identity{}, time.Time{}
	}
	sh.svc.cfg.Fast.Figures.Moved(Reliable, moved)
	sh.notLeft(behind)
}

// notLeft finds out why signers could not leave.
func (sh *shard) notLeft(groups []*group) {
	if len(groups) == 0 {
		return
	}
	needs := make([]Need, len(groups))
	for i, g := range groups {
		needs[i] = Need{Signer: g.st.signer}
	}
	snaps, err := sh.svc.load(needs)
	var behind []*group
	for i, g := range groups {
		switch {
		case err != nil:
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
		case snaps[i].Lease.Token > g.st.term.Token:
			sh.lost(g, &snaps[i])
		case snaps[i].Engine != Performance:
			g.st.setOwned(sh, false)
			sh.anew = append(sh.anew, g)
		default:
			behind = append(behind, g)
		}
	}
	sh.awaitFlush(behind, errLeaving)
}

// awaitFlush sets groups aside that go on when the store has followed. What it is to
// follow must still be in Redis.
func (sh *shard) awaitFlush(groups []*group, why error) {
	reads := make([]FastRead, len(groups))
	for i, g := range groups {
		reads[i] = FastRead{FastBelief: g.st.belief()}
	}
	for i, f := range sh.svc.fastRead(reads) {
		g := groups[i]
		if sh.svc.gone(f.Verdict) {
			sh.lose([]*group{g}, []ReserveTerm{{ID: g.st.id, Token: g.st.term.Token}}, []error{f.Err})
			continue
		}
		sh.park(g, sh.svc.cfg.LockRetry, why)
	}
}

// moveFailed deals with a move that ended in an error. Nothing of the ops happened;
// where the move may have, the signers are acquired anew, and their rows say.
func (sh *shard) moveFailed(groups []*group, err error) {
	for _, g := range groups {
		g.st.mirror = nil
		if OutcomeOf(err) == Unknown {
			g.st.setOwned(sh, false)
			sh.anew = append(sh.anew, g)
			continue
		}
		g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
	}
}

// mayEnter adds the group to those that enter the performance engine if the copy of
// its signer is equal. It sets a group aside whose copy is almost.
func (sh *shard) mayEnter(g *group, enter []*group) []*group {
	st := g.st
	m := st.mirror
	switch at := m.version.Load(); {
	case at == st.version && !sh.marked.Before(st.mirrorAfter):
		return append(enter, g)
	case at >= 0 && at < st.version && !sh.marked.Before(st.parkAfter):
		st.parkAfter = sh.marked.Add(movePause)
		sh.park(g, moveWait, errLeaving)
	}
	return enter
}

// present returns those groups whose copies are in Redis now, and are marked there as
// what serves. A copy is equal by what was written to it: since then it may have been
// removed, or lost with Redis, and a signer that entered without it would be lost at
// once. Such a copy is begun anew.
func (sh *shard) present(groups []*group) []*group {
	if len(groups) == 0 {
		return nil
	}
	reads := make([]FastRead, len(groups))
	for i, g := range groups {
		reads[i] = FastRead{FastBelief: g.st.belief(), Serve: true}
		reads[i].Identity = g.st.mirror.identity
	}
	ctx, cancel := context.WithTimeout(context.Background(), sh.svc.cfg.Fast.Timeout)
	defer cancel()
	now, _ := sh.svc.clock.estimate(time.Now())
	left := groups[:0]
	for i, f := range sh.svc.cfg.Fast.Redis.Read(ctx, now, reads) {
		g := groups[i]
		if f.Verdict != FastDone {
			g.st.mirror.broken.Store(true)
			sh.svc.mirrorFailed(FastResult{f.Verdict, f.Err})
			continue
		}
		left = append(left, g)
	}
	return left
}

// enter gives signers to the performance engine.
func (sh *shard) enter(groups []*group) {
	if groups = sh.present(groups); len(groups) == 0 {
		return
	}
	fast := sh.svc.cfg.Fast
	terms := make([]MoveTerm, len(groups))
	for i, g := range groups {
		st := g.st
		terms[i] = MoveTerm{
			ID: st.id, Token: st.term.Token, Version: st.version, Identity: st.mirror.identity,
			Ceiling: above(st.next, g.takes()+fast.block(st, sh.marked)),
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sh.svc.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	res, now, err := fast.Ledger.Enter(ctx, sh.svc.holder, sh.svc.cfg.LeaseTTL, fast.Grant, sh.svc.cfg.MaxHold, terms)
	if err != nil {
		sh.moveFailed(groups, err)
		return
	}
	sh.svc.clock.observe(started, time.Now(), now)
	moved := 0
	for i, g := range groups {
		st := g.st
		if !res[i].Applied {
			st.mirrorAfter = sh.marked.Add(moveRetry) // the next commit tells whether the row has moved
			continue
		}
		moved++
		st.standing.Engine, st.standing.Identity, st.mirror = Performance, st.mirror.identity, nil
		sh.reserved(st, res[i], started)
	}
	fast.Figures.Moved(Performance, moved)
}

// farAhead reports whether a floor has moved the cursor far beyond the block. A block
// there is not asked for before the store knows of the floor: were Redis lost between,
// every nonce below the block would count as one that may have been handed out, and
// get a row.
func (c *FastConfig) farAhead(st *state) bool { return st.next-st.standing.Ceiling > c.BlockMax }

// near returns the groups that need not wait for the flush of a floor, or have, and
// sets the others aside.
func (sh *shard) near(groups []*group) []*group {
	var far []*group
	var needs []Need
	left := groups[:0]
	for _, g := range groups {
		if sh.svc.cfg.Fast.farAhead(g.st) {
			far, needs = append(far, g), append(needs, Need{Signer: g.st.signer})
		} else {
			left = append(left, g)
		}
	}
	if len(far) == 0 {
		return left
	}
	snaps, err := sh.svc.load(needs)
	var behind []*group
	for i, g := range far {
		switch {
		case err != nil:
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
		case snaps[i].Engine == Performance && snaps[i].Version < g.st.version:
			behind = append(behind, g)
		default:
			left = append(left, g)
		}
	}
	sh.awaitFlush(behind, errFloorBehind)
	return left
}

// reserveBlocks asks for blocks and waits for them.
func (sh *shard) reserveBlocks(groups []*group) {
	if groups = sh.near(groups); len(groups) == 0 {
		return
	}
	terms := make([]ReserveTerm, len(groups))
	for i, g := range groups {
		terms[i] = ReserveTerm{ID: g.st.id, Token: g.st.term.Token, Ceiling: above(g.st.next, g.takes()+sh.svc.cfg.Fast.block(g.st, sh.marked))}
	}
	res, started, err := sh.svc.askBlocks(terms)
	for i, g := range groups {
		switch {
		case err != nil:
			g.fail(sh, &UnavailableError{Outcome: NotSent, Err: err})
		case !res[i].Applied:
			g.st.setOwned(sh, false)
			sh.anew = append(sh.anew, g)
		default:
			sh.reserved(g.st, res[i], started)
		}
	}
}

func (s *Service) askBlocks(terms []ReserveTerm) ([]Reserved, time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	res, now, err := s.cfg.Fast.Ledger.Reserve(ctx, s.holder, s.cfg.LeaseTTL, s.cfg.Fast.Grant, s.cfg.MaxHold, terms)
	if err == nil {
		s.clock.observe(started, time.Now(), now)
	}
	return res, started, err
}

// reserved follows a block that was given, by a call that started at started.
func (sh *shard) reserved(st *state, r Reserved, started time.Time) {
	cfg := &sh.svc.cfg
	st.standing.Ceiling, st.standing.GrantUntil = max(st.standing.Ceiling, r.Ceiling), latest(st.standing.GrantUntil, r.GrantUntil)
	st.grantTrusted = latest(st.grantTrusted, started.Add(cfg.Fast.Grant-grantMargin(cfg.Fast.Grant)))
	st.term = st.term.Renewed(started, cfg.LeaseTTL, grantMargin(cfg.LeaseTTL))
	st.handed, st.handedFrom = 0, time.Now()
}

// above is more than next by that much, as far as there are nonces.
func above(next, more int64) int64 { return next + min(more, math.MaxInt64-next) }

// block is how many nonces are reserved ahead for a signer: half as many again as its
// rate needs for a whole grant. What it took in less than rateOver counts as that of so
// long: a few at once are no rate, and what is reserved in vain is in doubt after a loss.
func (c *FastConfig) block(st *state, now time.Time) int64 {
	if st.handedFrom.IsZero() {
		return c.BlockMin
	}
	elapsed := max(now.Sub(st.handedFrom), rateOver)
	want := float64(st.handed) / elapsed.Seconds() * c.Grant.Seconds() * 1.5
	return min(max(int64(want), c.BlockMin), c.BlockMax)
}

// keepGrant asks ahead for the next block of a signer that was written to, when half
// of the block, or a third of the grant or the lease, is used up.
func (sh *shard) keepGrant(g *group, now time.Time) {
	st, fast := g.st, sh.svc.cfg.Fast
	for i := range g.draft.change.Rows {
		if g.draft.change.Rows[i].Fresh {
			st.handed++
		}
	}
	at := time.Now()
	left := st.standing.Ceiling - st.next
	fast.Figures.GrantLeft(left, max(0, st.grantTrusted.Sub(at)))
	block := fast.block(st, at)
	if st.reserving || fast.farAhead(st) || left > block/2 && st.granted(at.Add(fast.Grant*2/3)) && st.term.Trusted(at.Add(sh.svc.cfg.LeaseTTL*2/3)) {
		return
	}
	st.reserving = true
	sh.svc.ahead.ask(refill{sh: sh, st: st, term: ReserveTerm{ID: st.id, Token: st.term.Token, Ceiling: above(st.next, block)}})
}

// refill is a block that is asked for ahead, and what came of it.
type refill struct {
	sh       *shard
	st       *state
	term     ReserveTerm
	reserved Reserved // Applied is false, too, when it could not be asked for
	started  time.Time
}

// refilled hands a block to the shard, which takes it before its next batch. The
// shard is not waited for: one that waits for the store would hold up the blocks of
// all others.
func (sh *shard) refilled(r refill) {
	sh.mu.Lock()
	sh.blocks = append(sh.blocks, r)
	sh.mu.Unlock()
	sh.signal()
}

// takeBlocks follows the blocks that were asked for ahead. A signer that was given
// away meanwhile, or acquired anew, has to ask again.
func (sh *shard) takeBlocks() {
	sh.mu.Lock()
	blocks := sh.blocks
	sh.blocks = nil
	sh.mu.Unlock()
	for _, r := range blocks {
		r.st.reserving = false
		if r.reserved.Applied && r.st.owned && r.st.fast() && r.st.term.Token == r.term.Token {
			sh.reserved(r.st, r.reserved, r.started)
		}
	}
}

// ahead asks for blocks before they are needed, in one goroutine, so that no shard
// waits. Its list has no bound of its own: each signer is in it once at most.
type ahead struct {
	mu   sync.Mutex
	list []refill
	wake chan struct{}
}

func (a *ahead) ask(r refill) {
	a.mu.Lock()
	a.list = append(a.list, r)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *ahead) take() []refill {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.list), reserveBatch)
	out := a.list[:n:n]
	if a.list = a.list[n:]; len(a.list) == 0 {
		a.list = nil
	}
	return out
}

// refill is the goroutine that asks for blocks ahead.
func (s *Service) refill() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.ahead.wake:
		}
		for batch := s.ahead.take(); len(batch) > 0; batch = s.ahead.take() {
			if err := s.refillSome(batch); err != nil && !s.pause(reserveRest) {
				return
			}
		}
	}
}

// refillSome asks for some blocks. One that is not given is asked for again when the
// signer is next handed out from; a lost lease shows in the next write.
func (s *Service) refillSome(batch []refill) error {
	terms := make([]ReserveTerm, len(batch))
	for i := range batch {
		terms[i] = batch[i].term
	}
	res, started, err := s.askBlocks(terms)
	if err != nil {
		s.log.Warn("blocks were not reserved ahead", "signers", len(batch), "error", err)
	}
	for i, r := range batch {
		r.started = started
		if err == nil {
			r.reserved = res[i]
		}
		r.sh.refilled(r)
	}
	return err
}

// pause waits, unless the service stops.
func (s *Service) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.stop:
		return false
	case <-t.C:
		return true
	}
}

// endDoubt makes a signer be read again when its doubt has ended: the nonces that
// were in doubt come back then.
func (sh *shard) endDoubt(st *state) {
	if !st.owned || !st.doubting {
		return
	}
	if now, ok := sh.svc.clock.estimate(sh.marked); ok && now.After(st.standing.DoubtUntil) {
		st.setOwned(sh, false)
	}
}

// Settle makes the signer's worker look at it, so that a signer nobody uses follows
// the cluster too. It reports whether there was a place in the queue. In mode basic
// it does nothing.
func (s *Service) Settle(signer string) bool {
	if s.basic != nil {
		return true
	}
	var p page
	return s.submitSweep(signer, &p)
}
