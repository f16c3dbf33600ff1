//go:build unix

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
)

// The kinds of gateways of the performance engine's rows. A far one has a PostgreSQL
// whose every reply, and so every commit, takes farAway longer.
const (
	gatewayEngine = "gateway-engine"
	gatewayFar    = "gateway-postgres-far"
	engineFar     = "gateway-engine-far"
)

const farAway = 5 * time.Millisecond

// onRedis reports whether a kind is a gateway that the performance engine serves.
func onRedis(kind string) bool {
	return kind == gatewayEngine || kind == engineFar || kind == engineOutage
}

// isFar reports whether a kind has its PostgreSQL far away.
func isFar(kind string) bool { return kind == gatewayFar || kind == engineFar }

// engineStore adds to a database of the PostgreSQL at an address what the kind needs
// beside it. When there is an error, nothing is left of either.
func engineStore(st store, postgres, kind string) (store, error) {
	if isFar(kind) || kind == engineOutage {
		proxy, err := pgtest.NewProxy(postgres)
		if err != nil {
			return store{}, errors.Join(err, st.release())
		}
		if isFar(kind) {
			proxy.DelayReplies(farAway)
		}
		st = st.and(proxy.Close)
		st.postgres = proxy
		if st.url, err = proxy.URL(st.url); err != nil {
			return store{}, errors.Join(err, st.release())
		}
	}
	if onRedis(kind) {
		redis, err := redistest.Start(redisSettings...)
		if err != nil {
			return store{}, errors.Join(err, st.release())
		}
		st = st.and(redis.Close)
		st.redis = redis.URL()
	}
	return st, nil
}

// and is a store that ends something else before itself.
func (st store) and(end func() error) store {
	release := st.release
	st.release = func() error { return errors.Join(end(), release()) }
	return st
}

// What is waited for, beside the load, of a gateway that is to use Redis.
const (
	enterTimeout = 30 * time.Second // until every shard has the performance engine
	shipTimeout  = 30 * time.Second // until PostgreSQL has all that Redis has, after the load
	enterPoll    = 100 * time.Millisecond
)

// engineState is what the admin side says of the engine.
type engineState struct {
	State  string `json:"state"`
	Reason string `json:"reason"`
	Logs   []struct {
		Signers int `json:"unshippedSigners"`
	} `json:"logsHere"`
}

// behind is how many signers have something that PostgreSQL does not have.
func (e *engineState) behind() (signers int) {
	for _, l := range e.Logs {
		signers += l.Signers
	}
	return signers
}

const performance = "PERFORMANCE"

// throughRedis is a drive of a gateway whose shards all have the performance engine when it
// begins, and still have it when it ends.
func throughRedis(d drive) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		if err := srv.enter(ctx); err != nil {
			return Sample{}, err
		}
		sample, err := d(ctx, srv, l)
		if err != nil || sample.Void != "" {
			return sample, err
		}
		return srv.shipped(ctx, sample)
	}
}

// enter has the gateway go up.
func (s *server) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	if err := s.askAdmin(ctx, http.MethodPost, "/engine/switch", map[string]string{"to": "performance"}, nil); err != nil {
		return fmt.Errorf("switch to the performance engine: %w", err)
	}
	_, err := s.awaitEngine(ctx, func(e engineState) bool { return e.State == performance })
	return err
}

// The notes of a load that Redis answered.
const (
	noteBehind  = "signers behind at the end"
	noteCatchUp = "ms until all were shipped"
)

// shipped waits until PostgreSQL has everything, and notes how long that took. A gateway that has
// left the engine meanwhile was not what was to be measured.
func (s *server) shipped(ctx context.Context, sample Sample) (Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, shipTimeout)
	defer cancel()
	began := time.Now()
	var first engineState
	if err := s.askAdmin(ctx, http.MethodGet, "/engine", nil, &first); err != nil {
		return sample, err
	}
	e, err := s.awaitEngine(ctx, func(e engineState) bool { return e.behind() == 0 })
	if err != nil {
		return sample, err
	}
	if e.State != performance {
		sample.Void = fmt.Sprintf("the engine is %s: %s", e.State, e.Reason)
	}
	sample.note(noteBehind, float64(first.behind()))
	sample.note(noteCatchUp, float64(time.Since(began).Milliseconds()))
	return sample, nil
}

func (s *Sample) note(name string, v float64) {
	if s.Notes == nil {
		s.Notes = make(map[string]float64)
	}
	s.Notes[name] = v
}

// awaitEngine waits until the gateway says what is waited for.
func (s *server) awaitEngine(ctx context.Context, is func(engineState) bool) (e engineState, err error) {
	err = wait.Until(ctx, enterPoll, func() (bool, error) {
		err := s.askAdmin(ctx, http.MethodGet, "/engine", nil, &e)
		return err == nil && is(e), err
	})
	if err != nil {
		err = fmt.Errorf("the engine stays %s (%s), with %d signers behind: %w", e.State, e.Reason, e.behind(), err)
	}
	return e, err
}

// askAdmin asks the gateway's private side. An answer that is not 200 is an error.
func (s *server) askAdmin(ctx context.Context, method, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.admin+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var said struct {
			Error string `json:"error"`
		}
		_ = json.NewDecoder(res.Body).Decode(&said) // the status says enough
		return fmt.Errorf("%s answers %s: %s", path, res.Status, said.Error)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(answer)
}

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
