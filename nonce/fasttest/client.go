package fasttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
)

var _ nonce.Fast = (*Client)(nil)

// Op names a method of nonce.Fast to the hooks.
type Op string

// The methods that hooks see.
const (
	OpRead    Op = "read"
	OpCommit  Op = "commit"
	OpMirror  Op = "mirror"
	OpSeed    Op = "seed"
	OpForget  Op = "forget"
	OpSummary Op = "summary"
	OpRows    Op = "rows"
)

// Call is what a hook sees of a call: the arguments of the method that Op names.
type Call struct {
	Op      Op
	Reads   []nonce.FastRead
	Changes []nonce.FastChange
	Piece   nonce.SeedPiece
	// Scripts is how many scripts the call has, and Run runs one of them on the
	// server, the reply of which nobody gets: what was sent and lands late.
	Scripts int
	Run     func(script int)
}

// Fault is how a call fails. The zero Fault is none. Otherwise of the call's scripts
// the first Ran are run, and of those the replies of the first Replied come back;
// the rest is FastUnknown, or with NotSent FastNotSent, of which none is run.
type Fault struct {
	Broken       bool
	NotSent      bool
	Ran, Replied int
}

// The plain faults.
var (
	NothingSent = Fault{NotSent: true}
	Dropped     = Fault{Broken: true}
	LostReply   = Fault{Broken: true, Ran: 1 << 30}
)

// Hooks make a client fail or wait. They run in the caller's goroutine without any
// lock, so they may block and may use the server.
type Hooks struct {
	// Before runs before anything is sent.
	Before func(Call) Fault
	// After runs when the scripts have run, before the replies are had, and reports
	// whether they are lost.
	After func(Call) (lost bool)
}

// Client is a node's way to a server.
type Client struct {
	mu     sync.Mutex // guards all below
	server *Server
	hooks  Hooks
}

// NewClient makes a client of s.
func NewClient(s *Server) *Client { return &Client{server: s} }

// Point makes the client talk to another server from now on.
func (c *Client) Point(s *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = s
}

// Server is the one the client talks to.
func (c *Client) Server() *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// SetHooks replaces the hooks; calls under way keep the old ones.
func (c *Client) SetHooks(h Hooks) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hooks = h
}

var errBroken = errors.New("the connection to Redis broke")

// call runs the scripts of a call, and says of each whether there is a reply:
// FastDone, or why not. The server is compared with of(i) where that is given.
func (c *Client) call(ctx context.Context, cl Call, run func(s *Server, i int, reply bool), of func(int) nonce.Identity) []nonce.FastResult {
	c.mu.Lock()
	server, hooks := c.server, c.hooks
	c.mu.Unlock()
	cl.Run = func(i int) { run(server, i, false) }
	var f Fault
	if hooks.Before != nil {
		f = hooks.Before(cl)
	}
	out := make([]nonce.FastResult, cl.Scripts)
	if f.NotSent || !f.Broken && ctx.Err() != nil {
		for i := range out {
			out[i] = nonce.FastResult{Verdict: nonce.FastNotSent, Err: errBroken}
		}
		return out
	}
	if !f.Broken {
		f.Ran, f.Replied = cl.Scripts, cl.Scripts
	}
	for i := range min(f.Ran, cl.Scripts) {
		run(server, i, i < f.Replied)
	}
	if hooks.After != nil && hooks.After(cl) {
		f.Replied = 0
	}
	for i := range out {
		switch {
		case i >= f.Replied:
			out[i] = nonce.FastResult{Verdict: nonce.FastUnknown, Err: errBroken}
		case of != nil && !server.is(of(i)):
			out[i] = lost("the server is %v", server.Identity())
		}
	}
	return out
}

func (s *Server) is(id nonce.Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity == id || s.planted.AnyIdentity
}

// Read implements nonce.Fast.
func (c *Client) Read(ctx context.Context, now time.Time, reads []nonce.FastRead) []nonce.FastSnapshot {
	out := make([]nonce.FastSnapshot, len(reads))
	replies := c.call(ctx, Call{Op: OpRead, Reads: reads, Scripts: len(reads)},
		func(s *Server, i int, reply bool) {
			if r := s.read(now, &reads[i]); reply {
				out[i] = r
			}
		},
		func(i int) nonce.Identity { return reads[i].Identity })
	for i, r := range replies {
		if r.Verdict != nonce.FastDone {
			out[i] = nonce.FastSnapshot{Verdict: r.Verdict, Err: r.Err}
		}
	}
	return out
}

// Commit implements nonce.Fast.
func (c *Client) Commit(ctx context.Context, now time.Time, changes []nonce.FastChange) []nonce.FastResult {
	return c.write(ctx, OpCommit, now, changes)
}

// Mirror implements nonce.Fast.
func (c *Client) Mirror(ctx context.Context, now time.Time, changes []nonce.FastChange) []nonce.FastResult {
	return c.write(ctx, OpMirror, now, changes)
}

func (c *Client) write(ctx context.Context, op Op, now time.Time, changes []nonce.FastChange) []nonce.FastResult {
	changes = clone(changes)
	out := make([]nonce.FastResult, len(changes))
	replies := c.call(ctx, Call{Op: op, Changes: changes, Scripts: len(changes)},
		func(s *Server, i int, reply bool) {
			if r := s.commit(now, &changes[i], op == OpCommit); reply {
				out[i] = r
			}
		},
		func(i int) nonce.Identity { return changes[i].Identity })
	for i, r := range replies {
		if r.Verdict != nonce.FastDone {
			out[i] = r
		}
	}
	return out
}

// clone copies what the caller may use again while a script is still to run.
func clone(changes []nonce.FastChange) []nonce.FastChange {
	out := slices.Clone(changes)
	for i := range out {
		c := &out[i]
		c.Rows, c.Requests = slices.Clone(c.Rows), slices.Clone(c.Requests)
		for k := range c.Requests {
			q := &c.Requests[k]
			q.Nonces, q.Attempts = slices.Clone(q.Nonces), slices.Clone(q.Attempts)
		}
	}
	return out
}

// Seed implements nonce.Fast.
func (c *Client) Seed(ctx context.Context, piece nonce.SeedPiece) (nonce.Identity, nonce.FastResult) {
	var out nonce.FastResult
	var identity nonce.Identity
	reply := c.call(ctx, Call{Op: OpSeed, Piece: piece, Scripts: 1},
		func(s *Server, _ int, reply bool) {
			if r := s.seed(&piece); reply {
				out, identity = r, s.Identity()
			}
		}, nil)
	if reply[0].Verdict != nonce.FastDone {
		return nonce.Identity{}, reply[0]
	}
	return identity, out
}

// Forget implements nonce.Fast.
func (c *Client) Forget(ctx context.Context, signers []nonce.FastBelief) error {
	for _, r := range c.call(ctx, Call{Op: OpForget, Scripts: len(signers)}, func(s *Server, i int, _ bool) { s.forget(&signers[i]) }, nil) {
		if r.Verdict != nonce.FastDone {
			return fmt.Errorf("forget signers: %w", r.Err)
		}
	}
	return nil
}

// Summary implements nonce.Fast.
func (c *Client) Summary(ctx context.Context, signer string, identity nonce.Identity, now time.Time) (nonce.Summary, nonce.FastResult) {
	var sum nonce.Summary
	var out nonce.FastResult
	reply := c.call(ctx, Call{Op: OpSummary, Scripts: 1},
		func(s *Server, _ int, _ bool) { sum, out = s.summary(signer, now) }, func(int) nonce.Identity { return identity })
	if reply[0].Verdict != nonce.FastDone {
		return nonce.Summary{}, reply[0]
	}
	return sum, out
}

// Rows implements nonce.Fast.
func (c *Client) Rows(ctx context.Context, signer string, identity nonce.Identity, from int64, limit int) ([]nonce.Row, nonce.FastResult) {
	var rows []nonce.Row
	var out nonce.FastResult
	reply := c.call(ctx, Call{Op: OpRows, Scripts: 1},
		func(s *Server, _ int, _ bool) { rows, out = s.rows(signer, from, limit) }, func(int) nonce.Identity { return identity })
	if reply[0].Verdict != nonce.FastDone {
		return nil, reply[0]
	}
	return rows, out
}
