// Package redisevents takes events from node to node through Redis, by sharded
// publish and subscribe.
//
// Each signer belongs to one of 64 channels, whose names hold which database the
// nonces are in, so that several clusters of gateways may share one Redis. A
// [Publisher] sends what its node committed, as it was encoded for the node's own
// subscribers, who get it without Redis. A [Listener] subscribes to the channels
// that subscribers at its node need, decodes each event once, and hands it to the
// hub. It skips events of its own node, so no subscriber gets an event twice.
//
// It promises: events of one signer that one node committed arrive in commit order,
// at most once. Publishing never waits for Redis: there is a bounded buffer, and
// events that do not fit are dropped and counted. Every node numbers its events in
// each channel, so a Listener notices events that were dropped, could not be sent, or
// got lost in Redis. It tells the subscribers to signers of that channel as soon as it
// hears from the node again, which is every second. It reports a broken connection,
// and a node that fell silent without notice, as a loss of unknown size. A Publisher
// encodes nothing for a channel that no subscriber needs.
//
// A node learns whether a channel is needed without asking for every event: it asks
// Redis ten times a second, by publishing an empty message to the channel, and skips
// events only within 300 ms from the moment when it began to ask (fresh). A subscriber
// is answered only when its subscription has existed for longer than that (sure).
// Only durations are compared, never clocks of two machines. A Publisher serves a
// channel for 30 s after its last listener went, so that after a broken connection
// the numbers still show what was missed.
//
// It does not promise that every event arrives, nor an order between events of one
// signer that different nodes committed (the version in each event gives it), nor that
// a Listener notices a loss from before it first heard of the node. It has no defence
// against other programs that publish in this Redis: it ignores messages that are not
// events, and accepts those that look like one.
//
// A Publisher owns one goroutine; a Listener one, and one more for each server that
// it has subscribed to. Stop ends them and waits.
package redisevents
