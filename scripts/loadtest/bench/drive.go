//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

// drive loads a running server and tells what it found. A sample comes with a
// reason when it is void; an error says that there is none.
type drive func(ctx context.Context, srv *server, l traffic.Load) (Sample, error)

// plain is the load as it is, of which nothing may be refused.
func plain(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
	return load(ctx, srv, l, 0)
}

// overload is a load that may be more than the gateway admits: what it refuses is
// noted, and is an answer.
func overload(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
	return load(ctx, srv, l, 1)
}

// load makes a load of which a share may be refused.
func load(ctx context.Context, srv *server, l traffic.Load, refusable float64) (Sample, error) {
	r, err := l.Run(ctx)
	if err != nil {
		return Sample{}, err
	}
	s := sampleOf(r, refusable)
	s.Resident = residentBytes(srv.proc.PID())
	return s, nil
}

// beside has watch run while a load is measured: until its context ends, which is when the
// measured time is over. How watch failed is to be asked once the load has run.
func beside(ctx context.Context, l *traffic.Load, watch func(context.Context) error) (failed func() error) {
	watching, over := context.WithCancel(ctx)
	var runs sync.WaitGroup
	var err error
	l.BeginMeasure = func() { runs.Go(func() { err = watch(watching) }) }
	l.EndMeasure = func() {
		over()
		runs.Wait()
	}
	return func() error {
		over()
		return err
	}
}

// sampleOf is what the bench needs of a run. Of a run in which more than the
// refusable share was refused, or anything was lost, no figure counts: it answered
// less than it was asked. What was refused below that share is noted.
func sampleOf(r *result.Run, refusable float64) Sample {
	s := Sample{Acknowledged: r.Acknowledged, PerSecond: r.PerSecond, P50Ms: r.LatencyMs.P50, P99Ms: r.LatencyMs.P99}
	var reasons []string
	if n := r.Refusals(); n > 0 {
		s.Notes = map[string]float64{"refused": float64(n)}
		if float64(n) > refusable*float64(r.Acknowledged+n) {
			for reason, n := range r.Refused {
				reasons = append(reasons, fmt.Sprintf("%d refused: %s", n, reason))
			}
		}
	}
	for reason, n := range r.Lost {
		reasons = append(reasons, fmt.Sprintf("%d connections lost: %s", n, reason))
	}
	if r.Failed > 0 {
		reasons = append(reasons, fmt.Sprintf("%d requests unanswered", r.Failed))
	}
	if r.Unsent > 0 {
		reasons = append(reasons, fmt.Sprintf("%d requests never sent", r.Unsent))
	}
	if r.Acknowledged == 0 {
		reasons = append(reasons, "nothing was acknowledged")
	}
	slices.Sort(reasons)
	s.Void = strings.Join(reasons, ", ")
	return s
}

// residentBytes is the resident memory of a process, 0 where /proc does not tell.
func residentBytes(pid int) float64 {
	kib := 0.0
	fmt.Sscan(procField(fmt.Sprintf("/proc/%d/status", pid), "\nVmRSS:"), &kib) // 0 when it is not there
	return kib * 1024
}

// errNoProc is why memory cannot be measured.
var errNoProc = errors.New("resident memory is read from /proc, which only Linux has")

// idle opens the load's connections, sends one request on each, leaves them alone
// for a while, and reads what memory the server has come to have for them. It does
// not answer pings meanwhile; see maxIdle.
func idle(while time.Duration) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		if srv.atStart == 0 {
			return Sample{}, errNoProc
		}
		release, err := l.OpenIdle(ctx)
		if err != nil {
			return Sample{}, err
		}
		defer release()
		if err := wait.For(ctx, while); err != nil {
			return Sample{}, err
		}
		now := residentBytes(srv.proc.PID())
		return Sample{
			Acknowledged: int64(l.Connections), Resident: now,
			PerConnection: (now - srv.atStart) / float64(l.Connections),
		}, nil
	}
}

// busyShare of the healthy clients' requests may be told server_busy: slow clients
// are allowed to cost admission, which is refused at once and retried, within
// bounds. The table notes how many were.
const busyShare = 0.01

// slow makes a share of the load's clients slow ones: they subscribe to all
// signers, send what would have been theirs of the rate, and read nothing. Without
// misbehave they stay connected and idle, so that the healthy clients are as many
// and send as much in both; those alone are what the sample tells of.
func slow(share float64, misbehave bool) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		clients := int(share * float64(l.Connections))
		bad := traffic.Slow{
			URLs: l.URLs, Clients: clients, Behaviour: traffic.StopReading, Rate: share * l.Rate, Signers: l.Signers,
		}
		group, err := bad.Start(ctx)
		if err != nil {
			return Sample{}, err
		}
		defer group.Stop()
		l.Connections -= clients
		l.Rate -= bad.Rate
		if misbehave {
			l.BeginMeasure = group.Misbehave
		}
		sample, err := load(ctx, srv, l, busyShare)
		if err != nil || !misbehave {
			return sample, err
		}
		counts := group.Stop()
		sample.note("slow clients kicked", float64(counts.Kicked))
		return sample, nil
	}
}
