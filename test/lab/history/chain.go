package history

import (
	"fmt"
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
	type nonce struct {
		signer string
		n      int64
	}
	var found []Violation
	wrong := func(of nonce, format string, args ...any) {
		found = append(found, Violation{Rule: againstChain, Signer: of.signer, Text: fmt.Sprintf("nonce %d: ", of.n) + fmt.Sprintf(format, args...)})
	}
	given := make(map[nonce][]handOut)
	for i := range c.Calls {
		call := &c.Calls[i]
		if call.Kind != Allocate || call.Outcome != Happened {
			continue
		}
		for _, g := range call.Nonces {
			of := nonce{call.Signer, g.Nonce}
			given[of] = append(given[of], handOut{call: call, attempt: g.Attempt})
		}
	}
	sent := make(map[nonce]bool)
	for i := range c.Txs {
		tx := &c.Txs[i]
		of := nonce{tx.Signer, tx.Nonce}
		sent[of] = true
		until := c.heldUntil(given[of], tx.Attempt)
		for _, g := range given[of] {
			if g.attempt > tx.Attempt && tx.Sent+limits.Slack < until && !tx.GivenBack {
				wrong(of, "attempt %d was handed out (%v), and the holder of attempt %d had sent %s at %v, before his hold ended at %v",
					g.attempt, g.call.End, tx.Attempt, tx.Hash, tx.Sent, until)
			}
			if known := c.known(tx.Mined, limits.Told); tx.Mined > 0 && g.call.Start > known {
				wrong(of, "attempt %d was handed out (%v to %v), and a block had used it at %v", g.attempt, g.call.Start, g.call.End, tx.Mined)
			}
		}
	}
	for _, s := range c.Final {
		for _, row := range s.Rows {
			of := nonce{s.Signer, row.Nonce}
			mined := slices.ContainsFunc(c.Txs, func(tx Tx) bool {
				return tx.Signer == s.Signer && tx.Nonce == row.Nonce && tx.Mined > 0 && c.known(tx.Mined, limits.Told) < c.Settled
			})
			if row.Status == Consumed && !sent[of] {
				wrong(of, "it is CONSUMED (%s), and nobody sent a transaction", row.Reason)
			}
			if row.Status != Consumed && mined {
				wrong(of, "it is %s in the end, and a block has used it", row.Status)
			}
		}
	}
	return found
}

// heldUntil is the deadline of a hand-out, since the beginning of the run.
func (c *Chain) heldUntil(given []handOut, attempt int64) time.Duration {
	for _, g := range given {
		if g.attempt == attempt {
			return time.Duration(g.call.HeldUntil-c.BeganAt) * time.Millisecond
		}
	}
	return 0
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
