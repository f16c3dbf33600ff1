package endpoint

import (
	"encoding/json"
	"fmt"

	"noncegate/chain/ethereum"
	"noncegate/internal/events"
)

type rpcError = ethereum.RPCError

// watcher is a subscriber to the gateway's own events.
type watcher chan string

// Offer implements events.Subscriber.
func (w watcher) Offer(event []byte, _ int64) bool {
	var e struct {
		Type  string
		Nonce int64
	}
	_ = json.Unmarshal(event, &e)
	w <- fmt.Sprint(e.Type, " ", e.Nonce)
	return true
}

// watch returns the events of a signer.
func (g *gateway) watch(signer string) <-chan string {
	g.Helper()
	w := make(watcher, 100)
	s := g.Hub.Subscribe(w, events.Everywhere, []string{signer})
	s.Announce()
	s.Start()
	g.Cleanup(func() { s.Close() })
	return w
}
