package endpoint

import (
	"encoding/json"

	"noncegate/chain/ethereum"
	"noncegate/internal/events"
	"noncegate/wire"
)

type rpcError = ethereum.RPCError

// watcher is a subscriber to the gateway's own events.
type watcher chan wire.Event

// Offer implements events.Subscriber.
func (w watcher) Offer(event []byte, _ int64) bool {
	var e wire.Event
	_ = json.Unmarshal(event, &e)
	w <- e
	return true
}

// watch returns the events of a signer.
func (g *gateway) watch(signer string) <-chan wire.Event {
	g.Helper()
	w := make(watcher, 100)
	s := g.Hub.Subscribe(w, events.Everywhere, []string{signer})
	s.Announce()
	s.Start()
	g.Cleanup(func() { s.Close() })
	return w
}
