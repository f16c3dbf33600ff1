// Package verify judges whether a gateway kept its promises to a load: that no
// nonce was handed out twice with one attempt, that every nonce below next is
// accounted for, that what was acknowledged is in the store, and that a request
// id is answered the same when it is asked again.
//
// A Recorder is told every answer while the load runs, from many goroutines, and
// judges what it can at once; a Checker then reads the signers through the
// gateway and judges the rest. Both work in time linear in the number of
// nonces. A Recorder keeps about half a byte for each nonce that is handed out
// once, so that a long run needs no more memory than a short one.
//
// It does not say what a request whose answer never came has done, and holds
// nothing against a gateway that only such a request could explain. It sees what
// the protocol shows: rows that were pruned cannot be told from rows that were
// lost below the lowest one left, unless the load was handed that nonce and did
// not mark it used.
//
// The package starts no goroutine that outlives a call.
package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"noncegate/client"
	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/wire"
)

// readers is how many signers are read at a time, each over a connection of its
// own, because a page of a list needs nearly all the room that a connection has
// for answers.
const readers = 8

// Progress is told how many of all signers were read. It may be called by
// several goroutines.
type Progress func(done, all int)

// Result is what the recorder found out by itself, without asking the gateway.
func (r *Recorder) Result() *result.Verify {
	v := &result.Verify{Allocations: r.allocations.Load(), Repeats: r.repeats.Load(), Unanswered: r.unanswered.Load()}
	v.Violations, v.ViolationCount = r.violations.all()
	return v
}

// Check reads every signer that the recorder was told of through the gateways at
// urls, asks the request ids that were kept again, and judges all of it. The
// load must be over. The result comes with an error when not all could be read:
// it is then what was found until then. progress may be nil.
func (r *Recorder) Check(ctx context.Context, urls []string, in access.Access, progress Progress) (*result.Verify, error) {
	c := &checker{rec: r, in: in, accounts: r.accounts(), progress: progress}
	err := c.run(ctx, urls)
	v := r.Result()
	v.Signers = c.read.Load()
	return v, err
}

// Accounting reads count signers from base on, as Check does, and judges what
// can be judged without knowing what a load was answered. Allocations of its
// result is the number of rows that were read.
func Accounting(ctx context.Context, urls []string, in access.Access, base int64, count int, progress Progress) (*result.Verify, error) {
	c := &checker{rec: NewRecorder(), in: in, progress: progress}
	for i := range count {
		c.accounts = append(c.accounts, base+int64(i))
	}
	err := c.run(ctx, urls)
	v := c.rec.Result()
	v.Signers, v.Allocations = c.read.Load(), c.rows.Load()
	return v, err
}

type checker struct {
	rec        *Recorder
	in         access.Access
	accounts   []int64
	progress   Progress
	read, rows atomic.Int64
}

// run has each reader take the next account, over all of them and then over the
// samples.
func (c *checker) run(ctx context.Context, urls []string) error {
	samples := c.rec.samples.all()
	work := len(c.accounts) + len(samples)
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for reader := range min(readers, max(work, 1)) {
		group.Go(func() error {
			conn, err := client.Dial(ctx, urls[reader%len(urls)], c.in.Client(client.Config{}))
			if err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			defer conn.Close()
			for {
				i := int(next.Add(1)) - 1
				switch {
				case i >= work:
					return nil
				case i < len(c.accounts):
					err = c.account(ctx, conn, c.accounts[i])
				default:
					err = c.rec.ask(ctx, conn, samples[i-len(c.accounts)])
				}
				if err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

func (r *Recorder) ask(ctx context.Context, conn *client.Client, s *Sample) error {
	ended := s.HasEnded()
	a, err := conn.Allocate(ctx, client.AllocateRequest{Signer: Signer(s.Account), RequestID: s.ID})
	if err == nil {
		r.RepeatedResult(s, ended, a.Nonce, a.Attempt)
		return nil
	}
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok || refusal.Code != wire.CodeConflict {
		return fmt.Errorf("verify: repeat request id %s: %w", s.ID, err)
	}
	r.RepeatedRefusal(s, refusal, time.Now())
	return nil
}

func (c *checker) account(ctx context.Context, conn *client.Client, account int64) error {
	signer := Signer(account)
	before, err := conn.Status(ctx, signer)
	if err != nil {
		return fmt.Errorf("verify: status of %s: %w", signer, err)
	}
	j := newJudge(c.rec, account, &before)
	defer j.stop()
	from := int64(0)
	for more := true; more; {
		page, err := conn.List(ctx, wire.ListParams{Signer: signer, From: from, Limit: wire.MaxListLimit})
		if err != nil {
			return fmt.Errorf("verify: list of %s: %w", signer, err)
		}
		for i := range page.Allocations {
			j.row(&page.Allocations[i])
		}
		c.rows.Add(int64(len(page.Allocations)))
		if more = page.NextFrom != nil; more {
			if *page.NextFrom <= from {
				return fmt.Errorf("verify: list of %s: the page after %d begins at %d", signer, from, *page.NextFrom)
			}
			from = *page.NextFrom
		}
	}
	after, err := conn.Status(ctx, signer)
	if err != nil {
		return fmt.Errorf("verify: status of %s: %w", signer, err)
	}
	j.end(&after)
	if done := int(c.read.Add(1)); c.progress != nil {
		c.progress(done, len(c.accounts))
	}
	return nil
}

// accounts are those the recorder was told of, ascending.
func (r *Recorder) accounts() []int64 {
	var all []int64
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		all = slices.AppendSeq(all, maps.Keys(s.byAccount))
		s.mu.Unlock()
	}
	slices.Sort(all)
	return all
}
