//go:build unix

package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
)

// gatewaySaw is what the gateway that is measured saw of a drive.
type gatewaySaw struct {
	asked  float64 // requests, of whomever
	twoIn  bool    // the greedy client is let in there
	ownKey bool    // by another key than the measured one's
}

// seen is a drive after which is noted what the gateway saw.
func seen(d drive, saw *gatewaySaw) drive {
	return func(ctx context.Context, srv *server, l traffic.Load) (Sample, error) {
		s, err := d(ctx, srv, l)
		is, lookErr := observe.Read(ctx, srv.admin+"/metrics")
		const key = "Authorization"
		*saw = gatewaySaw{
			asked: is.All("noncegate_requests_total"), twoIn: srv.greedyAt.url == srv.url,
			ownKey: srv.access.Header.Get(key) != "" && srv.greedyAt.access.Header.Get(key) != "" && srv.access.Header.Get(key) != srv.greedyAt.access.Header.Get(key),
		}
		return s, errors.Join(err, lookErr)
	}
}

func TestLongAModestClientIsMeasuredBesideAGreedyOneAtItsGatewayOrAtAnother(t *testing.T) {
	c := short
	c.Rounds, c.Duration = 1, time.Second
	greedy := closed(8, 8, 50)
	greedy.Signers.Base = othersBase
	var same, apart gatewaySaw
	at := func(name, server string, saw *gatewaySaw) Side {
		return Side{Name: name, server: server, load: open(4, 200), drive: seen(besideGreed(greedy), saw)}
	}
	scenes := []Scene{{Name: "greed", Sides: []Side{
		at(sameGateway, gatewayShared, &same), at(anotherGateway, gatewayApart, &apart),
	}}}
	r, err := run(t.Context(), c, scenes, []Row{{Name: "greed", Scene: "greed", Over: sameGateway, Under: anotherGateway, figure: p99, Target: atMost(1000)}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Rows[0]; got.Verdict != Met {
		t.Errorf("row %+v, want it met", got)
	}
	for i, saw := range []gatewaySaw{same, apart} {
		side := r.Scenes[0].Sides[i]
		s := side.Samples[0]
		if s.Void != "" || s.Acknowledged < 150 || s.Acknowledged > 250 || s.Notes[noteGreed] < 2*s.PerSecond {
			t.Errorf("%s: %+v, want 200 requests of the modest client, and more of the greedy one", side.Name, s)
		}
		together, alone := s.PerSecond+s.Notes[noteGreed], side.Name == anotherGateway
		if (saw.asked < 300) != alone || !alone && saw.asked < together/2 || saw.twoIn == alone || !saw.ownKey {
			t.Errorf("%s: the gateway saw %+v, of %.0f requests", side.Name, saw, together)
		}
	}
}

func TestAGreedyClientMayBeRefusedAndNothingElse(t *testing.T) {
	refused := &result.Run{Seconds: 1, Acknowledged: 900, PerSecond: 900, Refused: map[string]int64{"server_busy": 100}}
	var s Sample
	if s.noteGreed(refused); s.Void != "" || s.Notes[noteGreed] != 900 || s.Notes[noteGreedRefused] != 100 {
		t.Errorf("beside a client of which a tenth was refused: %+v", s)
	}
	lost := *refused
	lost.Lost = map[string]int64{"read: reset": 1}
	if s.noteGreed(&lost); !strings.Contains(s.Void, "the greedy client: 1 connections lost") {
		t.Errorf("beside a client that lost a connection: void because of %q", s.Void)
	}
}

func TestAGreedyClientThatDoesNotBeginMakesTheSampleVoid(t *testing.T) {
	srv := &server{greedyAt: endpoint{url: "ws://127.0.0.1:1/ws"}}
	_, err := besideGreed(few(1))(t.Context(), srv, open(1, 1))
	if err == nil || !strings.Contains(err.Error(), "the greedy client did not begin") {
		t.Errorf("without the other gateway: %v", err)
	}
}
