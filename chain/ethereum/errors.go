package ethereum

import (
	"errors"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
)

// RPCError is a node's refusal of one request, as the node worded it.
type RPCError = jsonrpc.Error

// What a caller may branch on.
var (
	// ErrBusy: no slot for the request became free in time, too many wait for one, or the
	// nodes want fewer requests. Nothing was done.
	ErrBusy = errors.New("too many requests to the node")
	// ErrSubscriptionLost ends a subscription of which an unknown number of events was
	// missed: the connection to its node was lost.
	ErrSubscriptionLost = errors.New("the node's connection was lost, and events of the subscription with it")
	// ErrTooLarge: the answer is larger than Config.MaxAnswerBytes.
	ErrTooLarge = jsonrpc.ErrTooLarge
	// ErrClosed: Run has ended, or has not begun.
	ErrClosed = errors.New("the chain is not being followed")
)

// Reasons for which a node is not asked. They wrap chain.ErrUnreachable where that is
// the result of a method.
var (
	errTimeout      = errors.New("no answer in time")
	errNotConnected = errors.New("the node is not connected")
	errBackingOff   = errors.New("the node asked for fewer requests")
	errOtherChain   = errors.New("the node is of another chain")
	errSyncing      = errors.New("the node is syncing")
	errBehind       = errors.New("the node is behind, or on another branch")
	errSilent       = errors.New("no new heads over the subscription, although there were some")
)

var _ chain.Chain = (*Client)(nil)
