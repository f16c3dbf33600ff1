package traffic

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	goclient "noncegate/client"
	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/verify"
	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
	"noncegate/wire"
)

// Steady says what clients send that do what good clients do: they reconnect,
// and retry by request id, until they have an answer or lose patience. A
// submission allocates a nonce and marks it used. They come
// at even times, and latency counts from when each should have begun, so that it
// has all the waiting for a gateway that is away.
type Steady struct {
	// URLs are the gateways. Each client begins with another one, and goes to the
	// next when it loses one.
	URLs []string
	// Access is how the clients are let in.
	Access access.Access
	// Clients is how many there are, 1 to 1,000,000, each with a connection.
	Clients int
	// Rate is how many submissions a second begin, above 0.
	Rate float64
	// Patience is how long a client tries to get one answer, above 0.
	Patience time.Duration
	// MaxWaiting is how many submissions may be under way at a time; one that is
	// due while they are is counted as unsent. 1 to 1,000,000.
	MaxWaiting int
	// Signers are the accounts they allocate of.
	Signers Signers
	// Verify is told the calls; nil: nobody is.
	Verify *verify.Recorder
	// Progress is as in Load.
	Progress func(result.Second)
}

// Validate returns a *FieldError for the first field that breaks its rule.
func (s *Steady) Validate() error {
	return validate(s.URLs, []rule{
		{"connections", outside(s.Clients, 1, maxConnections), "must be 1 to 1000000"},
		{"rate", !(s.Rate > 0 && s.Rate <= 1e6), "must be above 0 and at most 1000000 submissions a second"},
		{"patience", s.Patience <= 0, "must be above 0"},
		{"max-waiting", outside(s.MaxWaiting, 1, maxConnections), "must be 1 to 1000000"},
		{"signers", outside(s.Signers.Count, 1, maxSigners), "must be 1 to 1000000000"},
	})
}

// Phase is a part of a steady load's time.
type Phase int

// The phases of a restart.
const (
	Before Phase = iota // no gateway was away yet
	During              // one is away
	After               // all are there again
	phaseCount
)

// String is the phase's name in results.
func (p Phase) String() string { return [phaseCount]string{"before", "while one is away", "after"}[p] }

// SteadyLoad is a Steady that runs. It has a goroutine, one for each submission
// under way, and those of its clients; Stop ends them.
type SteadyLoad struct {
	steady  Steady
	salt    string // of the request ids of this run
	started time.Time
	clock   clock
	meter   *meter
	clients []*goclient.Client
	noticed noticed
	slots   chan struct{}
	phase   atomic.Int32

	ctx      context.Context // of the submissions
	cancel   context.CancelFunc
	pacing   context.Context
	end      context.CancelFunc
	sending  sync.WaitGroup
	underway sync.WaitGroup
	seconds  seconds // of the goroutine that paces

	mu      sync.Mutex // guards what follows
	phases  [phaseCount]*figures
	unknown []*submission // whose outcome is not known yet
	settled int64
}

// Start dials all clients and begins to send. The caller must call Stop. ctx
// bounds only the dialling.
func (s Steady) Start(ctx context.Context) (*SteadyLoad, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	l := &SteadyLoad{steady: s, salt: rand.Text()[:10], meter: newMeter(), clients: make([]*goclient.Client, s.Clients), slots: make(chan struct{}, s.MaxWaiting)}
	for i := range l.phases {
		l.phases[i] = newFigures()
	}
	if err := l.dial(ctx); err != nil {
		l.close()
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.pacing, l.end = context.WithCancel(context.Background())
	l.started = time.Now()
	l.clock = clock{l.started}
	l.seconds = seconds{meter: l.meter, clock: l.clock, tell: s.Progress}
	l.meter.begin.Store(0)
	l.sending.Go(func() { l.clock.pace(l.pacing, s.Rate, l.seconds.end, l.submit) })
	return l, nil
}

func (l *SteadyLoad) dial(ctx context.Context) error {
	dialing, ctx := errgroup.WithContext(ctx)
	dialing.SetLimit(dialers)
	for i := range l.clients {
		dialing.Go(func() error {
			at := i % len(l.steady.URLs)
			others := slices.Concat(l.steady.URLs[at+1:], l.steady.URLs[:at])
			c, err := goclient.Dial(ctx, l.steady.URLs[at], l.steady.Access.Client(goclient.Config{
				URLs: others, Logger: l.noticed.logger(), MaxElapsed: l.steady.Patience, BackoffMax: comeBackMost,
			}))
			if err != nil {
				return fmt.Errorf("connect: %w", err)
			}
			l.clients[i] = c
			return nil
		})
	}
	return dialing.Wait()
}

// comeBackMost is the longest pause of a client between two attempts. It is
// shorter than the default, for restarts are what is looked at.
const comeBackMost = 2 * time.Second

// Enter says that submissions due from now on belong to a phase.
func (l *SteadyLoad) Enter(p Phase) { l.phase.Store(int32(p)) }

func (l *SteadyLoad) submit(k int, due time.Duration) {
	select {
	case l.slots <- struct{}{}:
	default:
		l.meter.shard(k).leave(due, 1)
		return
	}
	phase := Phase(l.phase.Load())
	l.underway.Go(func() {
		defer func() { <-l.slots }()
		l.run(newSubmission(l, k), due, phase)
	})
}

// Stop lets no submission begin any more, waits for those under way, asks again
// for what is unknown, and closes all clients. When ctx ends, what is under way
// is given up and stays unknown.
func (l *SteadyLoad) Stop(ctx context.Context) *result.Run {
	l.end()
	l.sending.Wait()
	measured := l.clock.now()
	stop := context.AfterFunc(ctx, l.cancel)
	defer stop()
	l.underway.Wait()
	l.settle()
	l.cancel()
	n := &l.noticed
	noticed := &result.Restart{
		Settled: l.settled, Closed: n.closed.Load(), Drained: n.drained.Load(), Opened: n.opened.Load(), Failures: n.failures.Load(), Repeated: n.repeated.all(),
	}
	lost := n.lost.all() // before the clients are closed, as the rest
	l.close()
	l.seconds.end()
	res := &result.Run{
		Command: "restart", Started: l.started.UTC(), Targets: l.steady.URLs, Seconds: measured.Seconds(),
		Opened: int64(len(l.clients)) + noticed.Opened, Lost: lost, Restart: noticed,
		Load: result.Load{
			Connections: l.steady.Clients, Inflight: 1, Rate: l.steady.Rate, Signers: l.steady.Signers.Count,
			SignerBase: l.steady.Signers.Base, Duration: measured.Seconds(),
		},
	}
	l.meter.report(res)
	for phase, f := range l.phases {
		if latency := summary(f.latency); latency.Count > 0 {
			res.Phases = append(res.Phases, result.Phase{Name: Phase(phase).String(), LatencyMs: latency})
		}
	}
	return res
}

func (l *SteadyLoad) close() {
	var closing errgroup.Group
	closing.SetLimit(dialers)
	for _, c := range l.clients {
		if c != nil {
			closing.Go(c.Close)
		}
	}
	closing.Wait() // Close returns nil
}

// settleTimeout bounds asking again for what is unknown at the end.
const settleTimeout = 30 * time.Second

// submission is a nonce that is asked for and used.
type submission struct {
	by      *goclient.Client
	shard   *shard
	account int64
	id      string // request id
	number  int64
	hold    goclient.Hold // once it was allocated
	pending Method        // what has no outcome yet, while it is unknown
	due     time.Duration
	phase   Phase
}

func newSubmission(l *SteadyLoad, k int) *submission {
	rng := mathrand.New(mathrand.NewPCG(uint64(l.steady.Signers.Base), uint64(k)))
	account := l.steady.Signers.Base + rng.Int64N(int64(l.steady.Signers.Count))
	return &submission{
		by: l.clients[k%len(l.clients)], shard: l.meter.shard(k), number: int64(k),
		account: account, id: fmt.Sprintf("%s-%d", l.salt, k),
	}
}

// run does a submission that was due in a phase.
func (l *SteadyLoad) run(s *submission, due time.Duration, phase Phase) {
	s.due, s.phase = due, phase
	if l.counted(s, Allocate, l.allocate(l.ctx, s)) {
		s.due = l.clock.now()
		l.counted(s, MarkUsed, l.mark(l.ctx, s))
	}
}

// allocate asks for the nonce, or asks again.
func (l *SteadyLoad) allocate(ctx context.Context, s *submission) error {
	// Nothing but signer and id, for a repeat with other parameters is a conflict.
	call := l.begin(s, history.Call{Kind: history.Allocate, RequestID: s.id})
	a, err := s.by.Allocate(ctx, goclient.AllocateRequest{Signer: verify.Signer(s.account), RequestID: s.id})
	if err == nil {
		s.hold = a.Hold()
		l.told(call, a.AllocateResult, nil)
	} else {
		l.told(call, nil, err)
	}
	return err
}

// mark says that the nonce was used, or says so again.
func (l *SteadyLoad) mark(ctx context.Context, s *submission) error {
	tx := verify.TxHash(s.account, s.hold.Nonce, s.hold.Attempt, s.number)
	call := l.begin(s, history.Call{Kind: history.MarkUsed, Nonce: s.hold.Nonce, Attempt: s.hold.Attempt, TxHash: tx})
	m, err := s.by.MarkUsed(ctx, s.hold, tx)
	l.told(call, m, err)
	return err
}

// begin begins the record of a call, where somebody wants to know of it.
func (l *SteadyLoad) begin(s *submission, call history.Call) *history.Call {
	call.Client, call.Node = int(s.number)%len(l.clients), "any"
	return l.steady.Verify.Begin(s.account, call)
}

// told keeps a call and what came of it. One that was certainly not sent was none.
func (l *SteadyLoad) told(call *history.Call, answer any, err error) {
	refusal, refused := errors.AsType[*wire.Error](err)
	_, unknown := errors.AsType[*goclient.UnknownOutcomeError](err)
	switch {
	case call == nil:
	case err == nil:
		text, err := wire.Marshal(answer)
		if err == nil {
			l.steady.Verify.End(call, &peer.Reply{Result: text})
		}
	case unknown:
		l.steady.Verify.End(call, nil)
	case refused:
		l.steady.Verify.End(call, &peer.Reply{Error: refusal})
	}
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
	}
}

type noticed struct {
	closed, drained, opened, failures atomic.Int64

	lost, repeated tallies
}

// repeat counts a try that was not the last.
func (n *noticed) repeat(r slog.Record) {
	for a := range r.Attrs {
		if a.Key == "reason" {
			n.repeated.add(a.Value.String())
		}
	}
}

func (n *noticed) lose(r slog.Record) {
	for a := range r.Attrs {
		if err, ok := a.Value.Any().(error); ok {
			n.lost.add(reason(err))
			if closed, ok := errors.AsType[*goclient.CloseError](err); ok && closed.Code == wire.CloseServiceRestart {
				n.closed.Add(1)
			}
		}
	}
}

func (n *noticed) logger() *slog.Logger { return slog.New(counter{n}) }

// counter is a log that counts.
type counter struct{ *noticed }

func (counter) Enabled(context.Context, slog.Level) bool { return true }

func (c counter) WithAttrs([]slog.Attr) slog.Handler { return c }

func (c counter) WithGroup(string) slog.Handler { return c }

func (c counter) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "connection lost":
		c.lose(r)
	case "gateway is draining":
		c.drained.Add(1)
	case "connected":
		c.opened.Add(1)
	case "not connected":
		c.failures.Add(1)
	case "trying again":
		c.repeat(r)
	}
	return nil
}
