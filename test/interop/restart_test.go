package interop

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

func TestAClientOutlivesARestartOfTheGateway(t *testing.T) {
	t.Parallel()
	g := start(t)
	client := g.dial()
	events := make(chan event)
	sub := subscribe(t, client, "nonce", events)
	request := object{"signer": signer, "requestId": "order-1"}
	before := call[hold](t, client, "nonce_allocate", request)
	next(t, sub, events)

	g.stop()
	if err := <-sub.Err(); err == nil || !strings.Contains(err.Error(), "1012") {
		t.Errorf("the subscription ended with %v, want close code 1012", err)
	}
	if err := client.CallContext(t.Context(), nil, "gateway_info"); err == nil {
		t.Error("a gateway that has ended answers")
	}

	g.again()
	if got := call[hold](t, client, "nonce_allocate", request); got != before {
		t.Errorf("the same request got %+v, before the restart %+v", got, before)
	}
	sub = subscribe(t, client, "nonce", events)
	call[any](t, client, "nonce_markUsed", signer, before.Nonce, txHash)
	if got := next(t, sub, events); got.Type != "used" || got.Nonce != before.Nonce {
		t.Errorf("after the restart got %+v", got)
	}
}

// ledger is what callers asked for and what they were told, by request id.
type ledger struct {
	mu    sync.Mutex
	asked []string
	told  map[string]hold
	full  chan struct{} // closed when `enough` callers were told
}

const enough = 100

// ask allocates with one request id after the other until the gateway is gone.
func (l *ledger) ask(t *testing.T, client *rpc.Client, caller int) {
	for n := 0; ; n++ {
		id := fmt.Sprintf("order-%d-%d", caller, n)
		l.mu.Lock()
		l.asked = append(l.asked, id)
		l.mu.Unlock()
		h, err := allocate(t, client, id)
		if err != nil {
			return
		}
		l.mu.Lock()
		if l.told[id] = h; len(l.told) == enough {
			close(l.full)
		}
		l.mu.Unlock()
	}
}

// allocate calls with a deadline: a call that is being written while the
// connection breaks may otherwise wait for ever in this client.
func allocate(t *testing.T, client *rpc.Client, id string) (h hold, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = client.CallContext(ctx, &h, "nonce_allocate", object{"signer": signer, "requestId": id})
	return h, err
}

func TestWhatWasAnsweredIsThereAfterAKillAndServedAtOnce(t *testing.T) {
	t.Parallel()
	g := start(t, "--max-holds=4096")
	client := g.dial()
	l := ledger{told: make(map[string]hold), full: make(chan struct{})}
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() { l.ask(t, client, caller) })
	}
	<-l.full
	g.kill()
	callers.Wait()

	client = g.again().dial()
	if info := call[object](t, client, "gateway_info"); info["incarnation"] != 2.0 {
		t.Errorf("incarnation %v after the second start", info["incarnation"])
	}
	listed := list(t, client)
	for id, h := range l.told {
		if listed[id] != h {
			t.Errorf("%s was told %+v, the list has %+v", id, h, listed[id])
		}
	}
	// The lease of the killed process has not ended, and nobody waits for it.
	// Asking again for everything gives nothing out twice, and tells those that
	// were not answered what became of their request.
	holders := make(map[hold]string)
	for _, id := range l.asked {
		h, err := allocate(t, client, id)
		if before, ok := l.told[id]; err != nil || ok && h != before {
			t.Errorf("%s got %+v (%v), before the kill %+v", id, h, err, before)
		}
		if other, ok := holders[h]; ok {
			t.Errorf("%+v is held by %s and %s", h, other, id)
		}
		holders[h] = id
	}
	held := uint64(len(l.asked))
	if got, want := call[status](t, client, "nonce_status", signer), (status{Next: held, Held: held}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// list reads the holds of the signer page by page, by request id.
func list(t *testing.T, client *rpc.Client) map[string]hold {
	t.Helper()
	type page struct {
		Allocations []struct {
			hold
			RequestID string `json:"requestId"`
		} `json:"allocations"`
		NextFrom *uint64 `json:"nextFrom"`
	}
	holds := make(map[string]hold)
	for from := new(uint64); from != nil; {
		p := call[page](t, client, "nonce_list", object{"signer": signer, "status": "HELD", "from": from, "limit": 64})
		for _, a := range p.Allocations {
			holds[a.RequestID] = a.hold
		}
		from = p.NextFrom
	}
	return holds
}
