package ws

import "noncegate/nonce"

// The worst case of each reply in bytes, as it is reserved before the work. They
// are bounds, held against real encodings by TestNoReplyExceedsItsReservation.
const (
	// fixedBytes holds every reply without its id, but for lists: the results
	// of a fixed number of fields, and every error.
	fixedBytes = 1024
	// nonceBytes is one more nonce in an allocation, or in the conflict that a
	// repeated one can come to, which is the longer: two numbers and a status.
	nonceBytes = 80
	// rowBytes is one row of nonce_list with everything in it, although no row
	// has: a hash, and a reason and a request id of quotes only, which double
	// when they are written.
	rowBytes  = len(widestRow) + 66 + 2*nonce.MaxReasonBytes + 2*nonce.MaxKeyBytes
	widestRow = `{"nonce":9223372036854775807,"status":"CONSUMED","attempt":9223372036854775807,"txHash":"","reason":"",` +
		`"heldUntil":"2026-11-20T18:33:56.123Z","requestId":"","updatedAt":"2026-11-20T18:33:56.123Z"},`
	// statsBytes and infoBytes hold the figures and the description of the
	// gateway, nodeBytes each node in it.
	statsBytes = 4096
	infoBytes  = 2048
	nodeBytes  = len(widestNode) + 2*maxErrorText + 2*maxWord
	widestNode = `{"node":"","url":"","mode":"","state":"","incarnation":9223372036854775807,"signers":9223372036854775807,` +
		`"startedAt":"2026-11-20T18:33:56.123Z","seenAt":"2026-11-20T18:33:56.123Z"},`
	// maxWord bounds a word that another node wrote into the registry.
	maxWord = 32

	// maxIDBytes bounds the id of a request, which is echoed.
	maxIDBytes = 512
)

// opBytes is the worst case of the reply to op without its id.
func opBytes(op *nonce.Op) int64 {
	switch op.Kind {
	case nonce.KindAllocate:
		return fixedBytes + int64(op.Count)*nonceBytes
	case nonce.KindList:
		return fixedBytes + int64(op.List.Limit*rowBytes)
	}
	return fixedBytes
}
