// Package redisevents takes events from node to node through Redis, by sharded
// publish and subscribe.
//
// Each signer belongs to one of 64 channels, whose names hold which database the
// nonces are in, so that several clusters of gateways may share one Redis. A
// [Publisher] sends what its node committed, as it was encoded for the node's own
// subscribers, who get it without Redis. A [Listener] subscribes to the channels
// that somebody at its node needs, decodes what comes once, and hands it to the
// hub. What the own node published is left out, so no subscriber gets anything
// twice.
//
// It promises: what one node committed of one signer comes in commit order, at most
// once. Publishing never waits for Redis: there is a bounded buffer, and what does
// not fit is dropped and counted. What was dropped, could not be sent, or got lost
// in Redis is noticed, because each node numbers what it publishes in a channel:
// subscribers to signers of that channel are told that they missed it, as soon as
// the node is heard again, which it is every second. A connection that broke, and a
// node that fell silent without saying goodbye, are told as a loss of unknown size.
// While nobody needs a channel nothing is encoded for it.
//
// How a node may know that nobody needs a channel, without asking for every event:
// it asks Redis ten times a second, by publishing an empty message to it, and leaves
// events out only within 300 ms from the moment when it began to ask (fresh). Who
// subscribes waits until the subscription has stood for longer than that (sure)
// before he is told that it is there. Only durations are compared, never clocks of
// two machines. A channel that somebody needed is served for 30 s more, so that
// after a connection broke the numbers still tell what was missed.
//
// It does not promise that every event arrives, nor an order between what different
// nodes committed of one signer (the version in each event tells it), nor that a
// loss is noticed which a node suffers in the first moments before it was heard for
// the first time, nor any defence against others who may publish in this Redis:
// what they write is ignored if it is no event, and taken if it looks like one.
//
// A Publisher owns one goroutine; a Listener one, and one more for each server that
// it has subscribed to. Stop ends them and waits.
package redisevents
