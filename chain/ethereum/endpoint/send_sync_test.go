package endpoint

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestWhoWaitsForAReceiptWhenTheGatewayStopsIsToldThatItWasSent: by POST, which has no connection
// that would end.
func TestWhoWaitsForAReceiptWhenTheGatewayStopsIsToldThatItWasSent(t *testing.T) {
	g := startGateway(t)
	raw := transaction(ada, 0, "a")
	asked := make(chan struct{}, 1)
	g.nodes.answer(methodReceipt, func(string) (string, *rpcError, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		return "null", nil, nil
	})
	got := make(chan string, 1)
	go func() {
		_, body := g.post("", call("1", methodSendSync, `["`+raw+`"]`))
		got <- body
	}()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := g.srv.Stop(ctx); err != nil {
		t.Error(err)
	}
	if body := <-got; !strings.Contains(body, `"code":4,"message":"The transaction was added to the transaction pool;`) {
		t.Errorf("told %s", body)
	}
}
