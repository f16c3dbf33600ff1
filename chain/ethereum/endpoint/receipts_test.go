package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/chain/ethereum"
)

// minedLater has the receipt of every transaction from a moment on.
type minedLater struct {
	Nodes
	from  time.Time
	asked atomic.Int64
}

func (n *minedLater) Call(context.Context, string, json.RawMessage) (json.RawMessage, *ethereum.RPCError, error) {
	n.asked.Add(1)
	time.Sleep(time.Millisecond)
	if time.Now().Before(n.from) {
		return json.RawMessage("null"), nil, nil
	}
	return json.RawMessage("{}"), nil, nil
}

func TestThoseThatWaitForOneReceiptShareItsQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := &minedLater{from: time.Now().Add(10 * time.Second)}
		e := &Endpoint{nodes: nodes}
		e.cfg.complete()
		var answered, late atomic.Int64
		var all sync.WaitGroup
		for i := range 300 {
			wait := time.Minute
			if i < 10 {
				wait = 5 * time.Second // the one that asks may be among these
			}
			all.Go(func() {
				switch a := e.receipt(t.Context(), nil, chain.Hash{1}, wait); {
				case string(a.Result) == "{}":
					answered.Add(1)
				case a.Foreign.Code == codeReceiptTimeout:
					late.Add(1)
				}
			})
		}
		all.Wait()
		if answered.Load() != 290 || late.Load() != 10 {
			t.Errorf("%d have the receipt, %d went before, want 290 and 10", answered.Load(), late.Load())
		}
		if n := nodes.asked.Load(); n > 60 { // 41, and up to two for each asker that goes
			t.Errorf("the nodes were asked %d times in 10 s, want 4 times a second for all together", n)
		}
	})
}

func TestAWarningThatAClientCausesAtWillIsWrittenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, lines := slog.New(slog.NewTextHandler(&out, nil)), new(seldom)
		wantLines := func(n int) {
			t.Helper()
			if got := strings.Count(out.String(), "\n"); got != n {
				t.Errorf("%d lines, want %d", got, n)
			}
		}
		for range 1000 {
			lines.warn(log, "one")
		}
		wantLines(1)
		lines.warn(log, "another kind")
		wantLines(2)
		time.Sleep(time.Second)
		lines.warn(log, "one")
		wantLines(3)
	})
}
