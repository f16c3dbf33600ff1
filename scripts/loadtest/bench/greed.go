//go:build unix

package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// The kinds of gateways beside which, or at which, there is a greedy client. Both ask their
// clients for API keys. gatewayShared lets in two; gatewayApart one, and another gateway of
// the machine the other.
const (
	gatewayShared = "gateway-shared"
	gatewayApart  = "gateway-apart"
)

// The sides of the scene, by where the greedy client is.
const (
	sameGateway    = "at the same gateway"
	anotherGateway = "at another gateway"
)

// The notes of a load beside a greedy client, about that.
const (
	noteGreed        = "greedy client, requests/s"
	noteGreedRefused = "refused of 1,000 of its"
)

// endpoint is where a client is let in, and how.
type endpoint struct {
	url    string
	access access.Access
}

// principals are those that a kind of gateway lets in; none: it asks nobody for a key.
func principals(kind string) []string {
	switch kind {
	case gatewayKeys:
		return []string{"load"}
	case gatewayShared:
		return []string{"modest", "greedy"}
	case gatewayApart:
		return []string{"modest"}
	}
	return nil
}

// neighbour adds to a database another gateway, with a database of its own of the same
// PostgreSQL server. On the same database both would be nodes of one cluster, and half of
// what the load asks of its gateway would be answered by the neighbour. When there is an
// error, nothing is left of either.
func (a *arena) neighbour(ctx context.Context, st store) (store, error) {
	other, err := a.emptyDatabase(ctx)
	if err != nil {
		return store{}, errors.Join(err, st.release())
	}
	st = st.and(other.release)
	srv, err := a.startServer(ctx, gatewayKeys, other)
	if err != nil {
		return store{}, errors.Join(err, st.release())
	}
	a.runs++ // the names of its files are taken
	st.greedyAt = endpoint{srv.url, srv.access}
	return st.and(srv.stop), nil
}

// greedScene measures a modest client beside a greedy one, with other signers each, so that
// what differs is where the greedy one is.
func greedScene() Scene {
	greedy := closed(64, 64, 1000)
	greedy.Signers.Base = othersBase
	modest := open(16, 500)
	return Scene{Name: "greed", factor: 5,
		About: "open loop, 16 connections, 500 requests/s, 1,000 signers, with an API key, beside a client with another key that keeps 64 × 64 requests under way on 1,000 other signers: at the same gateway, or at another one with another database of the same PostgreSQL server",
		Sides: []Side{
			{Name: sameGateway, server: gatewayShared, load: modest, drive: besideGreed(greedy)},
			{Name: anotherGateway, server: gatewayApart, load: modest, drive: besideGreed(greedy)}}}
}

// besideGreed measures the load while another client makes one that never pauses. What that
// is refused is an answer.
func besideGreed(greedy traffic.Load) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		g := &greed{load: greedy, begun: make(chan struct{}), ended: make(chan struct{})}
		g.load.URLs, g.load.Access = []string{srv.greedyAt.url}, srv.greedyAt.access
		g.load.Duration = l.Warmup + l.Duration + sideTimeout // it ends when it is told to
		g.load.BeginMeasure = func() { close(g.begun) }
		greeding, enough := context.WithCancel(ctx)
		defer enough()
		go g.run(greeding)
		select {
		case <-g.begun:
		case <-g.ended:
			return Sample{}, fmt.Errorf("the greedy client did not begin: %w", cmp.Or(g.err, context.Cause(ctx)))
		}
		s, err := load(ctx, srv, l, 0)
		enough()
		<-g.ended
		if err = errors.Join(err, g.err); err != nil {
			return s, err
		}
		s.noteGreed(g.took)
		return s, nil
	}
}

// greed is a load beside the one that is measured.
type greed struct {
	load  traffic.Load
	begun chan struct{} // closed: it sends

	ended chan struct{} // closed: took and err are there
	took  *result.Run
	err   error
}

func (g *greed) run(ctx context.Context) {
	defer close(g.ended)
	if g.took, g.err = g.load.Run(ctx); g.err != nil {
		g.err = fmt.Errorf("the greedy client: %w", g.err)
	}
}

// noteGreed notes what the greedy client got. Beside one that lost connections or answers
// the sample is void.
func (s *Sample) noteGreed(r *result.Run) {
	its := sampleOf(r, 1)
	s.note(noteGreed, its.PerSecond)
	s.note(noteGreedRefused, 1000*float64(r.Refusals())/float64(max(1, r.Acknowledged+r.Refusals())))
	if its.Void != "" {
		s.Void = cmp.Or(s.Void, "the greedy client: "+its.Void)
	}
}
