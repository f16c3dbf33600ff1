//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"noncegate/nonce"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// drive loads running servers and tells what it found. A sample comes with a reason when it is void; an error says that
// there is none.
type drive func(ctx context.Context, a *arena, on servers, l traffic.Load) (Sample, error)

// plain is the load as it is, of which nothing may be refused. A gateway of the performance engine must still have it
// afterwards.
func plain(ctx context.Context, a *arena, on servers, l traffic.Load) (Sample, error) {
	s, err := loaded(ctx, 0, l)
	if err != nil || on[0].kind != engineFar {
		return s, err
	}
	status, err := a.gateway(ctx, "engine", "status", "--admin", on[0].admin)
	if err == nil && !engineState.MatchString(status) {
		s.Void = "the gateway has left the engine: " + status
	}
	return s, err
}

var engineState = regexp.MustCompile(`(?m)^state +PERFORMANCE$`)

// loaded makes loads at the same time, and tells of them as of one. A share of the requests may be refused.
func loaded(ctx context.Context, refusable float64, loads ...traffic.Load) (sum Sample, err error) {
	runs := make([]*result.Run, len(loads))
	var g errgroup.Group
	for i, l := range loads {
		g.Go(func() (err error) { runs[i], err = l.Run(ctx); return err })
	}
	if err := g.Wait(); err != nil {
		return Sample{}, err
	}
	for _, r := range runs {
		sum.add(sampleOf(r, refusable))
	}
	return sum, nil
}

// sampleOf is what the bench needs of a run. Of a run in which more than the refusable share was refused, or anything
// was lost, no figure counts: it answered less than it was asked.
func sampleOf(r *result.Run, refusable float64) Sample {
	handOuts := r.Methods[traffic.Allocate.String()].LatencyMs
	s := Sample{Figures: map[Figure]float64{
		perSecond: r.PerSecond, p50: r.LatencyMs.P50, p99: r.LatencyMs.P99, handOutP50: handOuts.P50, handOutP99: handOuts.P99,
	}}
	n := r.Refusals()
	if n > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("%d refused", n))
	}
	switch {
	case float64(n) > refusable*float64(r.Acknowledged+n):
		s.Void = "refused: " + report.Tally(r.Refused)
	case len(r.Lost) > 0:
		s.Void = "connections lost: " + report.Tally(r.Lost)
	case r.Failed+r.Unsent > 0:
		s.Void = fmt.Sprintf("%d requests unanswered, %d never sent", r.Failed, r.Unsent)
	case r.Acknowledged == 0:
		s.Void = "nothing was acknowledged"
	}
	return s
}

// idle opens the load's connections, sends one request on each, leaves them alone for a while, and reads what memory
// the server has come to have for them.
func idle(ctx context.Context, a *arena, on servers, l traffic.Load) (Sample, error) {
	start, err := on[0].resident(ctx)
	if err != nil {
		return Sample{}, err
	}
	release, err := l.OpenIdle(ctx)
	if err != nil {
		return Sample{}, err
	}
	defer release()
	if err := process.Sleep(ctx, a.Idle); err != nil {
		return Sample{}, err
	}
	now, err := on[0].resident(ctx)
	return Sample{Figures: map[Figure]float64{perConnection: (now - start) / float64(l.Connections)}}, err
}

// resident is a gateway's memory in bytes, as it says.
func (s *server) resident(ctx context.Context) (float64, error) {
	is, err := observe.Read(ctx, s.admin+"/metrics")
	bytes := is["process_resident_memory_bytes"]
	if err == nil && bytes == 0 {
		err = errors.New("the gateway does not tell its resident memory on this system")
	}
	return bytes, err
}

const (
	slowShare = 0.2
	// busyShare of the healthy clients' requests may be told server_busy: slow clients are allowed to cost admission,
	// which is refused at once and retried, within bounds.
	busyShare = 0.01
)

// slow makes a share of the load's clients slow ones: they subscribe to all signers, send what would have been theirs
// of the rate, and read nothing. Without misbehave they stay connected and idle, so that the healthy clients, of whom
// alone the sample tells, are as many in both.
func slow(misbehave bool) drive {
	return func(ctx context.Context, _ *arena, on servers, l traffic.Load) (Sample, error) {
		bad := traffic.Slow{
			URLs: l.URLs, Clients: int(slowShare * float64(l.Connections)), Behaviour: traffic.StopReading,
			Rate: slowShare * l.Rate, Signers: l.Signers,
		}
		group, err := bad.Start(ctx)
		if err != nil {
			return Sample{}, err
		}
		defer group.Stop()
		l.Connections -= bad.Clients
		l.Rate -= bad.Rate
		if misbehave {
			l.BeginMeasure = group.Misbehave
		}
		sample, err := loaded(ctx, busyShare, l)
		if misbehave {
			sample.Notes = append(sample.Notes, fmt.Sprintf("%d slow clients kicked", group.Stop().Kicked))
		}
		return sample, err
	}
}

// How long nothing may move before the nodes are believed to have shared the shards out.
const (
	balanceTimeout = 30 * time.Second
	balanceRest    = 3 * time.Second
)

// atOwners makes the load in as many parts as there are nodes: a connection asks for signers that its node owns.
func atOwners(ctx context.Context, a *arena, on servers, l traffic.Load) (Sample, error) {
	owners, err := a.awaitBalance(ctx, on)
	if err != nil {
		return Sample{}, err
	}
	parts := make([]traffic.Load, len(on))
	for i, s := range on {
		parts[i] = l
		parts[i].URLs = []string{s.url}
		parts[i].Connections = l.Connections*(i+1)/len(on) - l.Connections*i/len(on)
		parts[i].Signers.Accounts = []int64{}
	}
	for account := range l.Signers.Count {
		owner := owners[nonce.ShardOf(l.Signers.Name(account), len(owners))]
		part := &parts[slices.IndexFunc(on, func(s *server) bool { return s.id == owner })]
		part.Signers.Accounts = append(part.Signers.Accounts, int64(account))
		part.Signers.Count = len(part.Signers.Accounts)
	}
	return loaded(ctx, 0, parts...)
}

// awaitBalance waits until every node owns shards and none has moved for a while, and tells whose each shard is.
func (a *arena) awaitBalance(ctx context.Context, on servers) (owners []string, err error) {
	conn, err := pgx.Connect(ctx, on[0].store)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeoutCause(ctx, balanceTimeout, errors.New("the nodes do not share the shards out"))
	defer cancel()
	since := time.Now()
	err = process.Until(ctx, func() (bool, error) {
		rows, err := conn.Query(ctx, `SELECT owner_node FROM shard ORDER BY shard_id`)
		if err != nil {
			return false, err
		}
		now, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return false, err
		}
		idle := slices.ContainsFunc(on, func(s *server) bool { return !slices.Contains(now, s.id) })
		if !slices.Equal(now, owners) || slices.Contains(now, "") || idle {
			owners, since = now, time.Now()
		}
		return time.Since(since) > balanceRest, nil
	})
	return owners, err
}

// deadUnit is how many dead rows weigh as a millisecond does where a queue is said to grow: what nobody notices.
const deadUnit = 1000

// soak finds the throughput that lasts, then makes half of it, and passes judgement on what the gateway and PostgreSQL
// say meanwhile.
func soak(ctx context.Context, a *arena, on servers, l traffic.Load) (Sample, error) {
	l.Subscribers, l.Duration = 2, 3*a.Soak/10
	peak, err := loaded(ctx, 0, l)
	if err != nil || peak.Void != "" {
		peak.Void = "the lasting peak: " + peak.Void
		return peak, err
	}
	conn, err := pgx.Connect(ctx, on[0].store)
	if err != nil {
		return Sample{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	l.Inflight, l.Rate, l.Duration = 1, peak.Figures[perSecond]/2, a.Soak
	queues := observe.Pages{URLs: []string{on[0].admin + "/metrics"}}.Start(ctx)
	defer queues.End()
	var dead []result.Point
	var looked error
	l.BeginMeasure, l.EndMeasure = queues.Begin, func() { queues.End() }
	l.Progress = func(second result.Second) {
		var rows float64
		err := conn.QueryRow(ctx, `SELECT coalesce(sum(n_dead_tup), 0)::float8 FROM pg_stat_user_tables`).Scan(&rows)
		looked = errors.Join(looked, err)
		dead = append(dead, result.Point{At: second.At, Value: rows / deadUnit})
	}
	r, err := l.Run(ctx)
	if err = errors.Join(err, looked); err != nil {
		return Sample{}, err
	}
	r.Nodes = queues.End()
	s := sampleOf(r, 0)
	s.Notes = append(s.Notes, fmt.Sprintf("lasting peak %s/s", whole(peak.Figures[perSecond])))
	s.judgeSoak(r, observe.GrowthOf(dead, nil, a.Soak))
	return s, nil
}

// judgeSoak sets whether it passed. What makes another sample void is what a soak fails by; one that is too short to
// tell is void.
func (s *Sample) judgeSoak(r *result.Run, dead result.Growth) {
	var failed []string
	if s.Void != "" {
		failed, s.Void = []string{s.Void}, ""
	}
	report.Judge(r, report.Criteria{MaxFailedShare: -1, MaxLost: -1, Growth: true})
	for _, v := range r.Verdicts {
		if v.Unknown && v.Name == "growth of commitMs" || dead.Unknown {
			s.Void = "too short to tell what grows"
		}
		if !v.Passed {
			failed = append(failed, v.Name+": "+v.Got)
		}
	}
	if dead.Grows {
		failed = append(failed, fmt.Sprintf("dead rows grow: median %s in the first third, %s in the last",
			whole(deadUnit*dead.FirstThird), whole(deadUnit*dead.LastThird)))
	}
	s.Figures[passed] = 1
	if len(failed) > 0 {
		s.Figures[passed], s.Notes = -1, append(failed, s.Notes...)
	}
}
