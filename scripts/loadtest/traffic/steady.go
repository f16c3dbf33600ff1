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

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	goclient "noncegate/client"
	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
	"noncegate/wire"
)

// Steady says what good clients send: they reconnect, and retry by request id, until they have an answer or lose patience. A submission
// allocates a nonce and marks it used. Latency counts from when each should have begun, so it has all the waiting for a gateway.
type Steady struct {
	// URLs are the gateways. Each client begins with another one, and goes to the next when it loses one.
	URLs    []string
	Access  Access
	Clients int     // each with a connection
	Rate    float64 // submissions a second that begin, above 0
	// Patience is how long a client tries to get one answer, above 0.
	Patience time.Duration
	// MaxWaiting is how many submissions may be under way at a time; one that is due while they are is counted as unsent.
	MaxWaiting int
	Signers    Signers
	Verify     *Recorder           // is told the calls; nil: they are not kept
	Progress   func(result.Second) // as in Load
}

// Phase is a part of a steady load's time.
type Phase int32

// The phases of a restart.
const (
	Before Phase = iota // no gateway was away yet
	During              // one is away
	After               // all are there again
)

// phaseNames are those in results.
var phaseNames = [...]string{"before", "while one is away", "after"}

// SteadyLoad is a Steady that runs. It has two goroutines, one for each submission under way, and those of its clients; Stop ends them.
type SteadyLoad struct {
	Steady
	salt    string // of the request ids of this run
	meter   *meter
	clients []*goclient.Client
	noticed noticed
	slots   chan struct{}
	phase   atomic.Int32

	ctx      context.Context // of the submissions
	cancel   context.CancelFunc
	pacer    *pacer
	quiet    chan struct{} // closed: no second is told of any more
	sending  sync.WaitGroup
	underway sync.WaitGroup

	mu     sync.Mutex                               // guards phases
	phases [len(phaseNames)]*hdrhistogram.Histogram // latencies
}

// comeBackMost is the longest pause of a client between two attempts. It is shorter than the default, for restarts are what is looked at.
const comeBackMost = 2 * time.Second

// Start dials all clients and begins to send. The caller must call Stop. ctx bounds only the dialling.
func (s Steady) Start(ctx context.Context) (*SteadyLoad, error) {
	l := &SteadyLoad{Steady: s, salt: rand.Text()[:10], slots: make(chan struct{}, s.MaxWaiting), quiet: make(chan struct{})}
	for i := range l.phases {
		l.phases[i] = newHistogram()
	}
	var err error
	l.clients, err = openAll(ctx, s.Clients, func(ctx context.Context, i int) (*goclient.Client, error) {
		at := i % len(s.URLs)
		others := slices.Concat(s.URLs[at+1:], s.URLs[:at])
		c, err := goclient.Dial(ctx, s.URLs[at], s.Access.client(goclient.Config{
			URLs: others, Logger: l.noticed.logger(), MaxElapsed: s.Patience, BackoffMax: comeBackMost,
		}))
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.meter = newMeter()
	l.meter.measure(0)
	l.pacer = &pacer{meter: l.meter, interval: float64(time.Second) / s.Rate, next: l.submit, left: l.meter.leave}
	l.sending.Go(l.pacer.loop)
	l.sending.Go(l.tell)
	return l, nil
}

// client puts the access into the settings of a client.
func (a *Access) client(c goclient.Config) goclient.Config {
	c.Header, c.TLS = a.Header, a.TLS
	return c
}

func (l *SteadyLoad) tell() {
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	for {
		select {
		case <-l.quiet:
			return
		case <-seconds.C:
		}
		if second := l.meter.endSecond(l.meter.now()); l.Progress != nil {
			l.Progress(second)
		}
	}
}

// Enter says that submissions due from now on belong to a phase.
func (l *SteadyLoad) Enter(p Phase) { l.phase.Store(int32(p)) }

func (l *SteadyLoad) submit(k int, due time.Duration) {
	select {
	case l.slots <- struct{}{}:
	default:
		l.meter.leave(due, 1)
		return
	}
	rng := mathrand.New(mathrand.NewPCG(uint64(l.Signers.Base), uint64(k)))
	s := &submission{
		SteadyLoad: l, by: l.clients[k%len(l.clients)], number: k, account: l.Signers.pick(rng), id: fmt.Sprintf("%s-%d", l.salt, k),
		due: due, phase: Phase(l.phase.Load()),
	}
	l.underway.Go(func() {
		defer func() { <-l.slots }()
		if s.allocate(l.ctx) {
			s.due = l.meter.now()
			s.mark(l.ctx)
		}
	})
}

// Stop lets no submission begin any more, waits for those under way, which stay unknown when ctx ends, and closes all clients.
func (l *SteadyLoad) Stop(ctx context.Context) *result.Run {
	l.pacer.end()
	close(l.quiet)
	l.sending.Wait()
	measured := l.meter.now()
	defer context.AfterFunc(ctx, l.cancel)()
	l.underway.Wait()
	l.cancel()
	n := &l.noticed
	res := &result.Run{
		Command: "restart", Started: l.meter.start.UTC(), Targets: l.URLs, Seconds: measured.Seconds(),
		Opened: int64(len(l.clients)) + n.count(connected), Lost: n.lost.all(), // before the clients are closed, as the rest
		Restart: &result.Restart{
			Closed: n.count("closed"), Drained: n.count(draining), Opened: n.count(connected), Failures: n.count(notConnected),
			Repeated: n.repeated.all(),
		},
		Load: result.Load{
			Connections: l.Clients, Inflight: 1, Rate: l.Rate, Signers: l.Signers.Count, SignerBase: l.Signers.Base, Duration: measured.Seconds(),
		},
	}
	var closing errgroup.Group
	closing.SetLimit(dialers)
	for _, c := range l.clients {
		closing.Go(c.Close)
	}
	closing.Wait() // Close returns nil
	l.meter.endSecond(l.meter.now())
	l.meter.report(res)
	for phase, h := range l.phases {
		if latency := summary(h); latency.Count > 0 {
			res.Phases = append(res.Phases, result.Phase{Name: phaseNames[phase], LatencyMs: latency})
		}
	}
	return res
}

// submission is a nonce that is asked for and used.
type submission struct {
	*SteadyLoad
	by      *goclient.Client
	number  int
	account int64
	id      string        // request id
	hold    goclient.Hold // once it was allocated
	due     time.Duration
	phase   Phase
}

func (s *submission) allocate(ctx context.Context) bool {
	call := s.begin(history.Call{Kind: history.Allocate, RequestID: s.id})
	a, err := s.by.Allocate(ctx, goclient.AllocateRequest{Signer: Signer(s.account), RequestID: s.id})
	if err == nil {
		s.hold = a.Hold()
	}
	return s.ended(Allocate, call, a.AllocateResult, err)
}

func (s *submission) mark(ctx context.Context) bool {
	tx := txHash(nonceOf{s.account, s.hold.Nonce, s.hold.Attempt}, int64(s.number))
	call := s.begin(history.Call{Kind: history.MarkUsed, Nonce: s.hold.Nonce, Attempt: s.hold.Attempt, TxHash: tx})
	m, err := s.by.MarkUsed(ctx, s.hold, tx)
	return s.ended(MarkUsed, call, m, err)
}

// begin begins the record of a call of a load that is verified.
func (s *submission) begin(call history.Call) *history.Call {
	call.Client, call.Node = s.number%len(s.clients), "any"
	return s.Verify.begin(s.account, call)
}

// ended counts what became of a call, keeps it, and returns whether it was acknowledged. What is unknown, after all that a good client
// does, has failed; what was certainly not sent is refused, and was no call.
func (s *submission) ended(m Method, call *history.Call, answer any, err error) bool {
	now := s.meter.now()
	_, unknown := errors.AsType[*goclient.UnknownOutcomeError](err)
	_, notSent := errors.AsType[*goclient.NotSentError](err)
	refusal, refused := errors.AsType[*wire.Error](err)
	switch {
	case unknown:
		s.meter.fail(s.due, 1)
		s.Verify.end(call, nil)
	case notSent:
		s.meter.refuse(m, s.due, "not sent: no gateway in time")
	case refused && refusal.Data != nil:
		s.meter.refuse(m, s.due, refusal.Data.Reason)
		s.Verify.end(call, &peer.Reply{Error: refusal})
	case err != nil:
		s.meter.refuse(m, s.due, err.Error())
	default:
		s.meter.acknowledge(m, s.due, now)
		text, _ := wire.Marshal(answer) // it was one
		s.Verify.end(call, &peer.Reply{Result: text})
		s.mu.Lock()
		defer s.mu.Unlock()
		record(s.phases[s.phase], now-s.due)
	}
	return err == nil
}

// noticed is what clients noticed of their connections: it counts the lines of their log.
type noticed struct{ lines, lost, repeated tallies }

// The lines of package client that are counted as they are.
const (
	draining     = "gateway is draining"
	connected    = "connected"
	notConnected = "not connected"
)

func (n *noticed) count(line string) int64 { return n.lines.all()[line] }
func (n *noticed) logger() *slog.Logger    { return slog.New(counter{n}) }

type counter struct{ *noticed }

func (counter) Enabled(context.Context, slog.Level) bool { return true }
func (c counter) WithAttrs([]slog.Attr) slog.Handler     { return c }
func (c counter) WithGroup(string) slog.Handler          { return c }

func (c counter) Handle(_ context.Context, r slog.Record) error {
	attrs := map[string]slog.Value{}
	for a := range r.Attrs {
		attrs[a.Key] = a.Value
	}
	c.lines.add(r.Message)
	switch r.Message {
	case "connection lost":
		err, _ := attrs["error"].Any().(error)
		c.lost.add(reason(err))
		if closed, ok := errors.AsType[*goclient.CloseError](err); ok && closed.Code == wire.CloseServiceRestart {
			c.lines.add("closed")
		}
	case "trying again": // a try that was not the last
		c.repeated.add(attrs["reason"].String())
	}
	return nil
}
