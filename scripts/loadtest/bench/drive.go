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

	"noncegate/nonce"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// drive loads running servers and tells what it found. A run comes with a reason when it is void; an error says that there is none.
type drive func(ctx context.Context, on *stand, l traffic.Load) (*result.Run, error)

// plain is the load as it is, of which nothing may be refused. A gateway of the performance engine must still have it afterwards.
func plain(ctx context.Context, on *stand, l traffic.Load) (*result.Run, error) {
	r, err := loaded(ctx, 0, l)
	if err != nil || on.server != engineFar {
		return r, err
	}
	status, err := on.gateway(ctx, "engine", "status", "--admin", on.servers[0].admin)
	if err == nil && !engineState.MatchString(status) {
		r.Void = "the gateway has left the engine: " + status
	}
	return r, err
}

var engineState = regexp.MustCompile(`(?m)^state +PERFORMANCE$`)

// loaded makes a load, of which a share of the requests may be refused.
func loaded(ctx context.Context, refusable float64, l traffic.Load) (*result.Run, error) {
	r, err := l.Run(ctx)
	if err == nil {
		lookAt(r, refusable)
	}
	return r, err
}

// lookAt makes a run void in which more than the refusable share was refused, or anything was lost: it answered less than it was asked.
func lookAt(r *result.Run, refusable float64) {
	n := r.Refusals()
	if n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d refused", n))
	}
	switch {
	case float64(n) > refusable*float64(r.Acknowledged+n):
		r.Void = "refused: " + report.Tally(r.Refused)
	case len(r.Lost) > 0:
		r.Void = "connections lost: " + report.Tally(r.Lost)
	case r.Failed+r.Unsent > 0:
		r.Void = fmt.Sprintf("%d requests unanswered, %d never sent", r.Failed, r.Unsent)
	case r.Acknowledged == 0:
		r.Void = "nothing was acknowledged"
	}
}

// idle opens the load's connections, sends one request on each, leaves them alone, and reads what memory the server has for them.
func idle(ctx context.Context, on *stand, l traffic.Load) (*result.Run, error) {
	start, err := on.servers[0].resident(ctx)
	if err != nil {
		return nil, err
	}
	release, err := l.OpenIdle(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := process.Sleep(ctx, on.Idle); err != nil {
		return nil, err
	}
	now, err := on.servers[0].resident(ctx)
	return &result.Run{BytesPerConnection: (now - start) / float64(l.Connections)}, err
}

// resident is a gateway's memory in bytes, as it says.
func (s *server) resident(ctx context.Context) (float64, error) {
	is, err := observe.Pages{}.Read(ctx, s.admin+"/metrics")
	bytes := is["process_resident_memory_bytes"]
	if err == nil && bytes == 0 {
		err = errors.New("the gateway does not tell its resident memory on this system")
	}
	return bytes, err
}

const (
	slowShare = 0.2
	// busyShare of the healthy clients' requests may be told server_busy: slow clients may cost admission, within bounds.
	busyShare = 0.01
)

// slow makes a share of the load's clients slow ones. Without misbehave they keep still, so that the healthy ones are as many in both.
func slow(misbehave bool) drive {
	return func(ctx context.Context, _ *stand, l traffic.Load) (*result.Run, error) {
		l = l.Beside(slowShare, traffic.StopReading)
		l.Slow.Misbehave = misbehave
		r, err := loaded(ctx, busyShare, l)
		if err == nil && misbehave {
			r.Notes = append(r.Notes, fmt.Sprintf("%d slow clients kicked", r.Slow.Kicked))
		}
		return r, err
	}
}

// How long nothing may move before the nodes are believed to have shared the shards out.
const (
	balanceTimeout = 30 * time.Second
	balanceRest    = 3 * time.Second
)

// atOwners makes the load so that a connection asks for signers that its node owns.
func atOwners(ctx context.Context, on *stand, l traffic.Load) (*result.Run, error) {
	owners, err := on.awaitBalance(ctx)
	if err != nil {
		return nil, err
	}
	l.Owned = make([][]int64, len(on.servers))
	for account := range int64(l.Signers.Count) {
		owner := owners[nonce.ShardOf(traffic.Signer(account), len(owners))]
		i := slices.IndexFunc(on.servers, func(s *server) bool { return s.id == owner })
		l.Owned[i] = append(l.Owned[i], account)
	}
	return loaded(ctx, 0, l)
}

// awaitBalance waits until every node owns shards and none has moved for a while, and tells whose each shard is.
func (on *stand) awaitBalance(ctx context.Context) (owners []string, err error) {
	conn, err := pgx.Connect(ctx, on.store)
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
		idle := slices.ContainsFunc(on.servers, func(s *server) bool { return !slices.Contains(now, s.id) })
		if !slices.Equal(now, owners) || slices.Contains(now, "") || idle {
			owners, since = now, time.Now()
		}
		return time.Since(since) > balanceRest, nil
	})
	return owners, err
}

// deadUnit is how many dead rows weigh as a millisecond does where a queue is said to grow: what nobody notices.
const deadUnit = 1000

// soak finds the throughput that lasts, then makes half of it, and passes judgement on what the gateway and PostgreSQL say meanwhile.
func soak(ctx context.Context, on *stand, l traffic.Load) (*result.Run, error) {
	l.Subscribers, l.Duration = 2, 3*on.Soak/10
	peak, err := loaded(ctx, 0, l)
	if err != nil || peak.Void != "" {
		return peak, err
	}
	conn, err := pgx.Connect(ctx, on.store)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	l.Inflight, l.Rate, l.Duration = 1, peak.PerSecond/2, on.Soak
	queues := observe.Pages{URLs: []string{on.servers[0].admin + "/metrics"}}.Start(ctx)
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
	r, err := loaded(ctx, 0, l)
	if err = errors.Join(err, looked); err != nil {
		return nil, err
	}
	r.Nodes = queues.End()
	judgeSoak(r, observe.GrowthOf(dead, nil, on.Soak))
	r.Notes = append(r.Notes, fmt.Sprintf("lasting peak %s/s", whole(peak.PerSecond)))
	return r, nil
}

// judgeSoak sets whether it passed. What makes another run void is what a soak fails by; one that is too short to tell is void.
func judgeSoak(r *result.Run, dead result.Growth) {
	first, last := whole(deadUnit*dead.FirstThird), whole(deadUnit*dead.LastThird)
	rows := fmt.Sprintf("from %s in the first third to %s in the last (medians)", first, last)
	further := []result.Verdict{{Name: "dead rows", Want: "do not grow", Got: rows, Passed: !dead.Grows, Unknown: dead.Unknown}}
	if r.Void != "" {
		further = append(further, result.Verdict{Name: "requests", Want: "all answered", Got: r.Void})
	}
	r.Void = ""
	report.Judge(r, report.Criteria{MaxFailedShare: -1, MaxLost: -1, Growth: true}, further...)
	for _, v := range r.Verdicts {
		if v.Unknown && (v.Name == "growth of commitMs" || v.Name == "dead rows") {
			r.Void = "too short to tell what grows"
		}
		if !v.Passed {
			r.Notes = append(r.Notes, v.Name+": "+v.Got)
		}
	}
}
