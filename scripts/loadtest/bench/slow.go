//go:build unix

package bench

import (
	"context"

	"noncegate/scripts/loadtest/traffic"
)

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
		if sample.Notes == nil {
			sample.Notes = make(map[string]float64)
		}
		sample.Notes["slow clients kicked"] = float64(counts.Kicked)
		return sample, nil
	}
}
