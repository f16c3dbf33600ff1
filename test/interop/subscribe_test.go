package interop

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

// event is what a program would keep of an event.
type event struct {
	Type    string    `json:"type"`
	Signer  string    `json:"signer"`
	Nonce   uint64    `json:"nonce"`
	Attempt uint64    `json:"attempt"`
	TxHash  string    `json:"txHash"`
	Reason  string    `json:"reason"`
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
}

// subscribe subscribes under the namespace to the events of signer.
func subscribe(t *testing.T, client *rpc.Client, namespace string, events chan<- event) *rpc.ClientSubscription {
	t.Helper()
	sub, err := client.Subscribe(t.Context(), namespace, events, "events", object{"signers": []string{signer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Unsubscribe)
	return sub
}

// next is the next event of a subscription, checked for its time and stripped of
// it.
func next(t *testing.T, sub *rpc.ClientSubscription, events <-chan event) event {
	t.Helper()
	select {
	case e := <-events:
		if e.At.IsZero() {
			t.Errorf("%+v has no time", e)
		}
		e.At = time.Time{}
		return e
	case err := <-sub.Err():
		t.Fatalf("the subscription ended: %v", err)
	case <-t.Context().Done():
	}
	return event{}
}

func TestASubscriberSeesWhatAnotherClientDoes(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"nonce", "eth"} {
		t.Run(namespace, func(t *testing.T) {
			g := start(t)
			events := make(chan event)
			sub := subscribe(t, g.dial(), namespace, events)

			client := g.dial()
			call[any](t, client, "nonce_allocate", "somebody-else")
			call[any](t, client, "nonce_allocate", signer)
			call[any](t, client, "nonce_markRecyclable", signer, 0, "gas too low")
			call[any](t, client, "nonce_allocate", signer)
			call[any](t, client, "nonce_markUsed", signer, 0, txHash, 2)
			call[any](t, client, "nonce_setFloor", signer, 9)
			for _, want := range []event{
				{Type: "allocated", Signer: signer, Attempt: 1, Version: 1},
				{Type: "released", Signer: signer, Attempt: 1, Version: 2, Reason: "gas too low"},
				{Type: "allocated", Signer: signer, Attempt: 2, Version: 3},
				{Type: "used", Signer: signer, Attempt: 2, Version: 4, TxHash: txHash},
				{Type: "floor", Signer: signer, Nonce: 9, Version: 5},
			} {
				if got := next(t, sub, events); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
		})
	}
}
