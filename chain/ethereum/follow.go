package ethereum

import (
	"context"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/time/rate"

	"noncegate/chain"
)

const (
	minInterval   = 250 * time.Millisecond // between polls, by default
	maxInterval   = 6500 * time.Millisecond
	firstInterval = time.Second // before the time between blocks is known
	// remembered is how many blocks below the newest are remembered, at least.
	remembered = 256
	// blockTimeOver is over how many blocks the time between them is measured.
	blockTimeOver = 32
	// grace is how long slower nodes are waited for, once one has answered.
	minGrace = 20 * time.Millisecond
	maxGrace = 500 * time.Millisecond
	// aheadOfTime is how far a block may be dated into the future before its node is not
	// believed against others.
	aheadOfTime = time.Minute
	// pollBurst is how many announcements in a row make a poll each at once.
	pollBurst = 3
)

// follower finds out what the newest and the final block are. It belongs to the
// goroutine of Run.
type follower struct {
	c  *Client
	on func(chain.Head)

	views    map[*node]*view // the last one of each node that answers
	asked    map[*node]bool  // polled, and not heard of yet
	rests    map[*node]*rest // nodes that failed, and are asked less often
	reader   *node           // that shows blocks with their transactions
	pollRate *rate.Limiter   // of polls that announcements make

	branch *branches
	canon  *canon
	bodies map[chain.Hash]*block // read for a head that is not adopted yet
	kept   chain.Block           // the newest block; zero before the first
	agreed chain.Block           // the newest that two nodes have; kept where there is one node
	final  chain.Block
	fallen chain.Block // was final before it fell; zero: none fell, or it stands again
	odd    int         // decisions in a row in which another block than the final one was called that
	deep   int         // in which the newest block was above no block that is final
	lacks  int         // without a final block; negative: it was said
	failed int         // decisions in a row in which blocks of the new head could not be read
	lower  int         // in which the final block was below what it was
	below  int         // in which all nodes were below what was final

	farAt time.Time // when a node was last not far below the newest block
}

// rest is how long a node that failed is left alone.
type rest struct {
	until   time.Time
	session uint64 // a new one ends the rest
	pace    *backoff.ExponentialBackOff
}

func newFollower(c *Client, on func(chain.Head)) *follower {
	return &follower{
		c: c, on: on,
		views: map[*node]*view{}, asked: map[*node]bool{}, rests: map[*node]*rest{},
		reader:   c.nodes[0],
		farAt:    time.Now(),
		pollRate: rate.NewLimiter(rate.Inf, pollBurst),
		branch:   newBranches(),
		canon:    newCanon(remembered + max(c.set.finality, 0) + int64(c.set.MaxBlocksBehind)),
		bodies:   map[chain.Hash]*block{},
	}
}

// run follows the chain until ctx ends.
func (f *follower) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-f.c.views: // of a node that was late
			f.take(v)
			f.decide(ctx)
			continue
		case <-f.c.newHead:
			if !slices.ContainsFunc(f.c.nodes, func(n *node) bool { return n.news(f.kept) }) {
				continue
			}
			if wait := f.waitForPoll(); wait > 0 {
				due = earlier(due, time.Now().Add(wait))
				timer.Reset(time.Until(due))
				continue
			}
		case <-f.c.back:
		case <-timer.C:
		}
		begin := time.Now()
		f.pollRate.Allow()
		f.round(ctx)
		f.decide(ctx)
		due = begin.Add(f.interval())
		timer.Reset(max(time.Until(due), time.Millisecond))
	}
}

// waitForPoll returns how long to wait before an announcement makes a poll: a node
// that tells of blocks without end does not make polls without end.
func (f *follower) waitForPoll() time.Duration {
	f.pollRate.SetLimit(rate.Every(max(f.interval()/4, minGrace)))
	r := f.pollRate.Reserve()
	defer r.Cancel() // the poll takes it
	return r.Delay()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// interval is the time between two polls.
func (f *follower) interval() time.Duration {
	if f.c.set.PollInterval > 0 {
		return f.c.set.PollInterval
	}
	blockTime := f.blockTime()
	if blockTime == 0 {
		return firstInterval
	}
	share, longest := blockTime*13/24, maxInterval // so that there are two polls a block at most
	if slices.ContainsFunc(f.c.nodes, (*node).announces) {
		share, longest = blockTime*3/4, maxInterval*3/2 // one of the two is that of an announcement
	}
	return min(max(share, minInterval), longest)
}

// announces reports whether the node tells of new blocks by itself.
func (n *node) announces() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.upLocked() && n.subscribed && n.onBranch
}

// blockTime is the time between blocks, over the last ones; 0: unknown.
func (f *follower) blockTime() time.Duration {
	for n := f.kept.Number - blockTimeOver; n < f.kept.Number; n++ {
		if b, ok := f.canon.at(n); ok {
			return max(f.kept.Time.Sub(b.Time), 0) / time.Duration(f.kept.Number-n)
		}
	}
	return 0
}

// round polls all nodes side by side and waits for them, for slow ones not long. A node
// that has not answered the round before is not asked again meanwhile.
func (f *follower) round(ctx context.Context) {
	f.pickReader()
	waiting := map[*node]bool{}
	for _, n := range f.c.nodes {
		if f.asked[n] || f.resting(n) {
			continue
		}
		n.polls <- pollOrder{full: n == f.reader} // has room: the node is idle
		f.asked[n], waiting[n] = true, true
	}
	var over <-chan time.Time
	for len(waiting) > 0 {
		select {
		case v := <-f.c.views:
			f.take(v)
			delete(waiting, v.n)
			if over == nil && v.err == nil {
				over = time.After(min(max(f.interval()/4, minGrace), maxGrace))
			}
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// pickReader chooses the node that shows the newest block with its transactions: the one that did,
// as long as it is as good as others.
func (f *follower) pickReader() {
	if f.reader.eligible() && !f.asked[f.reader] {
		return
	}
	usable := func(n *node) bool { return !f.asked[n] && !f.resting(n) }
	for _, n := range f.c.nodes {
		if n.eligible() && usable(n) {
			f.reader = n
			return
		}
	}
	for _, n := range f.c.nodes {
		if usable(n) {
			f.reader = n
			return
		}
	}
}

func (f *follower) resting(n *node) bool {
	r := f.rests[n]
	return r != nil && time.Now().Before(r.until) && n.link.Session() == r.session
}

// take keeps what a node said.
func (f *follower) take(v *view) {
	delete(f.asked, v.n)
	if v.err == nil {
		f.views[v.n] = v
		delete(f.rests, v.n)
		f.branch.add(v.head.Block)
		f.c.noteExample(v.head.uses)
		return
	}
	delete(f.views, v.n)
	r := f.rests[v.n]
	if r == nil {
		r = &rest{pace: &backoff.ExponentialBackOff{
			InitialInterval: f.interval(), RandomizationFactor: 0.2, Multiplier: 2, MaxInterval: maxPause,
		}}
		r.pace.Reset()
		f.rests[v.n] = r
	}
	r.session, r.until = v.n.link.Session(), time.Now().Add(r.pace.NextBackOff())
	if until := v.n.pausedUntil(usePolls); !until.IsZero() { // it has said for how long
		r.until = until
	}
}

// decide makes a Head of what the nodes said last, and tells of it if it is another one.
func (f *follower) decide(ctx context.Context) {
	claims := f.claims()
	head := chain.Head{Latest: f.kept, Agreed: f.agreed, Final: f.final}
	changed := f.reset(claims, &head)
	f.learn(ctx, claims)
	if f.advance(ctx, claims, &head) {
		changed = true
	}
	f.judge(claims)
	if f.agree(claims) {
		changed = true
	}
	if f.settleFinal(ctx, claims, &head) {
		changed = true
	}
	if changed && ctx.Err() == nil {
		f.publish(head)
	}
	for _, n := range f.c.nodes {
		n.wakeIfSilent(f.blockTime())
	}
}

// advance adopts the newest block, if it is another one. Where its blocks cannot be read,
// the claims of others are looked at: a block that no node shows does not hold up one that
// is there.
func (f *follower) advance(ctx context.Context, claims []claim, head *chain.Head) bool {
	claims = slices.Clone(claims)
	for ctx.Err() == nil {
		i := choose(claims, f.kept, int64(f.c.set.Lag), f.branch.at)
		if i < 0 || claims[i].head.Hash == f.kept.Hash {
			return false
		}
		if f.adopt(ctx, claims[i], head, len(claims) == 1, f.voters(claims, claims[i])) {
			return true
		}
		claims = slices.Delete(claims, i, i+1)
	}
	return false
}

// publish tells of a Head.
func (f *follower) publish(head chain.Head) {
	head.Latest, head.Agreed, head.Final = f.kept, f.agreed, f.final
	c := f.c
	c.mu.Lock()
	if c.head.Hash != f.kept.Hash {
		c.headAt = time.Now()
	}
	c.head, c.final = f.kept, f.final
	c.mu.Unlock()
	if head.Reorg != nil {
		c.m.reorgs.Inc()
		c.log.Warn("blocks were replaced", "from", head.Reorg.From.Number, "to", head.Reorg.To.Number, "depth", head.Reorg.Depth)
	}
	if head.FinalFell {
		c.m.finalFell.Inc()
		c.log.Error("a final block is not final any more: the nodes were reset, or they lie", "final", f.final.Number)
	}
	f.on(head)
}
