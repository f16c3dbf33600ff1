package rpcconn

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/wsconn/wspeer"
)

func TestPausesBetweenConnectionsGrowUntilOneLasts(t *testing.T) {
	kept(t, nil, func(t *testing.T, n *wspeer.Network, _ *Kept, p *wspeer.Peer) {
		again := func() time.Duration {
			p.Cut()
			lost := time.Now()
			p = <-n.Host("a").Peers
			return time.Since(lost)
		}
		longest := time.Duration(0)
		for i := range 50 { // they are drawn: that all of 47 are below half of their bound does not happen
			pause := again()
			if bound := min(100*time.Millisecond<<min(i, 4), time.Second); pause > bound {
				t.Errorf("pause %d is %v, want at most %v", i, pause, bound)
			}
			longest = max(longest, pause)
		}
		if longest < 500*time.Millisecond {
			t.Errorf("the longest of 50 pauses is %v", longest)
		}
		for range 50 {
			time.Sleep(time.Second)
			if pause := again(); pause > 100*time.Millisecond {
				t.Errorf("pause %v after a connection that lasted", pause)
			}
		}
	})
}

func TestTargetsToStayAwayFromAreSkipped(t *testing.T) {
	now := time.Now()
	ts := targets{list: []target{{url: "a", notBefore: now.Add(5 * time.Second)}, {url: "b"}, {url: "c", notBefore: now.Add(time.Second)}}}
	for _, want := range []string{"b", "b"} {
		if got, wait := ts.pick(now); got.url != want || wait != 0 {
			t.Errorf("got %s after %v, want %s", got.url, wait, want)
		}
	}
	ts.list[1].notBefore = now.Add(3 * time.Second)
	if got, wait := ts.pick(now); got.url != "c" || wait != time.Second {
		t.Errorf("got %s after %v, want c after 1s", got.url, wait)
	}
}

func TestRetryAfterIsReadAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[string]time.Duration{
			"": 0, "7": 7 * time.Second, "-3": 0, "x": 0, "99999999999999999999": 0, "86400": time.Hour,
			time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat): 90 * time.Second,
		} {
			got := NewStatusError(&http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {value}}}, nil, time.Hour)
			if got.RetryAfter != want {
				t.Errorf("Retry-After %q is %v, want %v", value, got.RetryAfter, want)
			}
		}
	})
}
