package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"noncegate/wire"
)

// Report is what a run has found.
type Report struct {
	Config
	// What was found on the chain at the end. Payments has those that closed the accounts; Doubled were executed more than once; Gaps are
	// nonces that are missing below transactions in the pool.
	Payments, Executed, NotExecuted, Doubled, Stuck, Gaps int
	Violations                                            []string
	// What happened on the way: seconds until a payment was on the chain, and how often what.
	Median, P99, Max float64
	Happened         map[string]int
}

// pool is a part of what txpool_content answers.
type pool map[common.Address]map[string]struct{ Hash common.Hash }

func (s *soak) pool() (pending, queued pool) {
	var content struct{ Pending, Queued pool }
	if err := s.chain.Call(&content, "txpool_content"); err != nil {
		s.Fatalf("txpool_content: %v", err)
	}
	return content.Pending, content.Queued
}

func (s *soak) look(drained bool) *Report {
	r := &Report{Config: s.cfg}
	is, err := s.read()
	s.must(err)
	s.countPayments(r, is.paid)
	pending, queued := s.pool()
	for account, a := range s.accounts {
		uses, queued := is.uses[account], queued[a.Address]
		s.lookAt(r, account, uses, len(pending[a.Address])+len(queued))
		highest := 0 // that waits in the pool, and one
		for text := range queued {
			n, _ := strconv.Atoi(text) // it is the node's own
			highest = max(highest, n+1)
		}
		r.Gaps += max(0, highest-len(uses)-len(queued))
	}
	if len(s.gateways) > 0 {
		s.lookAtGateways(r)
	}
	for _, g := range s.gateways {
		if err := g.stop(); err != nil {
			r.violate("%v", err)
		}
	}
	if !drained {
		r.violate("not everything has come to an end in time")
	}
	s.mu.Lock()
	r.Violations, r.Happened = append(r.Violations, s.oopses...), maps.Clone(s.happened)
	s.mu.Unlock()
	return r
}

func (r *Report) violate(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
}

func (s *soak) countPayments(r *Report, paid map[uint64]int) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	r.Payments = len(s.ledger.all)
	var waits []float64
	for _, p := range s.ledger.all {
		if !p.seen.IsZero() {
			waits = append(waits, p.seen.Sub(p.came).Seconds())
		}
		switch times := paid[p.id]; times {
		case 0:
			r.NotExecuted++
			r.violate("payment %d of account %d was not executed", p.id, p.account)
		case 1:
			r.Executed++
		default:
			r.Executed++
			r.Doubled++
			r.violate("payment %d of account %d was executed %d times", p.id, p.account, times)
		}
	}
	if n := len(waits); n > 0 {
		slices.Sort(waits)
		r.Median, r.P99, r.Max = waits[n/2], waits[n*99/100], waits[n-1]
	}
}

// lookAt judges one account by the chain: it is stuck when a transaction waits in the pool.
func (s *soak) lookAt(r *Report, account int, uses map[uint64]bool, waiting int) {
	count := s.chain.Nonce(s.accounts[account].Address)
	for n := range count {
		if !uses[n] {
			r.violate("account %d: nonce %d is used by no transaction", account, n)
		}
	}
	if uint64(len(uses)) != count {
		r.violate("account %d: %d transactions and a count of %d", account, len(uses), count)
	}
	if waiting > 0 {
		r.Stuck++
		r.violate("account %d is stuck at nonce %d: %d transactions wait", account, count, waiting)
	}
}

// lookAtGateways compares what the gateways say with the chain.
func (s *soak) lookAtGateways(r *Report) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	c, err := s.dialGateways(ctx, 0)
	if err != nil {
		r.violate("no gateway answers: %v", err)
		return
	}
	defer c.Close()
	for account, a := range s.accounts {
		status, err := c.Status(ctx, s.signer(account))
		for err == nil && status.Chain == nil && sleep(ctx, 100*time.Millisecond) {
			status, err = c.Status(ctx, s.signer(account)) // it has not asked the chain for this one yet
		}
		if err != nil {
			r.violate("status of account %d: %v", account, err)
			continue
		}
		count := int64(s.chain.Nonce(a.Address))
		if status.Next != count || status.Held+status.Unknown+status.Released > 0 || status.Chain == nil ||
			status.Chain.Mined != count || status.Chain.Gap != nil {
			r.violate("account %d: the chain's count is %d, the gateway has next %d, held %d, unknown %d, released %d, and of the chain %+v",
				account, count, status.Next, status.Held, status.Unknown, status.Released, status.Chain)
		}
		list, err := c.List(ctx, wire.ListParams{Signer: s.signer(account)})
		if err != nil {
			r.violate("list of account %d: %v", account, err)
		}
		for _, row := range list.Allocations {
			if row.TxHash == noHash || slices.Contains(row.TxHashes, noHash) {
				r.violate("nonce %d of account %d is listed with a transaction that there is not", row.Nonce, account)
			}
		}
	}
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s: %d accounts for %v, seed %d\n", r.name(), r.Accounts, r.Duration, r.Seed)
	fmt.Fprintf(w, "  payments %d, executed %d, doubled %d, not executed %d; stuck accounts %d, gaps %d\n",
		r.Payments, r.Executed, r.Doubled, r.NotExecuted, r.Stuck, r.Gaps)
	fmt.Fprintf(w, "  on the chain after %.1f s in the median, 99 in 100 within %.1f s, all that are within %.1f s\n", r.Median, r.P99, r.Max)
	for _, name := range slices.Sorted(maps.Keys(r.Happened)) {
		fmt.Fprintf(w, "  %6d %s\n", r.Happened[name], name)
	}
	for i, text := range r.Violations {
		if i == 20 {
			fmt.Fprintf(w, "  … and %d more\n", len(r.Violations)-i)
			break
		}
		fmt.Fprintf(w, "  VIOLATION: %s\n", text)
	}
}

// tableHead and rows are the reports in Markdown.
const tableHead = `| nonces from | payments | stuck accounts | gaps | executed twice | not executed | p99 time to execution | left to be done by hand |
|---|---|---|---|---|---|---|---|
`

func (r *Report) row() string {
	byHand := "nothing"
	if wrong := r.NotExecuted + r.Doubled; r.Stuck > 0 || wrong > 0 {
		byHand = fmt.Sprintf("%d accounts, %d payments", r.Stuck, wrong)
	}
	return fmt.Sprintf("| %s | %d in %.0f s | %d of %d | %d | %d | %d | %.0f s | %s |\n",
		r.name(), r.Payments, r.Duration.Seconds(), r.Stuck, r.Accounts, r.Gaps, r.Doubled, r.NotExecuted, r.P99, byHand)
}
