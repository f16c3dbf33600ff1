package endpoint

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/ws"
)

func TestThoseWhoWaitForOneReceiptShareItsQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rs receipts
		var all sync.WaitGroup
		asked, answered, late := 0, 0, 0
		hash, mined := chain.Hash{1}, time.Now().Add(10*time.Second)
		var mu sync.Mutex
		for i := range 300 {
			wait := time.Minute
			if i < 100 {
				wait = 5 * time.Second // whoever asks among them goes before there is a receipt
			}
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				a, ok := rs.await(ctx, hash, func() (ws.Answer, bool) {
					mu.Lock()
					asked++
					mu.Unlock()
					return ws.Answer{Result: []byte("{}")}, !time.Now().Before(mined)
				}, func() bool { return pause(ctx, 250*time.Millisecond) })
				mu.Lock()
				defer mu.Unlock()
				if ok && string(a.Result) == "{}" {
					answered++
				} else {
					late++
				}
			})
		}
		all.Wait()
		if answered != 200 || late != 100 {
			t.Errorf("%d have the receipt, %d went before, want 200 and 100", answered, late)
		}
		if asked > 100 { // 40, and some of those who go at the same moment
			t.Errorf("the nodes were asked %d times in 10 s, want 4 times a second for all together", asked)
		}
		if len(rs.byHash) != 0 {
			t.Error("left behind: a wait")
		}
	})
}

func TestAWarningThatAClientCausesAtWillIsWrittenOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log, list := slog.New(slog.NewTextHandler(&out, nil)), newWarnings()
		wantLines := func(n int) {
			t.Helper()
			if got := strings.Count(out.String(), "\n"); got != n {
				t.Errorf("%d lines, want %d", got, n)
			}
		}
		for range 1000 {
			list.loose.warn(log, "one")
		}
		wantLines(1)
		list.reissued.warn(log, "another kind")
		wantLines(2)
		time.Sleep(time.Second)
		list.loose.warn(log, "one")
		wantLines(3)
	})
}
