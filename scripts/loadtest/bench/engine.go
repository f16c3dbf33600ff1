//go:build unix

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"noncegate/internal/testenv/pgtest"
	"noncegate/internal/testenv/redistest"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
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
