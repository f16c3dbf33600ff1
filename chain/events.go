package chain

import (
	"time"

	"noncegate/nonce"
)

// report publishes what following the chain has shown, and makes the watcher look where
// holds may be ended.
func (t *Tracker) report(s *signer, events []nonce.Event) {
	if !s.owned.Load() {
		return // its owner tells
	}
	for i := range events {
		t.metrics.event(events[i].Type)
		t.warn(s, &events[i])
	}
	t.tell(s, events...)
	if len(events) > 0 || s.busy() {
		t.watch(s)
	}
}

// alarming are the events that the operator must look at, and what the log says of them.
var alarming = map[nonce.EventType]string{
	nonce.EventGap:      "a nonce blocks its account: no node has a transaction of it, and others wait behind it",
	nonce.EventExternal: "the chain has used a nonce with a transaction that did not come from here",
	nonce.EventDropped:  "no node has a transaction any more that was recorded",
	nonce.EventStuck:    "a transaction has been in the pools for long, and is not mined: perhaps its fee is too low",
}

// warn leaves a line for on-call.
func (t *Tracker) warn(s *signer, e *nonce.Event) {
	line, is := alarming[e.Type]
	if !is {
		return
	}
	args := []any{"signer", s.name, "nonce", e.Nonce, "attempt", e.Attempt}
	if e.TxHash != (Hash{}) {
		args = append(args, "tx_hash", e.TxHash.String())
	}
	if e.Gap != nil {
		args = append(args, "blocked", e.Gap.Blocked, "since", e.Gap.Since)
	}
	t.log.Warn(line, args...)
}

// tell hands events of one signer to the subscribers.
func (t *Tracker) tell(s *signer, events ...nonce.Event) {
	if len(events) == 0 || !t.sink.Watched(s.name) {
		return
	}
	now := time.Now()
	for i := range events {
		events[i].Signer, events[i].Version, events[i].At = s.name, s.version.Load(), now
	}
	t.sink.Publish(t.svc.WorkerIndex(s.name), false, events)
}
