//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"noncegate/client"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

// The notes of a load beside which holds end.
const (
	noteEnded  = "holds ended"
	noteEnding = "s from the first to the last"
)

// The sides of the scene.
const (
	nothingLeft = "nothing left behind"
	holdsLeft   = "300,000 holds end"
)

// othersBase is the number of the first account of those who are not the load that is
// measured.
const othersBase = 1 << 32

const (
	leaveInflight = 256                    // requests under way of whoever leaves holds behind
	beforeEnding  = 200 * time.Millisecond // is measured at least, before the first hold may be ended
	endingPoll    = 100 * time.Millisecond
)

// abandoned are holds that somebody takes and does not mark: as many of each of some
// signers. All are over at the same time, which is so long after the first was asked for.
type abandoned struct {
	signers, each int
	lasting       time.Duration
}

func (o abandoned) holds() int { return o.signers * o.each }

// expiryScene measures a load while the holds of somebody else end.
func expiryScene() Scene {
	left := abandoned{signers: 10_000, each: 30, lasting: 10 * time.Second}
	l := open(100, 2000)
	return Scene{Name: "expiry", factor: 5,
		About: fmt.Sprintf("open loop, 100 connections, 2,000 requests/s, 1,000 signers; %v before, somebody else left holds of %s other signers behind, %d of each, which end while it is measured, or nothing",
			left.lasting, whole(float64(left.signers)), left.each),
		Sides: []Side{
			{Name: nothingLeft, server: gatewayPostgres, load: l, drive: ending(abandoned{lasting: left.lasting})},
			{Name: holdsLeft, server: gatewayPostgres, load: l, drive: ending(left)}}}
}

// ending leaves holds behind, and measures the load while they end: from before the first
// until all have, which is when the measured time is over. Without holds it waits as long,
// and measures all of the time.
func ending(left abandoned) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		over := time.Now().Add(left.lasting)
		if err := left.leave(ctx, srv.url, over); err != nil {
			return Sample{}, fmt.Errorf("leave holds behind: %w", err)
		}
		begin := time.Until(over) - l.Warmup - beforeEnding
		if begin < 0 {
			return Sample{}, fmt.Errorf("it took %v to leave %s holds behind, which is too long for holds of %v",
				(left.lasting - time.Until(over)).Round(time.Millisecond), whole(float64(left.holds())), left.lasting)
		}
		if err := wait.For(ctx, begin); err != nil {
			return Sample{}, err
		}
		measured, enough := context.WithCancel(ctx)
		defer enough()
		want := float64(left.holds())
		var looks []endingLook
		watched := beside(measured, &l, func(ctx context.Context) (err error) {
			defer enough()
			looks, err = watchEnding(ctx, srv.admin+"/metrics", want)
			return err
		})
		s, err := load(measured, srv, l, 0)
		if err = errors.Join(err, watched()); err != nil {
			return s, err
		}
		s.noteEnding(looks, want)
		return s, nil
	}
}

// leave takes the holds.
func (o abandoned) leave(ctx context.Context, url string, over time.Time) (err error) {
	if o.holds() == 0 {
		return nil
	}
	c, err := client.Dial(ctx, url, client.Config{NoRequestIDs: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	accounts := traffic.Signers{Base: othersBase, Count: o.signers}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(leaveInflight)
	for i := range o.signers {
		g.Go(func() error {
			_, err := c.Allocate(ctx, client.AllocateRequest{Signer: accounts.Name(i), Count: o.each, Hold: time.Until(over)})
			return err
		})
	}
	return g.Wait()
}

// endingLook is how many holds a gateway had ended at one moment.
type endingLook struct {
	at    time.Time
	ended float64
}

// watchEnding looks how many holds a gateway has ended until ctx ends, or until it has
// ended as many as are wanted, above 0.
func watchEnding(ctx context.Context, metrics string, want float64) (looks []endingLook, err error) {
	err = wait.Until(ctx, endingPoll, func() (all bool, err error) {
		is, err := observe.Read(ctx, metrics)
		if err != nil {
			return false, fmt.Errorf("look how many holds were ended: %w", err)
		}
		look := endingLook{time.Now(), is["noncegate_holds_expired_total"]}
		looks = append(looks, look)
		return want > 0 && look.ended >= want, nil
	})
	if ctx.Err() != nil {
		return looks, nil // the measured time is over
	}
	return looks, err
}

// noteEnding notes how many holds were ended, and how long that took at most. A load that
// was not measured from before the first until all had ended is void.
func (s *Sample) noteEnding(looks []endingLook, want float64) {
	if len(looks) == 0 {
		s.Void = "nobody looked how many holds were ended"
		return
	}
	last := looks[len(looks)-1]
	s.note(noteEnded, last.ended)
	first := slices.IndexFunc(looks, func(l endingLook) bool { return l.ended > 0 })
	switch {
	case s.Void != "":
	case first == 0:
		s.Void = fmt.Sprintf("%s holds were ended before the load was measured", whole(looks[0].ended))
	case last.ended != want:
		s.Void = fmt.Sprintf("%s holds were ended while the load was measured, and not %s", whole(last.ended), whole(want))
	case want > 0:
		s.note(noteEnding, last.at.Sub(looks[first-1].at).Seconds())
	}
}
