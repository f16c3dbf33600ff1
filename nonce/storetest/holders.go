package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
)

var holderRules = []rule{
	{"owners that keep taking over, paused ones and locked transactions side by side never hand out the same twice", func(f *fixture) {
		book := &handOuts{fixture: f, given: make(map[string]string)}
		var all sync.WaitGroup
		for i, h := range []lease.Holder{f.alice, f.bob} {
			o := &owner{handOuts: book, holder: h, rnd: rand.New(rand.NewPCG(1, uint64(i)))}
			all.Go(func() { o.work(150) })
		}
		basic := &owner{handOuts: book, rnd: rand.New(rand.NewPCG(1, 9))}
		all.Go(func() { basic.workLocked(60) })
		all.Wait()
		book.complete()
	}},
}

// handOuts is what all of them were told.
type handOuts struct {
	*fixture
	mu    sync.Mutex        // guards given
	given map[string]string // by nonce and attempt, to whom
}

var bounds = rules.Rules{DefaultHold: 5 * ttl, MaxLive: 64}

func (b *handOuts) told(who string, op *nonce.Request, a *rules.Answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, n := range a.Nonces {
		key := fmt.Sprintf("%d#%d", n, a.Attempts[i])
		if other, there := b.given[key]; there {
			b.Errorf("%s was handed out to %s and to %s", key, other, who)
		}
		b.given[key] = who
	}
}

// complete checks that every nonce that was handed out is somewhere, with no lower attempt.
func (b *handOuts) complete() {
	b.Helper()
	name := b.named(0, 0)
	var all []int64
	s := b.read(name).Signer
	for n := range s.Next {
		all = append(all, n)
	}
	history := b.load(nonce.SignerNeed{Signer: name, History: all})[0].History
	for n := range s.Next {
		at, live := s.Find(n)
		switch past := history[n]; {
		case live && past != nil:
			b.Errorf("nonce %d is live and in the history", n)
		case !live && past == nil:
			b.Errorf("nonce %d is nowhere", n)
		case live && b.given[fmt.Sprintf("%d#%d", n, s.Live[at].Attempt)] == "":
			b.Errorf("nonce %d is held as attempt %d, which nobody was told of", n, s.Live[at].Attempt)
		}
	}
	if len(b.given) < 50 {
		b.Errorf("only %d hand-outs say little", len(b.given))
	}
}

// owner is a node that remembers the signer, rightly or not.
type owner struct {
	*handOuts
	holder lease.Holder
	rnd    *rand.Rand
	term   lease.ShardTerm
	known  *nonce.Signer   // nil: it must be read
	mine   []nonce.Request // marks to come, of nonces it was told
}

func (o *owner) ops() []*nonce.Request {
	ops := []*nonce.Request{{Kind: nonce.KindAllocate, Count: 1 + o.rnd.IntN(2), Principal: 7}}
	if len(o.mine) > 0 {
		mark := o.mine[0]
		o.mine = o.mine[1:]
		ops = append(ops, &mark)
	}
	return ops
}

// keep notes marks of what was handed out.
func (o *owner) keep(a *rules.Answer) {
	for i, n := range a.Nonces {
		kind := nonce.KindMarkUsed
		if o.rnd.IntN(2) == 0 {
			kind = nonce.KindMarkRecyclable
		}
		o.mine = append(o.mine, nonce.Request{Kind: kind, Nonce: n, Attempt: a.Attempts[i], Principal: 7})
	}
}

func (o *owner) plan(s nonce.Signer, token int64, ops []*nonce.Request) *rules.Plan {
	now := o.now().UnixMilli()
	return bounds.Make(&rules.Input{Signer: s, Token: token, Now: nonce.Clock{Earliest: now, Latest: now}}, ops)
}

func (o *owner) written(name string, term lease.ShardTerm, p *rules.Plan) nonce.Write {
	return nonce.Write{Name: name, Term: term, Generation: o.Generation(), Check: !p.Writes, Signer: p.Signer, History: p.History, Requests: p.Requests, NotBefore: p.NotBefore}
}

// lockedLong reports whether nothing happened because somebody else had the row locked for longer
// than the store waits, as on a busy machine.
func lockedLong(err error) bool { return err != nil && nonce.OutcomeOf(err) == nonce.Aborted }

func (o *owner) work(rounds int) {
	name := o.named(0, 0)
	for range rounds {
		if o.rnd.IntN(8) == 0 { // others take over; this node does not know yet
			o.db.Advance(2 * ttl)
		}
		if o.term == (lease.ShardTerm{}) {
			o.renew(o.holder, ttl)
			got, err := o.Acquire(o.Context(), o.holder, []int{0})
			switch {
			case lockedLong(err):
			case err != nil:
				o.Errorf("%v: %v", o.holder, err)
				return
			case got[0].Taken:
				o.term, o.known = lease.ShardTerm{Shard: 0, Token: got[0].Token}, nil
			}
			continue
		}
		if o.known == nil {
			s := o.read(name).Signer
			o.known = &s
		}
		ops := o.ops()
		p := o.plan(*o.known, o.term.Token, ops)
		got, err := o.Commit(o.Context(), o.holder, []nonce.Write{o.written(name, o.term, p)})
		switch {
		case lockedLong(err):
			o.known = nil
		case err != nil:
			o.Errorf("%v: %v", o.holder, err)
			return
		case got.Results[0] == nonce.Applied:
			o.known = &p.Signer
			for i := range p.Answers {
				o.told(o.holder.Node, ops[i], &p.Answers[i])
				o.keep(&p.Answers[i])
			}
		case got.Results[0] == nonce.NotOwner:
			o.term, o.known = lease.ShardTerm{}, nil
		default:
			o.known = nil
		}
	}
}

func (o *owner) workLocked(rounds int) {
	name := o.named(0, 0)
	for range rounds {
		var p *rules.Plan
		ops := o.ops()
		got, err := o.Locked(o.Context(), nonce.SignerNeed{Signer: name}, func(l nonce.Loaded) (nonce.Write, error) {
			now := l.Now.UnixMilli()
			p = bounds.Make(&rules.Input{Signer: l.Signers[0].Signer, Now: nonce.Clock{Earliest: now, Latest: now}}, ops)
			return o.written(name, lease.ShardTerm{}, p), nil
		})
		switch {
		case lockedLong(err):
		case err != nil:
			o.Errorf("basic: %v", err)
			return
		case got.Results[0] == nonce.Applied:
			for i := range p.Answers {
				o.told("basic", ops[i], &p.Answers[i])
				o.keep(&p.Answers[i])
			}
		}
	}
}
