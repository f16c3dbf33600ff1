package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	goclient "noncegate/client"
	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
	"noncegate/wire"
)

// The bounds of what is kept. A call takes some 300 bytes.
const (
	maxWatched    = 64
	maxCalls      = 500_000
	maxViolations = 100 // sentences; all are counted
)

// Recorder judges whether a gateway kept its promises to a load. It keeps the calls about some signers, which must be unused at first,
// reads in the end what the gateway says of these, and has both judged by package history. It starts no goroutine.
type Recorder struct {
	urls    []string
	access  Access
	began   time.Time
	watched map[int64]bool // accounts

	mu      sync.Mutex // guards what follows
	calls   []history.Call
	dropped int64 // calls that were too many
}

// ErrUsed says that a signer has allocations already.
var ErrUsed = errors.New("signers that are verified must be unused: choose another --signer-base, or a fresh store")

// NewRecorder makes a recorder that watches a few of the signers, evenly spread. The error is ErrUsed when one of them has been used.
func NewRecorder(ctx context.Context, urls []string, access Access, s Signers) (*Recorder, error) {
	r := &Recorder{urls: urls, access: access, began: time.Now(), watched: make(map[int64]bool)}
	n := min(s.Count, maxWatched)
	for i := range n {
		r.watched[s.Base+int64(i*s.Count/n)] = true
	}
	stored, err := r.read(ctx)
	for _, s := range stored {
		if s.Next > s.Floor || len(s.Rows) > 0 {
			return r, fmt.Errorf("%w; %s has been used", ErrUsed, s.Signer)
		}
	}
	return r, err
}

// begin is a call that is about to be sent, nil when it is not kept. What came of it is to be told to end.
func (r *Recorder) begin(account int64, call history.Call) *history.Call {
	if r == nil || !r.watched[account] {
		return nil
	}
	call.Signer, call.Count, call.Start = Signer(account), 1, time.Since(r.began)
	call.Outcome, call.Reason = history.Unknown, "no answer"
	return &call
}

// end keeps a call, with its answer; nil: there was none. Of nil it keeps nothing.
func (r *Recorder) end(call *history.Call, answer *peer.Reply) {
	if call == nil {
		return
	}
	call.End = time.Since(r.began)
	if answer != nil {
		answer.Settle(call)
	}
	if call.Kind == history.Allocate && call.Outcome == history.Happened {
		var a wire.AllocateResult
		if wire.Unmarshal(answer.Result, &a) == nil { // Settle has read it
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

// Judge reads the watched signers and judges all of it, once the load is over. Of one that was interrupted only the answers are judged.
func (r *Recorder) Judge(ctx context.Context, interrupted bool) (*result.Verify, error) {
	h := &history.History{Name: "load test", Calls: r.calls}
	v := &result.Verify{Calls: int64(len(r.calls)), Signers: int64(len(r.watched))}
	var err error
	if !interrupted {
		final := &history.Final{Now: time.Now().UnixMilli()}
		if final.Signers, err = r.read(ctx); err == nil {
			h.Final = final
		} else {
			v.Incomplete = err.Error()
			err = fmt.Errorf("the run is over, but could not be verified: %w", err)
		}
	}
	if r.dropped > 0 { // what is in the store cannot be explained
		h.Final = nil
		v.Incomplete = fmt.Sprintf("there were %d calls, and %d are kept: make a shorter load, or a slower one on more signers",
			r.dropped+maxCalls, maxCalls)
	}
	found := history.Check(h, history.Limits{MaxOverdue: time.Hour, NoModel: true})
	v.Unknown, v.ViolationCount = int64(found.Unknown), int64(len(found.Violations))
	for _, violation := range found.Violations[:min(len(found.Violations), maxViolations)] {
		v.Violations = append(v.Violations, violation.String())
	}
	return v, err
}

// read reads the watched signers.
func (r *Recorder) read(ctx context.Context) (stored []history.StoredSigner, err error) {
	c, err := goclient.Dial(ctx, r.urls[0], r.access.client(goclient.Config{}))
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	defer c.Close() // it returns nil
	for account := range r.watched {
		s, err := readSigner(ctx, c, Signer(account))
		if err != nil {
			return nil, fmt.Errorf("verify: read %s: %w", Signer(account), err)
		}
		stored = append(stored, *s)
	}
	return stored, nil
}

func readSigner(ctx context.Context, c *goclient.Client, signer string) (*history.StoredSigner, error) {
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
			row.Replaced = slices.Clone(a.TxHashes[min(1, len(a.TxHashes)):])
			slices.Reverse(row.Replaced)
			s.Rows = append(s.Rows, row)
		}
		if page.NextFrom != nil && *page.NextFrom <= *from {
			return nil, fmt.Errorf("the page after %d begins at %d", *from, *page.NextFrom)
		}
		from = page.NextFrom
	}
	return s, nil
}
