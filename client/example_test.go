package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/client"
	"noncegate/wire"
)

const (
	signer = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"
	txHash = "0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060"
)

// gateway is a stand-in for one: it answers each method with what it was given,
// and cuts the connection for those it was not.
func gateway(answers map[string]string) *httptest.Server {
	var upgrader websocket.Upgrader
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		for {
			var call struct {
				ID     int
				Method string
			}
			if ws.ReadJSON(&call) != nil || answers[call.Method] == "" {
				return
			}
			ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,%s}`, call.ID, answers[call.Method]))
			if event := answers["event"]; call.Method == wire.MethodSubscribe {
				ws.WriteMessage(websocket.TextMessage, []byte(event))
			}
		}
	}))
}

const granted = `"result":{"signer":"` + signer + `","nonce":42,"attempt":1,"fencingToken":3,` +
	`"heldUntil":"2026-11-20T18:34:56.123Z","holdMs":60000}`

func Example() {
	srv := gateway(map[string]string{
		wire.MethodAllocate: granted,
		wire.MethodMarkUsed: `"result":{"signer":"` + signer + `","nonce":42,"attempt":1,"status":"CONSUMED","txHash":"` + txHash + `"}`,
	})
	defer srv.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, srv.URL, client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	a, err := c.Allocate(ctx, client.AllocateRequest{Signer: signer})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("nonce", a.Nonce, "attempt", a.Attempt)
	mark, err := c.MarkUsed(ctx, a.Hold(), txHash)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(mark.Status)
	// Output:
	// nonce 42 attempt 1
	// CONSUMED
}

// The function signs, records the hash, and sends. A node that does not answer in time
// may have the transaction: its nonce is not given to anybody else.
func ExampleClient_WithNonce() {
	srv := gateway(map[string]string{
		wire.MethodAllocate:       granted,
		wire.MethodMarkSigned:     `"result":{"signer":"` + signer + `","nonce":42,"attempt":1,"status":"HELD","txHash":"` + txHash + `"}`,
		wire.MethodMarkRecyclable: `"result":{"signer":"` + signer + `","nonce":42,"attempt":1,"status":"RELEASED"}`,
	})
	defer srv.Close()
	ctx := context.Background()
	c, err := client.Dial(ctx, srv.URL, client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	sign := func(nonce int64) (hash string, err error) { return txHash, nil }
	send := func(context.Context, string) error { return context.DeadlineExceeded }
	transfer := func(ctx context.Context, n *client.HeldNonce) (string, error) {
		hash, err := sign(n.Nonce)
		if err != nil {
			return "", err // before Signed, by the promise nothing was sent: it is given back
		}
		if err := n.Signed(ctx, hash); err != nil {
			return "", fmt.Errorf("%w: %w", client.ErrNotSent, err) // given back
		}
		return hash, send(ctx, hash) // left as it is, when that fails
	}
	err = c.WithNonce(ctx, signer, client.NonceOptions{RecordFirst: true}, transfer)
	fmt.Println(err)
	sign = func(int64) (string, error) { return "", errors.New("the key is locked") }
	err = c.WithNonce(ctx, signer, client.NonceOptions{RecordFirst: true}, transfer)
	fmt.Println(err)
	// Output:
	// context deadline exceeded
	// the key is locked
}

// A nonce that blocks those above it is taken over, to replace what was sent with it.
func ExampleClient_Repair() {
	srv := gateway(map[string]string{
		wire.MethodRepair: `"result":{"signer":"` + signer + `","nonce":41,"attempt":2,"fencingToken":3,"heldUntil":"2026-11-20T18:34:56.123Z","holdMs":60000,` +
			`"was":{"status":"UNKNOWN","attempt":1,"reason":"unknown"},"txHashes":["` + txHash + `"],"offer":{"maxFeePerGas":"0x77359400"}}`,
		wire.MethodMarkSigned: `"result":{"signer":"` + signer + `","nonce":41,"attempt":2,"status":"HELD"}`,
	})
	defer srv.Close()
	ctx := context.Background()
	c, err := client.Dial(ctx, srv.URL, client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	r, err := c.Repair(ctx, client.RepairRequest{Signer: signer})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("nonce", r.Nonce, "was", r.Was.Status, "and pays", r.Offer.MaxFeePerGas)
	if _, err := c.MarkSigned(ctx, r.Hold(), txHash); err != nil { // of the replacement
		log.Fatal(err)
	}
	// Output: nonce 41 was UNKNOWN and pays 0x77359400
}

func ExampleClient_Subscribe() {
	srv := gateway(map[string]string{
		wire.MethodSubscribe: `"result":"1"`,
		"event": `{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":"1","result":{"type":"used",` +
			`"signer":"` + signer + `","nonce":42,"attempt":1,"version":7,"at":"2026-11-20T18:34:01.000Z","missed":2}}}`,
	})
	defer srv.Close()
	ctx := context.Background()
	c, err := client.Dial(ctx, srv.URL, client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	events, err := c.Subscribe(ctx, signer)
	if err != nil {
		log.Fatal(err)
	}
	defer events.Close()
	e := <-events.Events()
	if e.Gap || e.Missed > 0 {
		fmt.Println("missed", e.Missed, "gap", e.Gap)
	}
	fmt.Println(e.Type, e.Nonce)
	// Output:
	// missed 2 gap false
	// used 42
}

// A write whose answer was lost is neither done nor undone, and says so.
func ExampleUnknownOutcomeError() {
	srv := gateway(nil) // cuts each connection at the first request
	defer srv.Close()
	ctx := context.Background()
	c, err := client.Dial(ctx, srv.URL, client.Config{MaxElapsed: 300 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	_, err = c.Allocate(ctx, client.AllocateRequest{Signer: signer, RequestID: "order-7"})
	var unknown *client.UnknownOutcomeError
	switch {
	case errors.As(err, &unknown):
		fmt.Println("ask again with", unknown.RequestID)
	case errors.Is(err, client.ErrHoldLimit):
		fmt.Println("did not happen")
	}
	// Output: ask again with order-7
}
