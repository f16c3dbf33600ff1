//go:build unix

package traffic

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

func steady(urls ...string) Steady {
	return Steady{URLs: urls, Clients: 3, Rate: 100, Patience: patience, MaxWaiting: 1000, Signers: Signers{Count: 5}}
}

func startSteady(t *testing.T, s Steady) *SteadyLoad {
	t.Helper()
	l, err := s.Start(t.Context())
	expect.Must(t, err)
	return l
}

// handOut answers an allocate with a nonce, and a mark.
func handOut(t testing.TB, message []byte, nonce int64) string {
	signer, _, _ := strings.Cut(strings.SplitAfter(string(message), `"signer":"`)[1], `"`)
	more := `"holdMs":60000`
	if strings.Contains(string(message), wire.MethodMarkUsed) {
		more = `"status":"CONSUMED"`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"signer":%q,"nonce":%d,"attempt":1,%s}}`, id(t, message), signer, nonce, more)
}

// answered is how many calls of a steady load were acknowledged so far.
func answered(l *SteadyLoad) (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.phases {
		n += h.TotalCount()
	}
	return n
}

func TestASteadyLoadNoticesAGatewayThatGoesAway(t *testing.T) {
	g := startGateway(t)
	s := steady(g.URL)
	s.Patience = 300 * time.Millisecond
	l := startSteady(t, s)
	wait.Until(t, "it has a nonce", func() bool { return answered(l) > 0 })
	expect.Check(t, g.Kill())
	wait.Until(t, "the clients have noticed", func() bool {
		return result.Sum(l.noticed.lost.all()) == 3 &&
			l.noticed.count(notConnected) > 3
	})
	r := l.Stop(t.Context())
	if r.Refused["not sent: no gateway in time"] == 0 || result.Sum(r.Lost) != 3 || r.Opened != 3 {
		t.Errorf("%+v; want requests that found no gateway, and the three connections lost", r)
	}
}

func TestTriesThatAreNotTheLastAreCountedByReason(t *testing.T) {
	var asked atomic.Int64
	url := serve(t, func(c *conn, _ int, message []byte) error {
		if n := asked.Add(1); n > 2 {
			return c.reply(handOut(t, message, n))
		}
		return c.reply(refused(t, message, "worker queue full"))
	})
	l := startSteady(t, steady(url))
	wait.Until(t, "calls are answered", func() bool { return asked.Load() > 10 })
	r := l.Stop(t.Context())
	if got := r.Restart.Repeated; result.Sum(got) != 2 || len(got) != 1 || r.Failed != 0 || r.Refusals() != 0 {
		t.Errorf("repeated %v, %+v; want the two refused tries, by one reason, and nothing refused", got, r)
	}
}

func TestWhatStaysUnknownIsFailed(t *testing.T) {
	s := steady(serve(t, func(*conn, int, []byte) error { return nil }))
	s.Patience = 100 * time.Millisecond
	l := startSteady(t, s)
	wait.Until(t, "one is unknown", func() bool {
		l.meter.mu.Lock()
		defer l.meter.mu.Unlock()
		return l.meter.failed > 0
	})
	if r := l.Stop(t.Context()); r.Failed == 0 || r.Acknowledged != 0 {
		t.Errorf("%+v; want failed requests", r)
	}
}

func TestWhatIsDueWhileTooManyWaitIsUnsent(t *testing.T) {
	var waiting atomic.Int64
	url := serve(t, func(c *conn, _ int, message []byte) error {
		waiting.Add(1)
		return nil
	})
	s := steady(url)
	s.MaxWaiting = 2
	l := startSteady(t, s)
	wait.Until(t, "one had no slot", func() bool {
		l.meter.mu.Lock()
		defer l.meter.mu.Unlock()
		return l.meter.unsent > 0 && waiting.Load() == 2
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := l.Stop(ctx); r.Failed != 2 || r.Unsent == 0 {
		t.Errorf("%+v; want two that waited and the others unsent", r)
	}
}
