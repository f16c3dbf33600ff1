package traffic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	goclient "noncegate/client"
	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/verify"
)

// Steady says what clients send that do what good clients do: they reconnect,
// and retry by request id, until they have an answer or lose patience. A
// submission allocates a nonce and marks it used; some are left held. They come
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
	// Verify is told every answer; it must not be nil.
	Verify *verify.Recorder
	// Progress is as in Load.
	Progress func(result.Second)
}

// Validate returns a *FieldError for the first field that breaks its rule.
func (s *Steady) Validate() error {
	return validate(s.URLs, []rule{
		{"Connections", outside(s.Clients, 1, maxConnections), "must be 1 to 1000000"},
		{"Rate", !(s.Rate > 0 && s.Rate <= 1e6), "must be above 0 and at most 1000000 submissions a second"},
		{"Patience", s.Patience <= 0, "must be above 0"},
		{"MaxWaiting", outside(s.MaxWaiting, 1, maxConnections), "must be 1 to 1000000"},
		{"Signers", outside(s.Signers.Count, 1, maxSigners), "must be 1 to 1000000000"},
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

	summary Noticed // set by Stop
}

// Start dials all clients and begins to send. The caller must call Stop. ctx
// bounds only the dialling.
func (s Steady) Start(ctx context.Context) (*SteadyLoad, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	l := &SteadyLoad{steady: s, meter: newMeter(), clients: make([]*goclient.Client, s.Clients), slots: make(chan struct{}, s.MaxWaiting)}
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
	l.sending.Go(func() { l.clock.pace(l.pacing, s.Rate, never, l.seconds.end, l.submit) })
	return l, nil
}

// dial opens the clients' first connections.
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

// submit begins the k-th submission.
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
	l.summary = l.noticed.sum()
	lost := l.noticed.reasons() // before the clients are closed, as the summary
	l.summary.Settled = l.settled
	l.close()
	l.seconds.end()
	res := &result.Run{
		Started: l.started.UTC(), Targets: l.steady.URLs, Seconds: measured.Seconds(),
		Opened: int64(len(l.clients)) + l.summary.Opened, Lost: lost,
		Load: result.Load{
			Connections: l.steady.Clients, Inflight: 1, Rate: l.steady.Rate, Signers: l.steady.Signers.Count,
			SignerBase: l.steady.Signers.Base, Distribution: l.steady.Signers.String(), Duration: measured.Seconds(),
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
