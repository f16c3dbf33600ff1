package jsonrpc

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"time"
)

// Node is one node, over HTTP or WebSocket. Its methods may be called by many
// goroutines.
type Node interface {
	// Do sends calls as one request, a batch where there are several, and waits for the
	// answer, of at most limit bytes. Each call is settled when it returns. With another
	// session than 0 nothing is sent unless it is the one there is now. The time is
	// bounded by ctx alone.
	Do(ctx context.Context, session uint64, calls []*Call, limit int64)
	// Subscribe opens a subscription (eth_subscribe) with params, in a session as for Do. notify is called for
	// each notification, one call at a time, and must not block; ended once, with the
	// reason, unless Close was called before. Neither is called under a lock.
	Subscribe(ctx context.Context, session uint64, params json.RawMessage, notify func(json.RawMessage), ended func(error)) (*Subscription, *Error, error)
	// Session counts connections: what was found out about a node, such as its chain,
	// holds for one session. 0: there is none now. Over HTTP it is always 1.
	Session() uint64
	// Dials counts connections that come and go without a session, behind each of which there may
	// be another node: those over HTTP, and the WebSockets for what is ForOthers.
	Dials() uint64
	// Reconnect ends the connection there is, if it is that of the session. Over HTTP
	// it drops idle ones.
	Reconnect(session uint64, reason error)
	// Run keeps the node connected until ctx ends, then ends everything and waits for
	// it. It is called once.
	Run(ctx context.Context)
}

// Config holds the settings of a Node. There are no defaults: the caller has them.
type Config struct {
	// Dial opens the connections beneath.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// TLS is for https and wss addresses; nil: the system's authorities.
	TLS *tls.Config
	// MaxInflight is how many requests may be under way; it sizes pools, the caller
	// keeps it.
	MaxInflight int
	// MaxAnswer is the greatest limit that Do will be given, in bytes. What comes over
	// a WebSocket is never larger.
	MaxAnswer int64
	// Timeout bounds an attempt to connect, and a write.
	Timeout time.Duration
	// MaxPause bounds the pause between two attempts to connect.
	MaxPause time.Duration
	// Changed is told when a WebSocket was connected or lost; nil error: connected. It
	// must not block.
	Changed func(err error)
}

// Open returns the node at an endpoint. Nothing is connected before Run, or before the
// first Do over HTTP.
func Open(e *Endpoint, cfg Config) Node {
	if e.WebSocket() {
		return newPair(e, cfg)
	}
	return newHTTP(e, cfg)
}

var (
	_ Node = (*httpNode)(nil)
	_ Node = (*pair)(nil)
)
