package traffic

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/target"
	"noncegate/test/lab/wait"
)

func visits(urls ...string) Churn {
	return Churn{
		URLs: urls, Rate: 100, Requests: 2, Abrupt: 0.5, MaxOpen: 50,
		Signers: Signers{Count: 5}, Duration: 500 * time.Millisecond,
	}
}

func churn(t *testing.T, c Churn) *result.Run {
	t.Helper()
	r, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVisitorsOfAGatewayComeAndGo(t *testing.T) {
	g := target.StartGateway(t)
	r := churn(t, visits(g.URL))
	connect := r.Methods[Connect]
	if r.Opened != 50 || connect.Acknowledged != 50 || connect.LatencyMs.P50 <= 0 || len(connect.Refused) != 0 {
		t.Errorf("%d opened, %+v; want 50 visitors", r.Opened, connect)
	}
	if r.Acknowledged != 100 || r.Refusals() != 0 || r.Failed != 0 || r.Unsent != 0 || len(r.Lost) != 0 {
		t.Errorf("%+v; want two requests of each visitor", r)
	}
}

func TestSomeVisitorsLeaveWithACloseAndSomeWithout(t *testing.T) {
	var closes atomic.Int64
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n == 0 {
			c.SetCloseHandler(func(code int, _ string) error {
				if code == websocket.CloseNormalClosure {
					closes.Add(1)
				}
				return nil
			})
		}
		return c.Reply(okay(t, message))
	})
	for abrupt, want := range map[float64]int64{0: 50, 1: 0} {
		c := visits(url)
		c.Abrupt = abrupt
		closes.Store(0)
		churn(t, c)
		wait.Until(t, "the closes have come", func() bool { return closes.Load() >= want })
		if got := closes.Load(); got != want {
			t.Errorf("share %v: %d closes, want %d", abrupt, got, want)
		}
	}
}

func TestARefusedUpgradeIsCountedByItsStatus(t *testing.T) {
	var n atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 { // the one that looks whether anybody is there
			up := websocket.Upgrader{}
			if ws, err := up.Upgrade(w, r, nil); err == nil {
				ws.Close()
			}
			return
		}
		http.Error(w, "full", http.StatusServiceUnavailable)
	}))
	defer srv.Close()
	r := churn(t, visits("ws"+strings.TrimPrefix(srv.URL, "http")))
	if got := r.Methods[Connect].Refused["503 Service Unavailable"]; got != 50 || r.Failed != 100 || r.Opened != 0 {
		t.Errorf("%+v; want 50 refused upgrades and their requests failed", r)
	}
}

func TestAVisitorWhoseConnectionIsLostFailsItsRequests(t *testing.T) {
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n == 1 {
			return errors.New("enough")
		}
		return c.Reply(okay(t, message))
	})
	r := churn(t, visits(url))
	lost := result.Sum(r.Lost)
	if lost != 50 || r.Acknowledged != 50 || r.Failed != 50 {
		t.Errorf("%+v; want one request of each answered and one failed", r)
	}
}

func TestNobodyMoreThanTheBoundIsThereAtATime(t *testing.T) {
	var most, now atomic.Int64
	hold := make(chan struct{})
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n == 0 {
			most.Store(max(most.Load(), now.Add(1)))
			<-hold
		}
		return c.Reply(okay(t, message))
	})
	c := visits(url)
	c.MaxOpen, c.Requests = 3, 1
	// Long after the last visitor was due, however late it came.
	c.BeginMeasure = func() { time.AfterFunc(4*c.Duration, func() { close(hold) }) }
	r := churn(t, c)
	if most.Load() != 3 || r.Unsent != 47 || r.Acknowledged != 3 {
		t.Errorf("%d at a time, %+v; want 3, and 47 turned away", most.Load(), r)
	}
}

func TestAChurnThatIsInterruptedSaysWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := target.Serve(t, func(c *target.Conn, n int, message []byte) error {
		if n == 1 {
			cancel()
		}
		return c.Reply(okay(t, message))
	})
	c := visits(url)
	c.Duration = time.Hour
	r, err := c.Run(ctx)
	if err != nil || !r.Interrupted || r.Acknowledged == 0 {
		t.Errorf("%+v, %v; want what it has", r, err)
	}
}

func TestWrongChurnsAreRefusedByTheirField(t *testing.T) {
	refusedByField(t, visits(nowhere), Churn.Run, map[string][]func(*Churn){
		"URLs":     {func(c *Churn) { c.URLs = []string{"http://x"} }},
		"Rate":     {func(c *Churn) { c.Rate = 0 }},
		"Requests": {func(c *Churn) { c.Requests = 0 }},
		"Abrupt":   {func(c *Churn) { c.Abrupt = 1.5 }},
		"MaxOpen":  {func(c *Churn) { c.MaxOpen = 0 }},
		"Signers":  {func(c *Churn) { c.Signers.Count = 0 }},
		"Duration": {func(c *Churn) { c.Duration = 0 }},
	})
}
