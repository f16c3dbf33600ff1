//go:build unix

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"noncegate/internal/testenv/pgtest"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// engineOutage is a gateway of the performance engine whose PostgreSQL can be put out of
// reach.
const engineOutage = "gateway-engine-outage"

// outageFlags are its settings beside those of all. A mark that waits for PostgreSQL
// keeps its slots: with the usual ones hand-outs would be refused for the marks that wait.
var outageFlags = []string{"--max-inflight-total", "131072", "--worker-queue-capacity", "131072", "--encode-queue", "131072"}

// The sides of the scene, by how PostgreSQL is out of reach.
const (
	refusing = "connections refused"
	silent   = "black hole"
)

// The notes of a load during which PostgreSQL is out of reach. A mark is answered
// meanwhile from a second after the beginning on: before there may be answers under way.
const (
	noteRefusedHandOuts = "hand-outs refused"
	noteLongestHandOut  = "longest hand-out, ms"
	noteMarksMeanwhile  = "marks answered meanwhile"
	noteMarks           = "marks answered in all"
)

// outage is for how many seconds of the measured time PostgreSQL is within reach, then
// out of it, and then within it again.
type outage struct{ before, away, after int }

// usualOutage ends well before --engine-grant, past which nothing is handed out.
var usualOutage = outage{before: 5, away: 20, after: 10}

// outageScene measures hand-outs and marks while PostgreSQL is out of reach.
func outageScene(o outage, l traffic.Load) Scene {
	on := func(name string, take func(*pgtest.Proxy)) Side {
		return Side{Name: name, server: engineOutage, load: l, drive: duringOutage(o, take)}
	}
	return Scene{Name: "engine-outage", once: true,
		About: fmt.Sprintf("performance engine, open loop, %d connections, %s requests/s, 1,000 signers; "+
			"PostgreSQL is out of reach for %d s of %d; latencies are those of hand-outs", l.Connections, whole(l.Rate), o.away, o.before+o.away+o.after),
		Sides: []Side{on(refusing, (*pgtest.Proxy).Refuse), on(silent, (*pgtest.Proxy).BlackHole)}}
}

// duringOutage measures the load while take puts PostgreSQL out of reach.
func duringOutage(o outage, take func(*pgtest.Proxy)) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		defer srv.on.postgres.Forward()
		l.Duration = time.Duration(o.before+o.away+o.after) * time.Second
		passed := 0
		l.Progress = func(result.Second) {
			passed++
			switch passed {
			case o.before:
				take(srv.on.postgres)
			case o.before + o.away:
				srv.on.postgres.Forward()
			}
		}
		r, err := l.Run(ctx)
		if err != nil {
			return Sample{}, err
		}
		s := sampleOf(r, 1)
		s.Resident = residentBytes(srv.proc.PID())
		s.judgeOutage(r, o)
		return s, nil
	}
}

// judgeOutage sets the verdict and the notes of a sample: hand-outs go on, and marks wait
// until PostgreSQL is there again. What makes another sample void is what this one fails by.
func (s *Sample) judgeOutage(r *result.Run, o outage) {
	if len(r.Timeline) < o.before+o.away+o.after {
		s.Void = "it ended before its time"
		return
	}
	failed := s.failures()
	for _, method := range []traffic.Method{traffic.Allocate, traffic.MarkUsed} {
		for reason, n := range r.Methods[method.String()].Refused {
			failed = append(failed, fmt.Sprintf("%s refused: %s %s", whole(float64(n)), method, reason))
		}
	}
	slices.Sort(failed)
	var meanwhile int64
	still := 0 // seconds in which nothing was handed out
	for _, second := range r.Timeline[o.before+1 : o.before+o.away] {
		meanwhile += second.Marks
		if second.Acknowledged == second.Marks {
			still++
		}
	}
	if still > 0 {
		failed = append(failed, fmt.Sprintf("nothing was handed out in %d of %d seconds without PostgreSQL", still, o.away-1))
	}
	if meanwhile > 0 {
		failed = append(failed, fmt.Sprintf("%s marks were answered while PostgreSQL was out of reach", whole(float64(meanwhile))))
	}
	handOuts := r.Methods[traffic.Allocate.String()]
	s.P50Ms, s.P99Ms = handOuts.LatencyMs.P50, handOuts.LatencyMs.P99
	s.note(noteLongestHandOut, handOuts.LatencyMs.Max)
	s.note(noteRefusedHandOuts, float64(result.Sum(handOuts.Refused)))
	s.note(noteMarksMeanwhile, float64(meanwhile))
	s.note(noteMarks, float64(r.Methods[traffic.MarkUsed.String()].Acknowledged))
	s.pass(failed)
}
