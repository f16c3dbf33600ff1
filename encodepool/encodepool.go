// Package encodepool is the pool in which the queues of connections encode their messages, apart
// from the workers that made them and the connections that send them, and the framing they use.
//
// A slot stands for one item that waits to be encoded. A task is "encode what
// this connection has queued" and may encode many items, so there are never more
// tasks than slots. A caller learns that the pool is full when it asks for a slot,
// before it does the work for the reply: server_busy, stage encode. A Share bounds
// the part of one connection.
//
// It promises that every task with a slot runs once, in the order of Submit, and that a panic
// ends its task only; and the framing of RFC 6455 for a server:
// unmasked, unfragmented. It does not keep an order (the queue of the connection
// does). No task may wait for a socket, because a slow client would then delay the
// encoding for all others.
//
// The pool owns its workers; Stop ends them. Its lock is that of package taskpool.
package encodepool

import (
	"log/slog"

	"noncegate/internal/taskpool"
)

// Config is the size of the pool.
type Config struct {
	// Workers encode at the same time. Encoding is pure computation: more than
	// the processors gains nothing.
	Workers int
	// Queue is the number of items that may wait, or be promised a slot, over
	// all connections. More allows larger bursts, at the price of memory and of
	// waiting that the clients do not see as busy.
	Queue int
}

// Pool is the bounded pool of encoders. See taskpool.Pool for TryReserve,
// Unreserve, Submit, Stop and the gauges.
type Pool struct{ *taskpool.Pool }

// New starts the pool. An error names the setting that is wrong.
func New(cfg Config, log *slog.Logger) (*Pool, error) {
	tasks, err := taskpool.New(taskpool.Config{Name: "encode", Workers: cfg.Workers, Capacity: cfg.Queue}, log)
	if err != nil {
		return nil, err
	}
	return &Pool{tasks}, nil
}
