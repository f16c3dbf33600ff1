// Package traffic makes load for gateways and measures what they answer.
//
// It promises that every request of the measured time is counted once, as
// acknowledged, refused, failed or unsent; that latency in an open loop counts
// from when a request should have left, so that no stall is hidden; that a
// connection which is lost costs the run its own requests and nothing else; that
// Run returns once every connection is closed and every goroutine has ended.
//
// It shares the processors with what it measures, so it is built to cost little:
// a burst of requests is composed into one buffer and is one system call, an
// answer of a load that only allocates is told by its id and its first word
// without being decoded, and no request takes memory.
//
// It does not retry or reconnect: what a request met is what is counted. Answers
// are only judged by a verify.Recorder, when there is one.
//
// Each connection has one goroutine that reads; in a closed loop the same one
// sends. In an open loop a few schedulers, one for each processor, send for all.
package traffic
