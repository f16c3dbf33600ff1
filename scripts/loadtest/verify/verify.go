// Package verify judges whether a gateway kept its promises to a load. It keeps the calls about
// some of the signers, reads in the end what the gateway says of these, and has both judged by
// package history, which also judges the tests that break gateways.
//
// The signers must be unused when the load begins. A request whose answer never came may have
// happened, and is held against nobody. The package starts no goroutine.
package verify

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"noncegate/client"
	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
	"noncegate/wire"
)

// The bounds of what is kept. A call takes some 300 bytes.
const (
	maxSigners    = 64
	maxCalls      = 500_000
	maxViolations = 100 // sentences; all are counted
)

// Recorder is told the calls of a load. Its methods may be called by any goroutine, Judge once
// the load is over.
type Recorder struct {
	urls    []string
	in      access.Access
	began   time.Time
	watched map[int64]bool // accounts

	mu      sync.Mutex // guards what follows
	calls   []history.Call
	dropped int64 // calls that were too many
}

// UsedError says that a signer has allocations already.
type UsedError struct{ Signer string }

func (e *UsedError) Error() string {
	return fmt.Sprintf("signers that are verified must be unused, and %s has been used: choose another --signer-base, or a fresh store", e.Signer)
}

// Start makes the recorder of a load on the accounts from base on, of which it watches some,
// evenly spread. The error is a *UsedError when one of them has been used.
func Start(ctx context.Context, urls []string, in access.Access, base int64, count int) (*Recorder, error) {
	r := &Recorder{urls: urls, in: in, began: time.Now(), watched: make(map[int64]bool)}
	for i := range int64(min(count, maxSigners)) {
		r.watched[base+i*int64(count)/int64(min(count, maxSigners))] = true
	}
	return r, r.read(ctx, func(s *history.StoredSigner) error {
		if s.Next > s.Floor || len(s.Rows) > 0 {
			return &UsedError{s.Signer}
		}
		return nil
	})
}

// Begin is a call about an account that is about to be sent, nil when nobody wants to know of it.
// What is known of it is to be filled in, and what came of it told to End.
func (r *Recorder) Begin(account int64, call history.Call) *history.Call {
	if r == nil || !r.watched[account] {
		return nil
	}
	call.Signer, call.Count, call.Start = Signer(account), 1, time.Since(r.began)
	call.Outcome, call.Reason = history.Unknown, "no answer"
	return &call
}

// End keeps a call, with its answer; nil: there was none. Of nil it keeps nothing.
func (r *Recorder) End(call *history.Call, answer *peer.Reply) {
	if call == nil {
		return
	}
	call.End = time.Since(r.began)
	if answer != nil {
		answer.Settle(call)
	}
	if call.Kind == history.Allocate && call.Outcome == history.Happened {
		var a wire.AllocateResult
		if answer != nil && wire.Unmarshal(answer.Result, &a) == nil { // Settle has read it
			call.HoldMs = a.HoldMs
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.calls) == maxCalls {
		r.dropped++
		return
	}
	r.calls = append(r.calls, *call)
}

// Judge reads the watched signers and judges all of it. Of a load that was interrupted, and
// where not all could be read, only the answers are judged; the latter is an error, too.
func (r *Recorder) Judge(ctx context.Context, interrupted bool) (*result.Verify, error) {
	h := &history.History{Name: "load test", Calls: r.calls, Final: &history.Final{Now: time.Now().UnixMilli()}}
	var err error
	if interrupted {
		h.Final = nil
	} else if err = r.read(ctx, func(s *history.StoredSigner) error {
		h.Final.Signers = append(h.Final.Signers, *s)
		return nil
	}); err != nil {
		h.Final = nil
	}
	v := &result.Verify{Calls: int64(len(r.calls)), Signers: int64(len(r.watched))}
	switch {
	case r.dropped > 0: // what is in the store cannot be explained
		h.Final = nil
		v.Incomplete = fmt.Sprintf("there were %d calls, and %d are kept: make a shorter load, or a slower one on more signers", r.dropped+maxCalls, maxCalls)
	case err != nil:
		v.Incomplete = err.Error()
	}
	found := history.Check(h, history.Limits{MaxOverdue: time.Hour, NoModel: true})
	v.Unknown, v.ViolationCount = int64(found.Unknown), int64(len(found.Violations))
	for _, violation := range found.Violations[:min(len(found.Violations), maxViolations)] {
		v.Violations = append(v.Violations, violation.String())
	}
	if err != nil {
		err = fmt.Errorf("the run is over, but could not be verified: %w", err)
	}
	return v, err
}

// read reads the watched signers through a gateway.
func (r *Recorder) read(ctx context.Context, take func(*history.StoredSigner) error) error {
	c, err := client.Dial(ctx, r.urls[0], r.in.Client(client.Config{}))
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer c.Close() // it returns nil
	for account := range r.watched {
		s, err := read(ctx, c, Signer(account))
		if err != nil {
			return fmt.Errorf("verify: read %s: %w", Signer(account), err)
		}
		if err := take(s); err != nil {
			return err
		}
	}
	return nil
}

// read is what a gateway says of a signer.
func read(ctx context.Context, c *client.Client, signer string) (*history.StoredSigner, error) {
	status, err := c.Status(ctx, signer)
	if err != nil {
		return nil, err
	}
	s := &history.StoredSigner{Signer: signer, Next: status.Next, Floor: status.Floor, Version: status.Version, Token: status.FencingToken}
	for from := (*int64)(new(int64)); from != nil; {
		page, err := c.List(ctx, wire.ListParams{Signer: signer, From: *from, Limit: wire.MaxListLimit})
		if err != nil {
			return nil, err
		}
		for _, a := range page.Allocations {
			row := history.Row{Nonce: a.Nonce, Status: a.Status, Attempt: a.Attempt, TxHash: a.TxHash, Reason: a.Reason}
			if a.HeldUntil != nil {
				row.HeldUntil = time.Time(*a.HeldUntil).UnixMilli()
			}
			if row.Status == history.Held {
				s.Held++
			}
			for _, replaced := range slices.Backward(a.TxHashes[min(1, len(a.TxHashes)):]) {
				row.Replaced = append(row.Replaced, replaced)
			}
			s.Rows = append(s.Rows, row)
		}
		if page.NextFrom != nil && *page.NextFrom <= *from {
			return nil, fmt.Errorf("the page after %d begins at %d", *from, *page.NextFrom)
		}
		from = page.NextFrom
	}
	return s, nil
}

// Signer is the name of an account on the wire. Its length is the same for all, and its last 16
// digits are the account's number in hexadecimal.
func Signer(account int64) string { return fmt.Sprintf("eip155:1:0x%040x", account) }

// TxHash is the hash under which a load marks a nonce used: no two marks of two connections have
// the same.
func TxHash(account, nonce, attempt, connection int64) string {
	return fmt.Sprintf("0x%016x%016x%016x%016x", account, nonce, attempt, connection)
}
