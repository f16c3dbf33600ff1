package wire

import (
	"maps"
	"slices"
	"strconv"
)

// The methods of the protocol. eth_subscribe and eth_unsubscribe are aliases of
// the two subscription methods, for clients that can say nothing else.
const (
	MethodAllocate       = "nonce_allocate"
	MethodMarkUsed       = "nonce_markUsed"
	MethodMarkRecyclable = "nonce_markRecyclable"
	MethodMarkSigned     = "nonce_markSigned"
	MethodExtend         = "nonce_extend"
	MethodRepair         = "nonce_repair"
	MethodStatus         = "nonce_status"
	MethodList           = "nonce_list"
	MethodSetFloor       = "nonce_setFloor"
	MethodSubscribe      = "nonce_subscribe"
	MethodUnsubscribe    = "nonce_unsubscribe"
	MethodSubscription   = "nonce_subscription"
	MethodEthSubscribe   = "eth_subscribe"
	MethodEthUnsubscribe = "eth_unsubscribe"
	MethodEthSub         = "eth_subscription"
	MethodInfo           = "gateway_info"
	MethodStats          = "gateway_stats"
)

// The states of an allocation, as they are written on the wire. One that is UNKNOWN
// is a hold whose time is over, and whether its nonce was used is unknown.
const (
	StatusHeld     = "HELD"
	StatusReleased = "RELEASED"
	StatusConsumed = "CONSUMED"
	StatusUnknown  = "UNKNOWN"
)

// The types of an event.
const (
	EventAllocated = "allocated"
	EventUsed      = "used"
	EventReleased  = "released"
	EventExpired   = "expired"
	EventFloor     = "floor"
	EventReplaced  = "replaced"
	EventSigned    = "signed"
	EventExtended  = "extended"
	EventUnknown   = "unknown"
	EventSent      = "sent"
	EventMined     = "mined"
	EventFinal     = "final"
	EventDropped   = "dropped"
	EventGap       = "gap"
	EventGapClosed = "gapClosed"
	EventExternal  = "external"
	EventReorg     = "reorg"
	EventStuck     = "stuck"
)

// What a chain says of a nonce that was sent, as Allocation.Chain has it.
const (
	ChainSent     = "sent"     // the gateway gave its transaction to the nodes
	ChainSeen     = "seen"     // a node has it
	ChainDropped  = "dropped"  // no node has it any more
	ChainMined    = "mined"    // a block used the nonce
	ChainFinal    = "final"    // and is final
	ChainUsed     = "used"     // the nonce was used; whether by one of those recorded is not known
	ChainExternal = "external" // as mined, by a transaction that is not one of those recorded
)

// NonceAttempt is one nonce of an allocation and its generation, from 1.
type NonceAttempt struct {
	Nonce    int64     `json:"nonce"`
	Attempt  int64     `json:"attempt"`
	Reissued *Reissued `json:"reissued,omitempty"`
}

// AllocateResult answers nonce_allocate. Nonce, Attempt and Reissued are of the lowest;
// Nonces is present when more than one was asked for. HoldMs is what was left of the hold at the
// commit; a client counts it from sending, which can only make it stop sooner.
type AllocateResult struct {
	Signer       string         `json:"signer"`
	Nonce        int64          `json:"nonce"`
	Attempt      int64          `json:"attempt"`
	FencingToken int64          `json:"fencingToken"`
	HeldUntil    Time           `json:"heldUntil"`
	HoldMs       int64          `json:"holdMs"`
	Nonces       []NonceAttempt `json:"nonces,omitempty"`
	Reissued     *Reissued      `json:"reissued,omitempty"`
}

// Reissued says that a nonce was held before, and that its holder did not say what became of
// it: a transaction of that holder may still turn up. It is said until the nonce is CONSUMED,
// of the last hold of the kind.
type Reissued struct {
	Attempt int64  `json:"attempt"` // of that hold
	Reason  string `json:"reason"`  // ReissuedUnseen or ReissuedRepair
	TxHash  string `json:"txHash,omitempty"`
}

// The values of Reissued.Reason.
const (
	ReissuedUnseen = "unseen" // no node of the chain has seen a transaction for long
	ReissuedRepair = "repair" // nonce_repair took the nonce from it
)

// MarkResult answers nonce_markUsed, nonce_markSigned and nonce_markRecyclable. HoldMs, here and in
// other results, is counted as that of AllocateResult.
type MarkResult struct {
	Signer   string   `json:"signer"`
	Nonce    int64    `json:"nonce"`
	Attempt  int64    `json:"attempt"`
	Status   string   `json:"status"`
	TxHash   string   `json:"txHash,omitempty"`   // the newest one recorded
	TxHashes []string `json:"txHashes,omitempty"` // all, newest first, when there are several
	Replaced string   `json:"replaced,omitempty"` // the newest one before this mark, when the mark added another

	// Of nonce_markSigned, while the nonce is HELD.
	HeldUntil *Time `json:"heldUntil,omitempty"`
	HoldMs    int64 `json:"holdMs,omitempty"`
}

// ExtendResult answers nonce_extend: the hold with its new deadline.
type ExtendResult struct {
	Signer       string `json:"signer"`
	Nonce        int64  `json:"nonce"`
	Attempt      int64  `json:"attempt"`
	FencingToken int64  `json:"fencingToken"`
	HeldUntil    Time   `json:"heldUntil"`
	HoldMs       int64  `json:"holdMs"`
}

// RepairResult answers nonce_repair: a hold of a nonce whatever it was, what it was, and
// what is known of the transactions that were sent with it. A repeat of a request id is not told
// what it was before.
type RepairResult struct {
	Signer       string `json:"signer"`
	Nonce        int64  `json:"nonce"`
	Attempt      int64  `json:"attempt"`
	FencingToken int64  `json:"fencingToken"`
	HeldUntil    Time   `json:"heldUntil"`
	HoldMs       int64  `json:"holdMs"`
	Was          *Was   `json:"was,omitempty"`
	// Reissued is of a hold before Was; of a request id that was known, it may be Was.
	Reissued *Reissued `json:"reissued,omitempty"`
	TxHashes []string  `json:"txHashes,omitempty"` // newest first
	Offer    *Offer    `json:"offer,omitempty"`    // nil: nothing is known
}

// Was is the state in which a repair found a nonce. Attempt 0: it was never held.
type Was struct {
	Status  string `json:"status"`
	Attempt int64  `json:"attempt"`
	Reason  string `json:"reason,omitempty"`
}

// Offer is what the transaction pays that a repair has to outbid, in hexadecimal
// quantities; empty: unknown, or of another type of transaction.
type Offer struct {
	GasPrice             string `json:"gasPrice,omitempty"`
	MaxFeePerGas         string `json:"maxFeePerGas,omitempty"`
	MaxPriorityFeePerGas string `json:"maxPriorityFeePerGas,omitempty"`
	MaxFeePerBlobGas     string `json:"maxFeePerBlobGas,omitempty"`
}

// StatusResult answers nonce_status. An overdue hold counts as released, or, where a
// chain is asked about the signer, as held. Unknown are those of Held whose time is
// over, while it is unknown whether they were used. Owner, OwnerURL and
// LeaseUntil are there only while a lease runs.
type StatusResult struct {
	Signer       string       `json:"signer"`
	Next         int64        `json:"next"`
	Floor        int64        `json:"floor"`
	Held         int64        `json:"held"`
	Unknown      int64        `json:"unknown"`
	Released     int64        `json:"released"`
	Consumed     int64        `json:"consumed"`
	LowestHeld   *int64       `json:"lowestHeld,omitempty"`
	Owner        string       `json:"owner,omitempty"`
	OwnerURL     string       `json:"ownerUrl,omitempty"`
	FencingToken int64        `json:"fencingToken"`
	Version      int64        `json:"version"`
	LeaseUntil   *Time        `json:"leaseUntil,omitempty"`
	Engine       string       `json:"engine,omitempty"` // that serves it: EngineReliable or EnginePerformance
	Chain        *ChainStatus `json:"chain,omitempty"`  // nil: no chain is asked, or none has answered
}

// The engines. In EnginePerformance a hand-out is answered when Redis has it, and the store
// follows.
const (
	EngineReliable    = "reliable"
	EnginePerformance = "performance"
)

// ChainStatus is what a chain says of a signer, as far as its owner knows.
type ChainStatus struct {
	Mined int64  `json:"mined"`           // nonces below it are used, at the head
	Final *int64 `json:"final,omitempty"` // and at the final block; nil: not known
	// Claimed is a count above Mined that one of several nodes gives while the others are away or
	// behind. It is not settled: only the window begins there. 0: there is none.
	Claimed int64 `json:"claimed,omitempty"`
	Window  int64 `json:"window,omitempty"` // new nonces are below Mined plus this; 0: no bound
	Head    int64 `json:"head"`             // the number of the block at which that was so
	Gap     *Gap  `json:"gap,omitempty"`    // nil: no nonce is known to block others
	// Stuck: nodes have the transaction of the lowest nonce that the chain has not used, and it is
	// not mined for long. Dropped: no node has it any more, and nothing waits behind it.
	Stuck   *Gap `json:"stuck,omitempty"`
	Dropped *Gap `json:"dropped,omitempty"`
	// Stopped: the final block of the chain fell, and nothing is done by itself for its
	// signers until the gateway is started again.
	Stopped bool `json:"stopped,omitempty"`
	// Partial: the owner could not be asked. Gap, Stuck and Dropped are then as the owner stored them
	// last, and the rest is what the node that answers knows by itself.
	Partial bool `json:"partial,omitempty"`
}

// Gap is the lowest nonce that the chain has not used, and why it is not mined.
type Gap struct {
	Nonce   int64  `json:"nonce"`
	Since   Time   `json:"since"`            // since when it is known to be so, by the clock of the node
	Status  string `json:"status,omitempty"` // empty: it was never handed out
	Attempt int64  `json:"attempt,omitempty"`
	TxHash  string `json:"txHash,omitempty"`
	Blocked int64  `json:"blocked"` // how many nonces above it are HELD or CONSUMED
}

// Allocation is one row of nonce_list.
type Allocation struct {
	Nonce     int64     `json:"nonce"`
	Status    string    `json:"status"`
	Attempt   int64     `json:"attempt"`
	TxHash    string    `json:"txHash,omitempty"`   // the newest one recorded
	TxHashes  []string  `json:"txHashes,omitempty"` // all, newest first, when there are several
	Reason    string    `json:"reason,omitempty"`
	Reissued  *Reissued `json:"reissued,omitempty"` // an allocate of it says so, or said
	HeldUntil *Time     `json:"heldUntil,omitempty"`
	RequestID string    `json:"requestId,omitempty"`
	Holder    string    `json:"holder,omitempty"`    // the principal that has or had its last attempt, for clients that may see it
	Chain     string    `json:"chain,omitempty"`     // what the chain says of it, such as ChainSeen; empty: nothing
	UpdatedAt *Time     `json:"updatedAt,omitempty"` // nil: the store does not know of it yet, see the performance engine
}

// ListResult answers nonce_list. NextFrom is where the next page begins, absent
// on the last page. A page may be shorter than was asked for and not be the last.
type ListResult struct {
	Allocations []Allocation `json:"allocations"`
	NextFrom    *int64       `json:"nextFrom,omitempty"`
	// Partial: the owner could not be asked what the chain says of the nonces. It is what the node
	// that answers knows by itself.
	Partial bool `json:"partial,omitempty"`
}

// FloorResult answers nonce_setFloor.
type FloorResult struct {
	Signer string `json:"signer"`
	Floor  int64  `json:"floor"`
	Next   int64  `json:"next"`
}

// Event is what a subscriber receives. Missed is the number of events that were
// dropped on this subscription before this one, because its client read slowly.
type Event struct {
	Type    string `json:"type"`
	Signer  string `json:"signer"`
	Nonce   int64  `json:"nonce"`
	Attempt int64  `json:"attempt"`
	TxHash  string `json:"txHash,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Version int64  `json:"version"`
	At      Time   `json:"at"`
	Gap     *Gap   `json:"gap,omitempty"` // of type EventGap
	Missed  int64  `json:"missed,omitempty"`
}

// InfoResult answers gateway_info. Nodes are the nodes of the same store, this one
// included, in order of their ids, as this node last saw them in the registry; of
// more than MaxNodes some are left out, and NodeCount tells how many there are.
type InfoResult struct {
	Node        string     `json:"node"`
	Incarnation int64      `json:"incarnation"`
	Version     string     `json:"version"`
	Engine      string     `json:"engine"` // EnginePerformance: every signer has it
	Store       string     `json:"store"`  // sqlite or postgres
	Mode        string     `json:"mode"`
	Redis       string     `json:"redis,omitempty"`            // server; "": none
	EngineState string     `json:"engineState,omitempty"`      // of the cluster between its engines; "": there is one engine only
	Generation  int64      `json:"engineGeneration,omitempty"` // of that state: it rises with each change
	Limits      Limits     `json:"limits"`
	NodeCount   int64      `json:"nodeCount,omitempty"`
	Nodes       []NodeInfo `json:"nodes,omitempty"`
}

// MaxNodes is the most nodes that gateway_info shows.
const MaxNodes = 64

// The states of a node in gateway_info.
const (
	NodeLive   = "live"   // it beats
	NodeLeft   = "left"   // it went away in an orderly way, or is about to
	NodeSilent = "silent" // it has not left, and was not heard of for too long
)

// NodeInfo is one node of the registry. Shards is how many it owns. Times are of the
// store's clock.
type NodeInfo struct {
	Node        string `json:"node"`
	URL         string `json:"url"`
	Mode        string `json:"mode,omitempty"`
	State       string `json:"state"`
	Incarnation int64  `json:"incarnation"`
	Shards      int64  `json:"shards"`
	StartedAt   Time   `json:"startedAt"`
	SeenAt      Time   `json:"seenAt"`
}

// Limits are the bounds a client meets, so that it need not find them by error.
type Limits struct {
	MaxCount        int64 `json:"maxCount"`
	MaxBatch        int64 `json:"maxBatch"`
	MaxMessageBytes int64 `json:"maxMessageBytes"`
	MaxInflight     int64 `json:"maxInflight"`
	MaxHolds        int64 `json:"maxHolds"`
	MinHoldMs       int64 `json:"minHoldMs"`
	MaxHoldMs       int64 `json:"maxHoldMs"`
	DefaultHoldMs   int64 `json:"defaultHoldMs"`
	MaxListLimit    int64 `json:"maxListLimit"`
}

// Figure is one distribution of the ws_perf log line, in milliseconds.
type Figure struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// StatsResult answers gateway_stats and is the body of the ws_perf log line:
// the figures of the last complete interval.
type StatsResult struct {
	IntervalMs      int64  `json:"intervalMs"`
	Connections     int64  `json:"connections"`
	EncodeQueueMs   Figure `json:"encodeQueueMs"`
	EncodeMs        Figure `json:"encodeMs"`
	PostDBQueueMs   Figure `json:"postDbQueueMs"`
	WriteQueueMs    Figure `json:"writeQueueMs"`
	WorkerQueueMs   Figure `json:"workerQueueMs"`
	CommitMs        Figure `json:"commitMs"`
	BusyReject      int64  `json:"busy_reject"`
	DropUnwritable  int64  `json:"drop_unwritable"`
	KickSlow        int64  `json:"kick_slow"`
	CommitBatchSize Figure `json:"commitBatchSize"`

	Engine *EngineStats `json:"engine,omitempty"` // nil: there is one engine only
}

// EngineStats are the performance engine at the end of the interval, as this node saw it last.
type EngineStats struct {
	State      string `json:"state"`      // as in InfoResult
	Generation int64  `json:"generation"` // of what is wanted: it rises with each switch
	Shards     int64  `json:"shards"`     // of the whole cluster, that have the performance engine
	Unshipped  int64  `json:"unshipped"`  // changes that this node's logs have and the rows do not
	BehindMs   int64  `json:"behindMs"`   // age of the oldest of them
}

// The codes of the protocol's errors.
const (
	CodeParseError      = -32700
	CodeInvalidRequest  = -32600
	CodeMethodNotFound  = -32601
	CodeInvalidParams   = -32602
	CodeInternal        = -32603
	CodeServerBusy      = -32005
	CodeNotOwner        = -32010
	CodeFenced          = -32011
	CodeUnavailable     = -32012
	CodeConflict        = -32013
	CodeNotFound        = -32014
	CodeHoldLimit       = -32015
	CodeDuplicateSubmit = -32016
	CodeUnauthorized    = -32017
	CodeForbidden       = -32018
	CodeDraining        = -32019
)

// reasons are the words for the codes.
var reasons = map[int]string{
	CodeParseError:      "parse_error",
	CodeInvalidRequest:  "invalid_request",
	CodeMethodNotFound:  "method_not_found",
	CodeInvalidParams:   "invalid_params",
	CodeInternal:        "internal",
	CodeServerBusy:      "server_busy",
	CodeNotOwner:        "not_owner",
	CodeFenced:          "fenced",
	CodeUnavailable:     "unavailable",
	CodeConflict:        "conflict",
	CodeNotFound:        "not_found",
	CodeHoldLimit:       "hold_limit",
	CodeDuplicateSubmit: "duplicate_submit",
	CodeUnauthorized:    "unauthorized",
	CodeForbidden:       "forbidden",
	CodeDraining:        "draining",
	CodeAnswerTooLarge:  "answer_too_large",
}

// Reason is the stable word for a code, which is Data.Reason of its errors. CodeRejected
// has none: its errors have several.
func Reason(code int) string { return reasons[code] }

// Reasons are the words for all codes, in alphabetical order.
func Reasons() []string { return slices.Sorted(maps.Values(reasons)) }

// Error is the error object of a JSON-RPC reply. Data.Reason is the stable word
// programs branch on; Message is "reason: sentence".
type Error struct {
	Code    int        `json:"code"`
	Message string     `json:"message"`
	Data    *ErrorData `json:"data,omitempty"`
}

// Error implements error with the code and the message.
func (e *Error) Error() string { return e.Message + " (" + strconv.Itoa(e.Code) + ")" }

// ErrorData says more about an error, each field where it applies.
type ErrorData struct {
	Reason       string      `json:"reason"`
	Field        string      `json:"field,omitempty"`
	Stage        string      `json:"stage,omitempty"`
	Outcome      string      `json:"outcome,omitempty"`
	RetryAfterMs int64       `json:"retryAfterMs,omitempty"`
	OwnerNode    string      `json:"ownerNode,omitempty"`
	OwnerURL     string      `json:"ownerUrl,omitempty"`
	Signer       string      `json:"signer,omitempty"`
	Nonce        *int64      `json:"nonce,omitempty"`
	Status       string      `json:"status,omitempty"`
	Attempt      int64       `json:"attempt,omitempty"`
	TxHash       string      `json:"txHash,omitempty"`
	HeldUntil    *Time       `json:"heldUntil,omitempty"`
	Nonces       []HoldState `json:"nonces,omitempty"`
	Limit        int64       `json:"limit,omitempty"`
	Cause        string      `json:"cause,omitempty"` // which of several rules a reason stands for, where programs need it
	Right        string      `json:"right,omitempty"` // that is missing, with forbidden
}

// The values of ErrorData.Cause.
const (
	// CauseWindow, with hold_limit: a new nonce would be too far ahead of the chain.
	// Nonce is the lowest that it has not used, and Limit how far new ones may be.
	CauseWindow = "window"
	// CauseReplacement, with conflict: another transaction is recorded for the nonce.
	CauseReplacement = "replacement"
	// CauseNewSigner, with not_found: the gateway takes no new signers by itself.
	CauseNewSigner = "newSigner"
)

// HoldState is the present state of one nonce of a repeated request whose hold
// has ended.
type HoldState struct {
	Nonce   int64  `json:"nonce"`
	Attempt int64  `json:"attempt"`
	Status  string `json:"status"`
}

// The values of ErrorData.Outcome with unavailable.
const (
	OutcomeNone    = "none"
	OutcomeUnknown = "unknown"
)

// The values of ErrorData.Stage with server_busy.
const (
	StageConnection = "connection"
	StageInflight   = "inflight"
	StageWorker     = "worker"
	StageEncode     = "encode"
	StagePostDB     = "postdb"
	StageForward    = "forward"
	StageGuard      = "guard"
	StageQuota      = "quota"
)

// CloseTextRestart is the reason that goes with CloseServiceRestart. To another node
// it says: all that was taken is answered.
const CloseTextRestart = "restart"

// Close codes that the gateway sends: those of RFC 6455 and of its registry, and from 4000 on its
// own. 4500 and above mean: do not reconnect.
const (
	CloseGoingAway      = 1001
	CloseProtocolError  = 1002
	CloseUnsupported    = 1003
	ClosePolicy         = 1008
	CloseTooLarge       = 1009
	CloseInternal       = 1011
	CloseServiceRestart = 1012
	CloseSlowConsumer   = 4001
	// CloseSubscriptionLost closes a connection of which events of a subscription are lost
	// for good. Connect and subscribe again.
	CloseSubscriptionLost = 4002
	CloseExpired          = 4501 // the credential has expired
	CloseRevoked          = 4502 // the credential was revoked
)
