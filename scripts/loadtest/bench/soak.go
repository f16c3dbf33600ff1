//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/rounds"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

// The notes of a soak. Dead rows are those that PostgreSQL counts in all tables.
const (
	noteWAL       = "WAL bytes a pair"
	noteDeadMost  = "dead rows, at most"
	noteDeadFirst = "dead rows, first third"
	noteDeadLast  = "dead rows, last third"
)

const (
	halfOfPeak = "half of it" // a side's name
	pass       = "PASS"
	soakPoll   = time.Second // how often a soak looks
	lookTime   = time.Minute // for one look
	// deadUnit is how many dead rows weigh as a millisecond does where a queue is said to
	// grow: what nobody notices.
	deadUnit = 1000
)

// soakScene finds the throughput that lasts, over three tenths of the time, and then makes
// half of it for all of the time, each on a database of its own.
func soakScene(d time.Duration) Scene {
	peak, peakTime := new(float64), 3*d/10
	l := closed(200, 4, 1000)
	l.Subscribers = 2
	half := l
	half.Inflight = 1
	return Scene{Name: "soak", once: true,
		About: fmt.Sprintf("200 connections, 1,000 signers, 2 subscribers to everything; the lasting peak is a closed loop of bursts of 4 for %v, and half of it an open loop for %v", peakTime, d),
		Sides: []Side{
			{Name: "lasting peak", server: gatewayPostgres, load: l, drive: lastingPeak(peak, peakTime)},
			{Name: halfOfPeak, server: gatewayPostgres, load: half, drive: soak(peak, d)}}}
}

// lastingPeak is the load for a time, whose throughput it tells.
func lastingPeak(peak *float64, d time.Duration) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		l.Duration = d
		s, err := plain(ctx, srv, l)
		if err == nil && s.Void == "" {
			*peak = s.PerSecond
		}
		return s, err
	}
}

// soak makes the load at half of the peak's rate, and passes judgement on what the gateway
// and PostgreSQL say meanwhile.
func soak(peak *float64, d time.Duration) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		if *peak == 0 {
			return Sample{}, errors.New("the lasting peak is not known")
		}
		l.Rate, l.Duration = *peak/2, d
		queues := observe.Start(ctx, []string{srv.admin + "/metrics"})
		defer queues.End()
		conn, err := pgx.Connect(ctx, srv.on.url)
		if err != nil {
			return Sample{}, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		var looks []databaseLook
		watched := beside(ctx, &l, func(ctx context.Context) (err error) {
			queues.Begin()
			defer queues.End()
			looks, err = lookAtDatabase(ctx, conn)
			return err
		})
		r, err := l.Run(ctx)
		if err = errors.Join(err, watched()); err != nil {
			return Sample{}, err
		}
		r.Nodes = queues.End()
		s := sampleOf(r, 0)
		s.Resident = residentBytes(srv.proc.PID())
		s.judgeSoak(r, looks)
		return s, nil
	}
}

type databaseLook struct {
	at   time.Time
	dead float64 // rows
	wal  float64 // bytes written since the server was made
}

// lookAtDatabase looks every second until ctx ends, and then a last time.
func lookAtDatabase(ctx context.Context, conn *pgx.Conn) (looks []databaseLook, err error) {
	for over := false; ; over = wait.For(ctx, soakPoll) != nil {
		l, err := lookOnce(context.WithoutCancel(ctx), conn)
		if err != nil {
			return looks, fmt.Errorf("look at the database: %w", err)
		}
		looks = append(looks, l)
		if over {
			return looks, nil
		}
	}
}

func lookOnce(ctx context.Context, conn *pgx.Conn) (databaseLook, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	l := databaseLook{at: time.Now()}
	err := conn.QueryRow(ctx, `
SELECT coalesce(sum(n_dead_tup), 0)::float8, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 FROM pg_stat_user_tables`).Scan(&l.dead, &l.wal)
	return l, err
}

// judgeSoak sets the verdict and the notes of a sample. What makes another sample void is
// what a soak fails by; one that is too short to tell is void.
func (s *Sample) judgeSoak(r *result.Run, looks []databaseLook) {
	failed := s.failures()
	if len(looks) < 2 {
		s.Void = "the database was not looked at"
		return
	}
	dead := make([]result.Point, len(looks))
	values := make([]float64, len(looks))
	for i, l := range looks {
		values[i] = l.dead
		dead[i] = result.Point{At: l.at.Sub(looks[0].at).Seconds(), Value: l.dead / deadUnit}
	}
	if pairs := r.Methods[traffic.MarkUsed.String()].Acknowledged; pairs > 0 {
		s.note(noteWAL, (looks[len(looks)-1].wal-looks[0].wal)/float64(pairs))
	}
	grown := observe.GrowthOf(dead, nil, time.Duration(r.Seconds*float64(time.Second)))
	s.note(noteDeadMost, slices.Max(values))
	s.note(noteDeadFirst, deadUnit*grown.FirstThird)
	s.note(noteDeadLast, deadUnit*grown.LastThird)
	report.Judge(r, report.Criteria{MaxFailedShare: -1, MaxLost: -1, Growth: true})
	for _, v := range r.Verdicts {
		if !v.Passed {
			failed = append(failed, v.Name+": "+v.Got)
		}
	}
	if grown.Grows {
		failed = append(failed, fmt.Sprintf("dead rows grow: median %s in the first third, %s in the last",
			whole(s.Notes[noteDeadFirst]), whole(s.Notes[noteDeadLast])))
	}
	s.pass(failed)
	if grown.Unknown || !growthKnown(r.Nodes) {
		s.Void = "too short to tell what grows, or no figures of the gateway"
	}
}

// failures are what makes another sample void: this one fails by it.
func (s *Sample) failures() (why []string) {
	if s.Void != "" {
		why, s.Void = []string{s.Void}, ""
	}
	return why
}

// pass sets the verdict: PASS, unless something has failed.
func (s *Sample) pass(failed []string) {
	s.Verdict = pass
	if len(failed) > 0 {
		s.Verdict = "FAIL: " + strings.Join(failed, "; ")
	}
}

// growthKnown reports whether the gateway's commits were seen for long enough.
func growthKnown(nodes []result.Node) bool {
	for _, n := range nodes {
		for _, stage := range n.Stages {
			if stage.Name == "commitMs" && !stage.Growth.Unknown {
				return true
			}
		}
	}
	return false
}

// The notes of a soak of the performance engine. The lag is the age of the oldest change that PostgreSQL
// does not have, as the gateway itself measures it; the memory is what Redis uses.
const (
	noteLagMost     = "lag, ms, at most"
	noteLagFirst    = "lag, ms, first third"
	noteLagLast     = "lag, ms, last third"
	noteMemoryMost  = "Redis MiB, at most"
	noteMemoryFirst = "Redis MiB, first third"
	noteMemoryLast  = "Redis MiB, last third"
	noteGrown       = "memory of Redis, last third ÷ first"
)

// soakLooks are what was found, look by look.
type soakLooks struct{ lagMs, memoryMiB []float64 }

// engineSoak loads a gateway that Redis serves for a long time, and watches how far
// PostgreSQL is behind and how much Redis has in memory.
func engineSoak(d time.Duration) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		options, err := redis.ParseURL(srv.on.redis)
		if err != nil {
			return Sample{}, err
		}
		client := redis.NewClient(options)
		defer client.Close()
		l.Duration = d
		var looks soakLooks
		watched := beside(ctx, &l, func(ctx context.Context) (err error) {
			looks, err = srv.watch(ctx, client)
			return err
		})
		sample, err := load(ctx, srv, l, 0)
		if err = errors.Join(err, watched()); err != nil {
			return sample, err
		}
		sample.noteLooks(looks)
		return sample, nil
	}
}

// watch looks until ctx ends, which is no error.
func (s *server) watch(ctx context.Context, client *redis.Client) (looks soakLooks, err error) {
	for wait.For(ctx, soakPoll) == nil {
		is, err := observe.Read(ctx, s.admin+"/metrics")
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return looks, err
		}
		memory, err := usedMemory(ctx, client)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return looks, fmt.Errorf("memory of Redis: %w", err)
		}
		looks.lagMs = append(looks.lagMs, 1000*is["noncegate_log_behind_seconds"])
		looks.memoryMiB = append(looks.memoryMiB, memory/(1<<20))
	}
	return looks, nil
}

// usedMemory is what Redis says it has allocated, in bytes.
func usedMemory(ctx context.Context, client *redis.Client) (float64, error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(info, "\nused_memory:")
	value, _, _ := strings.Cut(rest, "\r")
	return strconv.ParseFloat(value, 64)
}

// noteLooks notes the medians of the first and of the last third, and the most of all.
func (s *Sample) noteLooks(looks soakLooks) {
	third := len(looks.lagMs) / 3
	if third == 0 {
		s.Void = "too short: it was looked at less than three times"
		return
	}
	note := func(values []float64, first, last, most string) {
		s.note(first, rounds.Median(values[:third]))
		s.note(last, rounds.Median(values[len(values)-third:]))
		s.note(most, slices.Max(values))
	}
	note(looks.lagMs, noteLagFirst, noteLagLast, noteLagMost)
	note(looks.memoryMiB, noteMemoryFirst, noteMemoryLast, noteMemoryMost)
	if s.Notes[noteMemoryFirst] > 0 {
		s.note(noteGrown, s.Notes[noteMemoryLast]/s.Notes[noteMemoryFirst])
	}
}
