//go:build unix

package bench

import (
	"context"

	"golang.org/x/sync/errgroup"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// noteForwarded is how many of 1,000 requests were answered by another node than
// the one that was asked.
const noteForwarded = "forwarded of 1,000"

// randomNodes makes the load of all connections, which take the nodes in turn and
// ask for any signer.
func randomNodes(ctx context.Context, cl *cluster, c Config) (Sample, error) {
	return cl.loaded(ctx, nodesLoad(c, cl.urls()))
}

// atOwners makes it in as many parts as there are nodes: a connection asks for
// signers that its node owns.
func atOwners(ctx context.Context, cl *cluster, c Config) (Sample, error) {
	all := nodesLoad(c, nil)
	owned, err := cl.owned(ctx, all.Signers)
	if err != nil {
		return Sample{}, err
	}
	parts := make([]traffic.Load, len(cl.nodes))
	for i, n := range cl.nodes {
		l := all
		l.URLs = []string{n.url}
		l.Connections = share(all.Connections, i, len(parts))
		l.Signers = owned[i]
		parts[i] = l
	}
	return cl.loaded(ctx, parts...)
}

// share is the i-th of n parts of a number, which differ by one at most.
func share(total, i, n int) int { return (total*(i+1))/n - total*i/n }

// loaded makes loads at the same time, and tells of them as of one. Of the latency
// it tells that of the worst.
func (cl *cluster) loaded(ctx context.Context, loads ...traffic.Load) (Sample, error) {
	before, err := cl.metrics(ctx)
	if err != nil {
		return Sample{}, err
	}
	runs := make([]*result.Run, len(loads))
	var g errgroup.Group
	for i, l := range loads {
		g.Go(func() (err error) { runs[i], err = l.Run(ctx); return err })
	}
	if err := g.Wait(); err != nil {
		return Sample{}, err
	}
	after, err := cl.metrics(ctx)
	if err != nil {
		return Sample{}, err
	}
	var sum Sample
	var voids []string
	for _, r := range runs {
		s := sampleOf(r, 0)
		sum.Acknowledged += s.Acknowledged
		sum.PerSecond += s.PerSecond
		sum.P50Ms, sum.P99Ms = max(sum.P50Ms, s.P50Ms), max(sum.P99Ms, s.P99Ms)
		if s.Void != "" {
			voids = append(voids, s.Void)
		}
	}
	if len(voids) > 0 {
		sum.Void = voids[0]
	}
	for _, n := range cl.nodes {
		sum.Resident += residentBytes(n.proc.PID())
	}
	grown := after.Since(before)
	forwarded := grown["noncegate_forwarded_total{answered}"]
	if asked := grown["noncegate_requests_total{nonce_allocate}"] + grown["noncegate_requests_total{nonce_markUsed}"] - forwarded; asked > 0 {
		sum.Notes = map[string]float64{noteForwarded: 1000 * forwarded / asked}
	}
	return sum, nil
}
