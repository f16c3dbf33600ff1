package history

import (
	"slices"
	"time"
)

// againstChain: a nonce came back although a transaction used it, or is lost although none did.
const againstChain Rule = "the chain's word"

// Tx is a transaction that a chain's nodes took from a client.
type Tx struct {
	Signer  string        `json:"signer"`
	Nonce   int64         `json:"nonce"`
	Attempt int64         `json:"attempt"` // the hand-out it was signed for
	Hash    string        `json:"hash"`
	Sent    time.Duration `json:"sent"`            // just before it was sent
	Mined   time.Duration `json:"mined,omitempty"` // when a block first had it; 0: none
	// GivenBack: the client had given the nonce back before it sent, against the rules.
	GivenBack bool `json:"givenBack,omitempty"`
}

// Span is a stretch of a run.
type Span struct {
	From time.Duration `json:"from"`
	To   time.Duration `json:"to"`
}

// Chain is what happened to the signers of a chain in a run, beside its History.
type Chain struct {
	BeganAt int64  `json:"beganAt"` // of the run, store clock, Unix milliseconds
	Calls   []Call `json:"calls"`
	Txs     []Tx   `json:"txs"`
	// Blind are when nodes of the chain did not answer, or not with its newest blocks.
	Blind []Span `json:"blind,omitempty"`
	// Final are the signers as they are stored in the end, Settled when that was read, after a time in which nothing failed.
	Final   []StoredSigner `json:"final"`
	Settled time.Duration  `json:"settled"`
}

// ChainLimits are what CheckChain is told about the run.
type ChainLimits struct {
	// Told is how long a gateway may take to know of a block, once the nodes tell of it.
	Told time.Duration
	// Slack is how long before its deadline a hold is taken as over.
	Slack time.Duration
}

// CheckChain judges hand-outs by what was mined.
//
// Who sends before the deadline has the nonce for good: it is never handed out again. Who sends later, or after he gave it back,
// may meet the next holder, and what is certain then is that nobody gets the nonce once a block has used it and the gateways could
// know. What is CONSUMED in the end has a transaction.
func CheckChain(c *Chain, limits ChainLimits) []Violation {
	r := &Report{Reasons: make(map[string]int), broken: make(map[Rule]int)}
	for _, s := range index(&History{BeganAt: c.BeganAt, Calls: c.Calls, Final: &Final{Signers: c.Final}}, r, Limits{}) {
		sent, mined := make(map[int64]bool), make(map[int64]bool) // by nonce
		for i := range c.Txs {
			if tx := &c.Txs[i]; tx.Signer == s.name {
				known := c.known(tx.Mined, limits.Told)
				sent[tx.Nonce] = true
				mined[tx.Nonce] = mined[tx.Nonce] || tx.Mined > 0 && known < c.Settled
				s.checkTx(tx, known, limits)
			}
		}
		if s.stored == nil {
			continue
		}
		for _, row := range s.stored.Rows {
			if row.Status == Consumed && !sent[row.Nonce] {
				s.wrong(againstChain, "nonce %d is CONSUMED (%s), and nobody sent a transaction", row.Nonce, row.Reason)
			}
			if row.Status != Consumed && mined[row.Nonce] {
				s.wrong(againstChain, "nonce %d is %s in the end, and a block has used it", row.Nonce, row.Status)
			}
		}
	}
	return r.Violations
}

// checkTx judges the hand-outs of a nonce by a transaction of it.
func (s *signer) checkTx(tx *Tx, known time.Duration, limits ChainLimits) {
	given := s.nonce(tx.Nonce).given
	until := time.Duration(0) // the deadline of the hand-out that it was signed for
	if i := slices.IndexFunc(given, func(g handOut) bool { return g.attempt == tx.Attempt }); i >= 0 {
		until = time.Duration(given[i].call.HeldUntil-s.BeganAt) * time.Millisecond
	}
	for _, g := range given {
		if g.attempt > tx.Attempt && tx.Sent+limits.Slack < until && !tx.GivenBack {
			s.wrong(againstChain, "nonce %d attempt %d was handed out (%v), and the holder of attempt %d had sent %s at %v, before his hold ended at %v",
				tx.Nonce, g.attempt, g.call.End, tx.Attempt, tx.Hash, tx.Sent, until)
		}
		if tx.Mined > 0 && g.call.Start > known {
			s.wrong(againstChain, "nonce %d attempt %d was handed out (%v to %v), and a block had used it at %v", tx.Nonce, g.attempt, g.call.Start, g.call.End, tx.Mined)
		}
	}
}

// known is when every gateway must know of what a block had at a time.
func (c *Chain) known(at, told time.Duration) time.Duration {
	known := at + told
	for _, b := range c.Blind { // in order of time
		if b.From <= known && b.To+told > known {
			known = b.To + told
		}
	}
	return known
}
