package metrics

import (
	"noncegate/wire"
)

// Method is a method of the protocol, or MethodUnknown.
type Method string

// MethodUnknown stands for what is no method of the protocol, and for what is no
// request at all: a client may say anything, and a label may not.
const MethodUnknown Method = "unknown"

// MethodDialect stands for all methods of the protocols beside that of nonces.
const MethodDialect Method = "dialect"

var requestMethods = []Method{
	wire.MethodAllocate, wire.MethodMarkUsed, wire.MethodMarkRecyclable, wire.MethodMarkSigned, wire.MethodExtend, wire.MethodRepair,
	wire.MethodStatus, wire.MethodList, wire.MethodSetFloor,
	wire.MethodSubscribe, wire.MethodUnsubscribe, wire.MethodEthSubscribe, wire.MethodEthUnsubscribe,
	wire.MethodInfo, wire.MethodStats, MethodDialect, MethodUnknown,
}

// RefuseReason is the stable word of an error reply: data.reason.
type RefuseReason string

var refuseReasons = []RefuseReason{
	"parse_error", "invalid_request", "method_not_found", "invalid_params", "internal", "server_busy", "not_owner", "fenced",
	"unavailable", "conflict", "not_found", "hold_limit", "duplicate_submit", "unauthorized", "forbidden", "draining",
	"not_holder", "answer_too_large",
}

// UpgradeReason is why a client was not let in.
type UpgradeReason string

// The reasons for refusing an upgrade. All but UpgradeBroken are answered in HTTP.
const (
	UpgradeFull       UpgradeReason = "full"        // as many connections as there may be
	UpgradeDraining   UpgradeReason = "draining"    // the node is going away
	UpgradeOrigin     UpgradeReason = "origin"      // a browser's page of another host
	UpgradeBadRequest UpgradeReason = "bad_request" // not a WebSocket handshake
	UpgradeBroken     UpgradeReason = "broken"      // the client went or spoke before it was answered

	UpgradeUnauthorized UpgradeReason = "unauthorized"   // without a credential that is good
	UpgradeThrottled    UpgradeReason = "throttled"      // too many bad credentials came from its address
	UpgradeUnchecked    UpgradeReason = "unchecked"      // it could not be said whether the credential is good
	UpgradePrincipal    UpgradeReason = "principal_full" // its principal has as many connections as it may
	UpgradeAddress      UpgradeReason = "address_full"   // its address has

	// Sockets that were closed before anything was read of them.
	UpgradeAddressFast    UpgradeReason = "address_fast"    // its address opens too many a second
	UpgradeAddressWaiting UpgradeReason = "address_waiting" // its address has too many that were not let in yet
	UpgradeWaiting        UpgradeReason = "waiting_full"    // all addresses together have

	UpgradeNodeSecret  UpgradeReason = "node_secret" // another node without the secret, or from another host where there is none
	UpgradeMisdirected UpgradeReason = "misdirected" // a node that meant another one
)

var upgradeReasons = []UpgradeReason{
	UpgradeFull, UpgradeDraining, UpgradeOrigin, UpgradeBadRequest, UpgradeBroken,
	UpgradeUnauthorized, UpgradeThrottled, UpgradeUnchecked, UpgradePrincipal, UpgradeAddress,
	UpgradeAddressFast, UpgradeAddressWaiting, UpgradeWaiting,
	UpgradeNodeSecret, UpgradeMisdirected,
}

// CloseReason is how a connection ended: what came first, where several did.
type CloseReason string

// The ends of a connection.
const (
	CloseClient      CloseReason = "client"      // the client closed it, in order
	CloseLost        CloseReason = "lost"        // it broke, or the client went without a word
	CloseSlow        CloseReason = "slow"        // kicked, see noncegate_kicked_total
	CloseIdle        CloseReason = "idle"        // nothing was heard from the client
	CloseRestart     CloseReason = "restart"     // a draining node sent it away
	CloseStopped     CloseReason = "stopped"     // it was left when the drain ran out of time
	CloseExpired     CloseReason = "expired"     // its credential has expired
	CloseRevoked     CloseReason = "revoked"     // its credential was revoked
	CloseUnsupported CloseReason = "unsupported" // a binary frame
	CloseProtocol    CloseReason = "protocol"    // frames against RFC 6455
	ClosePolicy      CloseReason = "policy"      // frames without a request, or control frames, without end; a first or a whole message that did not come
	CloseUnused      CloseReason = "unused"      // it had asked for nothing for too long
	CloseTooLarge    CloseReason = "too_large"   // a frame that is too long
	CloseInternal    CloseReason = "internal"    // a mistake of this program
	CloseEventsLost  CloseReason = "events_lost" // events of a subscription are lost for good
)

var closeReasons = []CloseReason{
	CloseClient, CloseLost, CloseSlow, CloseIdle, CloseRestart, CloseStopped, CloseExpired, CloseRevoked,
	CloseUnsupported, CloseProtocol, ClosePolicy, CloseUnused, CloseTooLarge, CloseInternal, CloseEventsLost,
}

// BeatResult is what became of a heartbeat.
type BeatResult string

// The results of a heartbeat.
const (
	BeatAnswered BeatResult = "answered"
	BeatFailed   BeatResult = "failed" // the store did not answer, or not in time
)

var beatResults = []BeatResult{BeatAnswered, BeatFailed}

// Requests returns the counter of a method, to be looked up once and not with
// each request. One that is not declared counts as such.
func (s *Set) Requests(method Method) *Count { return s.requests.Of(method) }

// Refused counts a reply to a client that is an error.
func (s *Set) Refused(reason RefuseReason) { s.refused.Inc(reason) }

// NodeRefused counts a reply to another node that is an error.
func (s *Set) NodeRefused(reason RefuseReason) { s.nodeRefused.Inc(reason) }

// UpgradeRefused counts a client that was not let in.
func (s *Set) UpgradeRefused(reason UpgradeReason) { s.upgradeRefused.Inc(reason) }

// Closed counts a connection that has ended.
func (s *Set) Closed(reason CloseReason) { s.closed.Inc(reason) }

// Heartbeat counts a heartbeat, and notes whether the store is there.
func (s *Set) Heartbeat(result BeatResult) {
	s.heartbeats.Inc(result)
	s.StoreAway.Set(result == BeatFailed)
}
