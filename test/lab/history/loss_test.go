package history

import (
	"slices"
	"testing"
)

// The times of a loss in these histories, in milliseconds.
const (
	lossGrant  = 500
	lossMargin = 100
	lossBlock  = 3 // nonces that were reserved and that nobody was told of
)

// lose declares the signer lost with Redis. What was handed out of forgotten is not
// stored. The doubt ends with the longest hold after the old grant.
func (w *world) lose(forgotten ...int64) {
	l := Loss{Signer: "s", Epoch: int64(len(w.h.Losses)) + 1, Ceiling: w.stored.Next + lossBlock, Token: w.token + 1, At: w.now, GrantUntil: w.now + lossGrant}
	l.DoubtUntil = l.GrantUntil + hold + lossMargin
	doubtful := Row{Status: Released, Reason: inDoubt, Attempt: l.Epoch << attemptShift}
	for _, n := range forgotten {
		doubtful.Nonce = n
		*w.row(n) = doubtful
	}
	for ; w.stored.Next < l.Ceiling; w.stored.Next++ {
		doubtful.Nonce = w.stored.Next
		w.stored.Rows = append(w.stored.Rows, doubtful)
	}
	w.stored.Version++
	w.token += 2
	w.h.Losses = append(w.h.Losses, l)
}

// loss is the last one.
func (w *world) loss() *Loss { return &w.h.Losses[len(w.h.Losses)-1] }

// forgetSecond hands a nonce out twice, and the second time is forgotten.
func (w *world) forgetSecond() {
	w.allocate("")
	w.now += 2 * hold
	w.allocate("")
	w.lose()
	*w.row(0) = Row{Nonce: 0, Status: Released, Attempt: 1, Reason: expired}
}

// undoubted is the time when the last doubt has ended.
func (w *world) undoubted() { w.now = w.loss().DoubtUntil }

// old makes an allocate as the owner before the loss answers it until its grant ends:
// of the epoch before, and stored nowhere.
func (w *world) old(n int64) *Call {
	c := w.call(Call{Kind: Allocate, Count: 1, HoldMs: hold, Outcome: Happened, Token: 1, HeldUntil: w.now + 10 + hold})
	c.Nonces = []Given{{n, 1}}
	return c
}

func TestWhatALossAllowsIsNotCalledWrong(t *testing.T) {
	for name, make := range map[string]func(w *world){
		"a hand-out that the store did not have is forgotten": func(w *world) {
			w.allocate("")
			w.allocate("")
			w.lose(1)
		},
		"its nonce comes back after the doubt, with an attempt of the new epoch": func(w *world) {
			w.allocate("")
			w.lose(0)
			w.undoubted()
			w.allocate("")
		},
		"new nonces begin at the ceiling meanwhile": func(w *world) {
			w.allocate("")
			w.lose(0)
			w.allocate("")
			w.undoubted()
			w.allocate("")
		},
		"the old owner hands out until its grant ends": func(w *world) {
			w.allocate("")
			w.lose()
			w.allocate("")
			w.old(1)
		},
		"a request id that was forgotten gets other nonces": func(w *world) {
			w.allocate("r")
			delete(w.ids, "r")
			w.lose(0)
			w.allocate("r")
		},
		"a mark of use is recorded in doubt": func(w *world) {
			w.allocate("")
			w.lose()
			w.mark(MarkUsed, 0, 1)
		},
		"the holder before a hand-out that was forgotten marks late": func(w *world) {
			w.forgetSecond()
			w.mark(MarkUsed, 0, 1)
		},
		"what only the old owner handed out is stored": func(w *world) {
			w.allocate("")
			w.forget(w.allocate("")) // nobody asks for it again
			w.h.Calls = w.h.Calls[:1]
			w.lose()
		},
		"versions go on from what the store had": func(w *world) {
			w.allocate("")
			w.status().Version += 5
			w.lose()
			w.status()
		},
		"a floor that nobody acknowledged is forgotten": func(w *world) {
			w.allocate("")
			w.status().FloorNow = 1
			w.lose()
			w.status()
		},
		"there is a second loss": func(w *world) {
			w.allocate("")
			w.lose(0)
			w.undoubted()
			w.allocate("")
			w.lose()
			w.undoubted()
			w.allocate("")
		},
	} {
		w := newWorld()
		make(w)
		if r := check(w.end()); !r.OK() {
			t.Errorf("%s: found %v", name, r.Violations)
		}
	}
}

// badLosses are histories across a loss with one thing wrong.
var badLosses = []bad{
	{
		name: "the store forgets a hand-out although nothing was lost", rule: RefusedDone,
		make:  func(w *world) { w.allocate(""); w.lose(0) },
		spoil: func(h *History) { h.Losses = nil },
	},
	{
		name: "a hand-out that began after the old grant is forgotten", rule: liveHold,
		make:  func(w *world) { w.allocate(""); w.allocate(""); w.lose(1) },
		spoil: func(h *History) { h.Losses[0].GrantUntil = h.Calls[1].Start.Milliseconds() - 100 },
	},
	{
		name: "a hand-out of the new epoch is forgotten", rule: HoldLost,
		make: func(w *world) { w.lose(); w.allocate("") },
		spoil: func(h *History) {
			s := &h.Final.Signers[0]
			s.Rows[lossBlock] = Row{Nonce: lossBlock, Status: Released, Reason: inDoubt}
			s.Held = 0
		},
	},
	{
		name: "the old epoch handed out from above its ceiling", rule: liveHold,
		make:  func(w *world) { w.allocate(""); w.lose(); w.old(lossBlock + 1) },
		spoil: func(h *History) {},
	},
	{
		name: "the old epoch hands out after its grant", rule: liveHold,
		make: func(w *world) {
			w.allocate("")
			w.lose()
			w.now = w.loss().GrantUntil + 20
			w.old(1)
		},
		spoil: func(h *History) {},
	},
	{
		name: "a doubtful nonce is handed out while somebody may hold it", rule: liveHold,
		make: func(w *world) {
			w.allocate("")
			w.lose(0)
			w.now = w.loss().DoubtUntil - 20
			w.loss().DoubtUntil = 0 // this gateway does not wait for it
			w.allocate("")
		},
		spoil: func(h *History) { h.Losses[0].DoubtUntil = h.Losses[0].GrantUntil + hold + lossMargin },
	},
	{
		name: "an attempt that was lost is given again", rule: OneHolder,
		make:  func(w *world) { w.allocate(""); w.lose(0); w.undoubted(); w.allocate("") },
		spoil: func(h *History) { last(h, Allocate).Nonces[0].Attempt = 1; h.Final.Signers[0].Rows[0].Attempt = 1 },
	},
	{
		name: "a mark that was acknowledged is lost", rule: consumedStays,
		make:  func(w *world) { w.allocate(""); w.mark(MarkUsed, 0, 1); w.lose(0) },
		spoil: func(h *History) {},
	},
	{
		name: "a nonce is handed out after its use was acknowledged in doubt", rule: consumedStays,
		make:  func(w *world) { w.allocate(""); w.lose(); w.mark(MarkUsed, 0, 1); w.old(0).Nonces[0].Attempt = 2 },
		spoil: func(h *History) {},
	},
	{
		name: "a late mark is accepted after a hand-out that was not forgotten", rule: attemptBack,
		make:  func(w *world) { w.forgetSecond(); w.mark(MarkUsed, 0, 1) },
		spoil: func(h *History) { h.Final.Signers[0].Rows[0].Attempt = 2 },
	},
	{
		name: "a late mark is accepted before the hand-out was forgotten", rule: attemptBack,
		make: func(w *world) { w.forgetSecond(); w.mark(MarkUsed, 0, 1) },
		spoil: func(h *History) {
			h.Losses[0].At, h.Losses[0].GrantUntil = last(h, MarkUsed).End.Milliseconds()+1, last(h, MarkUsed).End.Milliseconds()+lossGrant
		},
	},
	{
		name: "a nonce that was used late is handed out by the old owner", rule: consumedStays,
		make:  func(w *world) { w.forgetSecond(); w.mark(MarkUsed, 0, 1); w.old(0).Nonces[0].Attempt = 2 },
		spoil: func(h *History) { h.Calls = append(h.Calls[:1], h.Calls[2:]...) },
	},
	{
		name: "a request id gets two answers of one epoch", rule: OneAnswer,
		make: func(w *world) {
			w.allocate("r")
			delete(w.ids, "r")
			w.lose(0)
			w.allocate("r")
			delete(w.ids, "r")
			w.allocate("r")
		},
		spoil: func(h *History) {},
	},
	{
		name: "the token of the new owner goes back", rule: tokenBack,
		make: func(w *world) {
			w.allocate("")
			w.lose()
			w.token = 5
			w.allocate("")
			w.allocate("").Token = 4
		},
		spoil: func(h *History) {},
	},
	{
		name: "the old owner's token is used after its grant", rule: tokenBack,
		make: func(w *world) {
			w.allocate("")
			w.lose()
			w.allocate("")
			w.now = w.loss().GrantUntil + 20
			w.old(1)
		},
		spoil: func(h *History) {},
	},
	{
		name: "a floor that was acknowledged is lost", rule: tokenBack,
		make:  func(w *world) { w.allocate(""); w.floor(1); w.lose() },
		spoil: func(h *History) { h.Final.Signers[0].Floor = 0 },
	},
	{
		name: "the ceiling of a loss is below what the status showed", rule: tokenBack,
		make: func(w *world) {
			w.status().Next += lossBlock + 2
			w.now += 20
			w.lose()
			w.now = w.loss().GrantUntil + 20
			w.status()
		},
		spoil: func(h *History) {},
	},
	{
		name: "the status shows an older version of one epoch", rule: tokenBack,
		make: func(w *world) {
			w.status().Version++
			w.status()
			w.now += 20
			w.lose()
		},
		spoil: func(h *History) {},
	},
	{
		name: "the status shows an older cursor once the old grant has ended", rule: tokenBack,
		make: func(w *world) {
			w.lose()
			w.now = w.loss().GrantUntil + 20
			w.status()
			w.status().Next--
		},
		spoil: func(h *History) {},
	},
	{
		name: "a nonce is in doubt that was never lost", rule: RefusedDone,
		make:  func(w *world) { w.allocate(""); w.lose(0) },
		spoil: func(h *History) { h.Losses = nil },
	},
	{
		name: "a hand-out of the new epoch is stored that nobody was told of", rule: RefusedDone,
		make:  func(w *world) { w.lose(); w.allocate(""); w.allocate("") },
		spoil: func(h *History) { h.Calls = h.Calls[1:] },
	},
}

func TestEveryRuleOfALossFindsWhatItForbids(t *testing.T) {
	for _, tt := range badLosses {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.make(w)
			h := w.end()
			tt.spoil(h)
			r := check(h)
			if !slices.Contains(r.Rules(), tt.rule) {
				t.Errorf("found %v, want %q", r.Violations, tt.rule)
			}
		})
	}
}

func TestALossOfOneSignerForgivesAnotherNothing(t *testing.T) {
	w := newWorld()
	w.allocate("")
	w.lose(0)
	w.loss().Signer = "t"
	if rules := check(w.end()).Rules(); !slices.Contains(rules, RefusedDone) {
		t.Errorf("found %v, want %q", rules, RefusedDone)
	}
}
