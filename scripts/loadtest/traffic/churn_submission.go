package traffic

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	goclient "noncegate/client"
	"noncegate/scripts/loadtest/verify"
	"noncegate/wire"
)

const (
	// One in leaveHeld submissions is not marked, so that its request id can be
	// asked again at the end and must be answered the same.
	leaveHeld = 16
	// settleTimeout bounds asking again for what is unknown at the end.
	settleTimeout = 30 * time.Second
)

// submission is a nonce that is asked for and, most of the time, used.
type submission struct {
	by      *goclient.Client
	shard   *shard
	sample  *verify.Sample
	leave   bool
	number  int64
	hold    goclient.Hold // once it was allocated
	pending Method        // what has no outcome yet, while it is unknown
	due     time.Duration
	phase   Phase
}

func newSubmission(l *SteadyLoad, k int) *submission {
	rng := rand.New(rand.NewPCG(uint64(l.steady.Signers.Base), uint64(k)))
	account := l.steady.Signers.Base + rng.Int64N(int64(l.steady.Signers.Count))
	return &submission{
		by: l.clients[k%len(l.clients)], shard: l.meter.shard(k), number: int64(k),
		sample: l.steady.Verify.NewSample(account), leave: k%leaveHeld == 0,
	}
}

// run does a submission that was due in a phase.
func (l *SteadyLoad) run(s *submission, due time.Duration, phase Phase) {
	s.due, s.phase = due, phase
	if !l.counted(s, Allocate, l.allocate(l.ctx, s)) || s.leave {
		return
	}
	s.due = l.clock.now()
	l.counted(s, MarkUsed, l.mark(l.ctx, s))
}

// allocate asks for the nonce, or asks again.
func (l *SteadyLoad) allocate(ctx context.Context, s *submission) error {
	// Nothing but signer and id, for a repeat with other parameters is a conflict.
	a, err := s.by.Allocate(ctx, goclient.AllocateRequest{Signer: verify.Signer(s.sample.Account), RequestID: s.sample.ID})
	if err == nil {
		s.hold = a.Hold()
		l.steady.Verify.Allocated(s.sample.Account, a.Nonce, a.Attempt)
		l.steady.Verify.Answered(s.sample, a.Nonce, a.Attempt, a.Deadline)
	}
	return err
}

// mark says that the nonce was used, or says so again.
func (l *SteadyLoad) mark(ctx context.Context, s *submission) error {
	s.sample.Ending()
	account := s.sample.Account
	_, err := s.by.MarkUsed(ctx, s.hold, verify.TxHash(account, s.hold.Nonce, s.hold.Attempt, s.number))
	if err == nil {
		s.sample.Ended()
		l.steady.Verify.Used(account, s.hold.Nonce, s.hold.Attempt)
	}
	return err
}

// counted counts what became of a call, and returns whether it was acknowledged.
// What is unknown is kept, to be settled.
func (l *SteadyLoad) counted(s *submission, m Method, err error) bool {
	now := l.clock.now()
	if _, unknown := errors.AsType[*goclient.UnknownOutcomeError](err); unknown {
		s.pending = m
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unknown = append(l.unknown, s)
		return false
	}
	if err != nil {
		s.shard.refuse(m, s.due, whyRefused(err))
		return false
	}
	s.shard.acknowledge(m, s.due, now, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	// The value is within the histogram's range, the only error there is.
	l.phases[s.phase].latency.RecordValue(micros(now - s.due))
	return true
}

// whyRefused is the reason of a call that certainly did nothing.
func whyRefused(err error) string {
	for _, known := range []error{
		goclient.ErrDraining, goclient.ErrServerBusy, goclient.ErrUnavailable, goclient.ErrNotOwner, goclient.ErrFenced,
		goclient.ErrConflict, goclient.ErrHoldLimit, goclient.ErrQueueFull,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if _, ok := errors.AsType[*goclient.NotSentError](err); ok {
		return "not sent: no gateway in time"
	}
	return err.Error()
}

// settle asks again for everything whose outcome is unknown. Only an answer or a
// conflict settles it; what stays unknown is failed.
func (l *SteadyLoad) settle() {
	ctx, cancel := context.WithTimeout(l.ctx, settleTimeout)
	defer cancel()
	for _, s := range l.unknown {
		ask := l.allocate
		if s.pending == MarkUsed {
			ask = l.mark
		}
		if err := ask(ctx, s); err == nil || errors.Is(err, goclient.ErrConflict) {
			l.counted(s, s.pending, err)
			l.settled++
			continue
		}
		s.shard.fail(s.due, 1)
		l.steady.Verify.Unanswered(1)
	}
}

// Noticed is what the clients of a steady load noticed of their connections.
type Noticed struct {
	Settled  int64 `json:"settled"`  // calls whose outcome was unknown until they were asked again at the end
	Lost     int64 `json:"lost"`     // connections that broke or were closed
	Closed   int64 `json:"closed"`   // of these, closed in order because their gateway went away (1012)
	Drained  int64 `json:"drained"`  // connections whose gateway answered that it is draining
	Opened   int64 `json:"opened"`   // connections opened to come back
	Failures int64 `json:"failures"` // attempts to come back that failed
}

// Noticed is what the clients noticed until Stop closed them.
func (l *SteadyLoad) Noticed() Noticed { return l.summary }

// Repeated is how many tries were not the last of their call, by why: a gateway's
// reason, "no answer", or "not sent". The calls are counted by their end, so these
// are in no other figure.
func (l *SteadyLoad) Repeated() map[string]int64 { return l.noticed.repeats() }

// sum is the present state of the counters.
func (n *noticed) sum() Noticed {
	var lost int64
	for _, count := range n.reasons() {
		lost += count
	}
	return Noticed{Lost: lost, Closed: n.closed.Load(), Drained: n.drained.Load(), Opened: n.opened.Load(), Failures: n.failures.Load()}
}

// noticed counts what clients log.
type noticed struct {
	closed, drained, opened, failures atomic.Int64

	mu       sync.Mutex       // guards what follows
	lost     map[string]int64 // by reason
	repeated map[string]int64 // by reason
}

// reasons is why connections were lost.
func (n *noticed) reasons() map[string]int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.lost)
}

// repeats is why calls were tried again.
func (n *noticed) repeats() map[string]int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.repeated)
}

// repeat counts a try that was not the last.
func (n *noticed) repeat(r *slog.Record) {
	why := "not known"
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			why = a.Value.String()
		}
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.repeated == nil {
		n.repeated = map[string]int64{}
	}
	n.repeated[why]++
}

// lose counts a connection that was lost.
func (n *noticed) lose(r *slog.Record) {
	why := "not known"
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			why = reason(err)
			if closed, ok := errors.AsType[*goclient.CloseError](err); ok && closed.Code == wire.CloseServiceRestart {
				n.closed.Add(1)
			}
		}
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost == nil {
		n.lost = map[string]int64{}
	}
	n.lost[why]++
}

func (n *noticed) logger() *slog.Logger { return slog.New(counter{n}) }

// counter is a log that counts.
type counter struct{ *noticed }

// Enabled implements slog.Handler.
func (counter) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (c counter) WithAttrs([]slog.Attr) slog.Handler { return c }

// WithGroup implements slog.Handler.
func (c counter) WithGroup(string) slog.Handler { return c }

// Handle implements slog.Handler.
func (c counter) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "connection lost":
		c.lose(&r)
	case "gateway is draining":
		c.drained.Add(1)
	case "connected":
		c.opened.Add(1)
	case "not connected":
		c.failures.Add(1)
	case "trying again":
		c.repeat(&r)
	}
	return nil
}
