package fasttest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"noncegate/nonce"
)

// Server is one life of one Redis server. Its methods are safe for concurrent use.
type Server struct {
	mu       sync.Mutex // guards all below
	identity nonce.Identity
	data     *data
	planted  Planted
}

// Planted are mistakes that a test plants, to see that it finds them.
type Planted struct {
	AnyToken    bool // a lower token than the one that is there is let in
	AnyVersion  bool // the version is not compared
	AnyIdentity bool // the server is not compared
	KeepToken   bool // a take-over reads, and does not put its token there
}

// data is what a backup copies.
type data struct {
	signers map[string]*entry
	stream  []nonce.FlushEvent
}

// entry is what Redis has of one signer.
type entry struct {
	id             int64
	token, version int64
	whole          bool // the last piece of a copy has come
	copyOf         int64
	pieces         int // of the copy that have come
	serves         bool
	next           int64
	floor, held    int64
	rows           map[int64]row
	requests       map[string]nonce.Remembered
}

type row struct {
	nonce.Row
	version int64 // of the change that wrote it
}

// NewServer makes an empty server with an identity of its own; life tells it from
// others of the test.
func NewServer(life int) *Server {
	return &Server{identity: identityOf(life), data: &data{signers: map[string]*entry{}}}
}

func identityOf(life int) nonce.Identity {
	return nonce.Identity{RunID: fmt.Sprintf("run%d", life), ReplID: fmt.Sprintf("repl%d", life)}
}

// Identity is the server's.
func (s *Server) Identity() nonce.Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}

// Plant makes the server wrong.
func (s *Server) Plant(p Planted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planted = p
}

// Flush empties the server, which keeps its identity, as FLUSHALL does.
func (s *Server) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = &data{signers: map[string]*entry{}}
}

// Forget removes the keys of one signer.
func (s *Server) Forget(signer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.data.signers, signer)
}

// Restart makes it another life of the server, with what it had.
func (s *Server) Restart(life int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = identityOf(life)
}

// Replica is another server that has a copy: what a failover makes of a replica,
// while the server itself may live on.
func (s *Server) Replica(life int) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Server{identity: identityOf(life), data: s.data.clone(), planted: s.planted}
}

// Backup is the content of a server at one moment.
type Backup struct{ data *data }

// Backup takes a copy of the content.
func (s *Server) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Backup{s.data.clone()}
}

// Restore puts a backup back. The identity stays: a real server that is set back has
// been restarted, see Restart.
func (s *Server) Restore(b *Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = b.data.clone()
}

// Has tells token and version of a signer; ok is false where there is nothing whole.
func (s *Server) Has(signer string) (token, version int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.data.signers[signer]
	if e == nil || !e.whole {
		return 0, 0, false
	}
	return e.token, e.version, true
}

// Pending is how many events wait to be flushed.
func (s *Server) Pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.data.stream)
}

func (d *data) clone() *data {
	c := &data{signers: make(map[string]*entry, len(d.signers)), stream: slices.Clone(d.stream)}
	for name, e := range d.signers {
		copied := *e
		copied.rows, copied.requests = maps.Clone(e.rows), maps.Clone(e.requests)
		c.signers[name] = &copied
	}
	return c
}

// check compares what a script compares before it writes anything.
func (s *Server) check(b *nonce.FastBelief, takeOver bool) (*entry, nonce.FastResult) {
	e := s.data.signers[b.Signer]
	switch {
	case e == nil || !e.whole:
		return nil, lost("the keys of %q are missing", b.Signer)
	case e.token > b.Token && !s.planted.AnyToken:
		return nil, nonce.FastResult{Verdict: nonce.FastFenced, Err: fmt.Errorf("token %d is there", e.token)}
	}
	if takeOver && !e.serves {
		return nil, lost("what is there of %q is a copy that never served", b.Signer)
	}
	if takeOver && !s.planted.KeepToken {
		e.token = max(e.token, b.Token)
	}
	switch {
	case e.token != b.Token && !s.planted.AnyToken && !s.planted.KeepToken:
		return nil, lost("token %d is there, and not %d", e.token, b.Token)
	case s.planted.AnyVersion:
	case takeOver && (e.version < b.Version || nonce.EpochOf(e.version) != nonce.EpochOf(b.Version)):
		return nil, lost("version %d is there, and the store has %d", e.version, b.Version)
	case !takeOver && e.version != b.Version:
		return nil, lost("version %d is there, and not %d", e.version, b.Version)
	}
	return e, nonce.FastResult{}
}

func lost(format string, args ...any) nonce.FastResult {
	return nonce.FastResult{Verdict: nonce.FastLost, Err: fmt.Errorf("%w: "+format, append([]any{nonce.ErrLost}, args...)...)}
}

// commit runs one script. event: the store has not got the change yet.
func (s *Server) commit(now time.Time, c *nonce.FastChange, event bool) nonce.FastResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, r := s.check(&nonce.FastBelief{Signer: c.Signer, Token: c.Token, Version: c.Version}, false)
	if r.Verdict != nonce.FastDone {
		return r
	}
	for i := range c.Requests {
		if _, known := e.requests[c.Requests[i].ID]; known && event {
			return nonce.FastResult{Verdict: nonce.FastKnown, Err: fmt.Errorf("request %q is known", c.Requests[i].ID)}
		}
	}
	if c.Check {
		return nonce.FastResult{}
	}
	if r := compare(e, c); r.Verdict != nonce.FastDone {
		return r
	}
	ev := e.apply(now, c)
	if event {
		s.data.stream = append(s.data.stream, ev)
		return nonce.FastResult{}
	}
	for n, r := range e.rows {
		if r.Status == nonce.Consumed {
			delete(e.rows, n) // the store has it for good
		}
	}
	return nonce.FastResult{}
}

// compare looks whether the rows are as the change says. As with the script, what is
// not was lost.
func compare(e *entry, c *nonce.FastChange) nonce.FastResult {
	for i := range c.Rows {
		rc := &c.Rows[i]
		r, exists := e.rows[rc.Nonce]
		switch {
		case rc.Fresh && (exists || rc.Nonce < e.next && rc.Reason != nonce.ReasonRepair):
		case rc.Fresh, !exists && rc.FromStatus == nonce.Consumed, exists && r.Status == rc.FromStatus && r.Attempt == rc.FromAttempt:
			continue
		}
		return lost("%s: nonce %d is %v#%d (%v), and the change is %+v", c.Signer, rc.Nonce, r.Status, r.Attempt, exists, *rc)
	}
	return nonce.FastResult{}
}

// apply writes a change, whose conditions hold, and returns its event.
func (e *entry) apply(now time.Time, c *nonce.FastChange) nonce.FlushEvent {
	ev := nonce.FlushEvent{
		ID: c.ID, Signer: c.Signer, Token: c.Token, From: e.version, To: e.version + 1, At: now,
		Next: c.Next, Floor: c.Floor, Held: c.Held, BelowFloor: c.BelowFloor,
	}
	e.version++
	e.next, e.floor, e.held = c.Next, c.Floor, c.Held
	for i := range c.Rows {
		rc := &c.Rows[i]
		r := nonce.Row{Nonce: rc.Nonce, Status: rc.Status, Attempt: rc.Attempt, Token: c.Token, Holder: rc.Holder, TxHash: rc.TxHash, Replaced: rc.Replaced, Reason: rc.Reason}
		if rc.Status == nonce.Held {
			r.HeldUntil = now.Add(rc.Hold)
		}
		e.rows[rc.Nonce] = row{r, e.version}
		ev.Rows = append(ev.Rows, nonce.FlushRow{
			Nonce: rc.Nonce, Fresh: rc.Fresh, Status: r.Status, Attempt: r.Attempt, Token: r.Token, Holder: r.Holder, TxHash: r.TxHash,
			Replaced: r.Replaced, Reason: r.Reason, HeldUntil: r.HeldUntil,
		})
	}
	for n, r := range e.rows {
		if c.BelowFloor && n < c.Floor && r.Status == nonce.Released {
			r.Status, r.Reason, r.Token, r.version = nonce.Consumed, nonce.ReasonBelowFloor, c.Token, e.version
			e.rows[n] = r
		}
	}
	for _, q := range c.Requests {
		q.Nonces, q.Attempts = slices.Clone(q.Nonces), slices.Clone(q.Attempts)
		kept := nonce.Remembered{Request: q, At: now}
		e.requests[q.ID] = kept
		ev.Requests = append(ev.Requests, kept)
	}
	return ev
}

// sorted are the rows in order of nonce.
func (e *entry) sorted() []nonce.Row {
	rows := make([]nonce.Row, 0, len(e.rows))
	for _, r := range e.rows {
		rows = append(rows, r.Row)
	}
	slices.SortFunc(rows, func(a, b nonce.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	return rows
}
