package flush

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// streams are the flush shards of a Redis that never fails unless told to.
type streams struct {
	mu        sync.Mutex
	shards    map[int][]Entry
	dead      map[int][]DeadLetter
	n         int
	readErr   error
	ackErr    error
	forgotten []int64 // nonces that left Redis because the store has them CONSUMED
}

func newStreams() *streams {
	return &streams{shards: make(map[int][]Entry), dead: make(map[int][]DeadLetter)}
}

func (q *streams) push(shard int, events ...nonce.FlushEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range events {
		q.n++
		q.shards[shard] = append(q.shards[shard], Entry{Entry: fmt.Sprintf("%06d", q.n), FlushEvent: e})
	}
}

func (q *streams) set(readErr, ackErr error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readErr, q.ackErr = readErr, ackErr
}

func (q *streams) left() (alive, dead int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.shards {
		alive += len(s)
	}
	for _, s := range q.dead {
		dead += len(s)
	}
	return alive, dead
}

func (q *streams) Events(_ context.Context, shard, most int, _ time.Duration, accepted []nonce.Identity) ([]Entry, nonce.Identity, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(accepted) == 0 {
		return nil, nonce.Identity{}, redisstore.ErrIdentity
	}
	return slices.Clone(q.shards[shard][:min(most, len(q.shards[shard]))]), nonce.Identity{}, q.readErr
}

func (q *streams) Ack(_ context.Context, shard int, done []Entry) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ackErr != nil {
		return q.ackErr
	}
	for i, e := range done {
		if q.shards[shard][i].Entry != e.Entry {
			return errors.New("an event is before what was flushed")
		}
		for _, r := range e.Rows {
			if r.Status == nonce.Consumed {
				q.forgotten = append(q.forgotten, r.Nonce)
			}
		}
	}
	q.shards[shard] = q.shards[shard][len(done):]
	return nil
}

func (q *streams) Bury(_ context.Context, shard int, e Entry, why string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead[shard] = append(q.dead[shard], DeadLetter{ID: e.Entry, Event: e, Why: why})
	q.shards[shard] = slices.DeleteFunc(slices.Clone(q.shards[shard]), func(o Entry) bool { return o.Entry == e.Entry })
	return true, nil
}

func (q *streams) Dead(_ context.Context, shard int, _ string, most int) ([]DeadLetter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.dead[shard][:min(most, len(q.dead[shard]))]), nil
}

func (q *streams) Drop(_ context.Context, shard int, ids []string) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead[shard] = slices.DeleteFunc(q.dead[shard], func(d DeadLetter) bool { return slices.Contains(ids, d.ID) })
	return len(ids), nil
}

// signerRow is what the store has of one signer.
type signerRow struct {
	version int64
	engine  nonce.Engine
	next    int64
	rows    map[int64]nonce.FlushRow
	ids     map[string]bool
	locked  bool
}

// rows is a store that follows events as the contract of Apply says.
type rows struct {
	mu      sync.Mutex
	signers map[int64]*signerRow
	fail    func(events []nonce.FlushEvent) (err error, after bool) // after: it has happened then
	calls   [][]nonce.FlushEvent
}

func newRows(ids ...int64) *rows {
	r := &rows{signers: make(map[int64]*signerRow)}
	for _, id := range ids {
		r.signers[id] = &signerRow{engine: nonce.Performance, rows: make(map[int64]nonce.FlushRow), ids: make(map[string]bool)}
	}
	return r
}

func (l *rows) at(id int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.signers[id].version
}

func (l *rows) with(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *rows) transactions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

func (l *rows) Versions(_ context.Context, ids []int64) ([]nonce.RowVersion, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]nonce.RowVersion, len(ids))
	for i, id := range ids {
		out[i] = nonce.RowVersion{Version: l.signers[id].version, Engine: l.signers[id].engine}
	}
	return out, nil
}

func (l *rows) Apply(_ context.Context, _ time.Duration, events []nonce.FlushEvent) ([]nonce.FlushVerdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, events)
	var late error
	if l.fail != nil {
		err, after := l.fail(events)
		if err != nil && !after {
			return nil, err
		}
		late = err
	}
	out := make([]nonce.FlushVerdict, len(events))
	next := make(map[int64]*signerRow)
	for i := range events {
		e := &events[i]
		s := l.signers[e.ID]
		if next[e.ID] != nil {
			return nil, errors.New("a signer is in it twice")
		}
		if out[i] = verdict(s, e); out[i] != nonce.FlushApplied {
			continue
		}
		n, err := s.follow(e)
		if err != nil {
			return nil, &nonce.StoreError{Outcome: nonce.Aborted, Err: err}
		}
		next[e.ID] = n
	}
	maps.Copy(l.signers, next)
	return out, late
}

func verdict(s *signerRow, e *nonce.FlushEvent) nonce.FlushVerdict {
	switch {
	case s.engine != nonce.Performance || nonce.EpochOf(s.version) > nonce.EpochOf(e.To):
		return nonce.FlushOver
	case s.locked:
		return nonce.FlushLocked
	case s.version >= e.To:
		return nonce.FlushAlready
	case s.version > e.From:
		return nonce.FlushPartly
	case s.version < e.From:
		return nonce.FlushGap
	}
	return nonce.FlushApplied
}

// follow is the signer after the event.
func (s *signerRow) follow(e *nonce.FlushEvent) (*signerRow, error) {
	n := &signerRow{version: e.To, engine: s.engine, next: e.Next, rows: maps.Clone(s.rows), ids: maps.Clone(s.ids)}
	for _, r := range e.Rows {
		was, there := n.rows[r.Nonce]
		if there == r.Fresh || there && was.Status == nonce.Consumed && !mayChange(&was, &r) {
			return nil, fmt.Errorf("nonce %d: %w", r.Nonce, nonce.ErrInvariant)
		}
		r.Fresh = false
		n.rows[r.Nonce] = r
	}
	for _, r := range e.Requests {
		if n.ids[r.ID] {
			return nil, fmt.Errorf("request %s: %w", r.ID, nonce.ErrInvariant)
		}
		n.ids[r.ID] = true
	}
	for at, r := range n.rows {
		if e.BelowFloor && at < e.Floor && r.Status == nonce.Released {
			r.Status, r.Reason = nonce.Consumed, nonce.ReasonBelowFloor
			n.rows[at] = r
		}
	}
	return n, nil
}

// mayChange reports whether what is CONSUMED may become r: by a repair, or with hashes
// that it did not have.
func mayChange(was, r *nonce.FlushRow) bool {
	repair := r.Status == nonce.Held && r.Attempt > was.Attempt && r.Reason == nonce.ReasonRepair
	return repair || r.Status == nonce.Consumed && r.Attempt == was.Attempt && (was.TxHash == nonce.TxHash{} || r.Replaced.Contains(was.TxHash))
}

// desk is where a worker's hooks and figures are written down.
type desk struct {
	mu        sync.Mutex
	flushed   map[string]int64
	conflicts []string
	retries   map[RetryReason]int
	settled   map[nonce.FlushVerdict]int
	buried    int
	locks     *locks
	nodes     int
	hurry     atomic.Bool
}

func newDesk() *desk {
	return &desk{flushed: make(map[string]int64), retries: make(map[RetryReason]int), settled: make(map[nonce.FlushVerdict]int), locks: newLocks(), nodes: 1}
}

func (d *desk) hooks() Hooks {
	return Hooks{
		OpenLock: d.locks.open,
		Accepted: func() []nonce.Identity { return []nonce.Identity{{RunID: "a"}} },
		Nodes:    func() int { d.mu.Lock(); defer d.mu.Unlock(); return d.nodes },
		Hurry:    func() bool { return d.hurry.Load() },
		Flushed:  func(signer string, v int64) { d.mu.Lock(); defer d.mu.Unlock(); d.flushed[signer] = v },
		Conflict: func(signer string, _ error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.conflicts = append(d.conflicts, signer)
		},
		Figures: d,
	}
}

func (d *desk) Applied(time.Duration, int, int) {}
func (d *desk) Settled(v nonce.FlushVerdict, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled[v] += n
}
func (d *desk) Retry(r RetryReason) { d.mu.Lock(); defer d.mu.Unlock(); d.retries[r]++ }
func (d *desk) Buried(n int)        { d.mu.Lock(); defer d.mu.Unlock(); d.buried += n }

func (d *desk) retried(r RetryReason) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.retries[r]
}

func (d *desk) look(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// locks are the advisory locks of one store.
type locks struct {
	mu  sync.Mutex
	who map[int]*session
}

type session struct {
	locks *locks
	lost  bool
}

var errLockLost = errors.New("the connection is lost")

func newLocks() *locks { return &locks{who: make(map[int]*session)} }

func (l *locks) open(context.Context) (nonce.FlushLock, error) { return &session{locks: l}, nil }

// breakAll loses every connection there is.
func (l *locks) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.who {
		s.lost = true
	}
	clear(l.who)
}

func (s *session) TryShard(_ context.Context, shard int) (bool, error) {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	if s.lost {
		return false, errLockLost
	}
	if s.locks.who[shard] == s {
		return false, errors.New("it is asked for twice")
	}
	if s.locks.who[shard] != nil {
		return false, nil
	}
	s.locks.who[shard] = s
	return true, nil
}

func (s *session) ReleaseShard(_ context.Context, shard int) error {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	if s.locks.who[shard] != s {
		return errors.New("it is not held")
	}
	delete(s.locks.who, shard)
	return nil
}

func (s *session) Alive(context.Context) error {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	if s.lost {
		return errLockLost
	}
	return nil
}

func (s *session) Close() error {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	maps.DeleteFunc(s.locks.who, func(_ int, o *session) bool { return o == s })
	return nil
}

// start begins a worker of a test, which stops with it.
func start(t *testing.T, q Queue, l Ledger, d *desk, cfg Config) *Worker {
	t.Helper()
	cfg.LeaseTTL = time.Second
	w, err := Start(t.Context(), q, l, d.hooks(), slog.New(slog.DiscardHandler), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// event is the change of signer id from version from on.
func event(id, from int64, rows ...nonce.FlushRow) nonce.FlushEvent {
	return nonce.FlushEvent{ID: id, Signer: fmt.Sprint("s", id), Token: 1, From: from, To: from + 1, Rows: rows}
}

func fresh(n int64) nonce.FlushRow {
	return nonce.FlushRow{Nonce: n, Fresh: true, Status: nonce.Held, Attempt: 1}
}

func used(n int64) nonce.FlushRow {
	return nonce.FlushRow{Nonce: n, Status: nonce.Consumed, Attempt: 1}
}
