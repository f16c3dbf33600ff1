package ws

import (
	"noncegate/nonce"
	"noncegate/wire"
)

// The worst case of each reply in bytes, as it is reserved before the work. They
// are bounds, held against real encodings by TestNoReplyExceedsItsReservation.
const (
	// fixedBytes holds every reply without its id, but for lists: the results
	// of a fixed number of fields, and every error.
	fixedBytes = 1024
	// nonceBytes is one more nonce in an allocation, which is longer than one in the
	// conflict that a repeated one can come to.
	nonceBytes  = len(widestNonce) + reissuedBytes
	widestNonce = `{"nonce":9223372036854775807,"attempt":9223372036854775807},`
	// reissuedBytes is what is said of an earlier hold of a nonce.
	reissuedBytes = len(`,"reissued":{"attempt":9223372036854775807,"reason":"unseen","txHash":""}`) + hashText
	// hashBytes is a hash in a list of them.
	hashBytes = len(`"",`) + hashText
	hashText  = 66
	// widestMarkBytes is the result of a mark with everything in it but its signer, and
	// widestRepairBytes that of a repair: all hashes that can be recorded, and a reason of
	// quotes only, which double when they are written.
	widestMarkBytes   = len(widestMark) + reissuedBytes + 2*hashText + nonce.MaxHashes*hashBytes
	widestRepairBytes = len(widestRepair) + reissuedBytes + nonce.MaxHashes*hashBytes + 2*nonce.MaxReasonBytes + 4*maxQuantity
	widestMark        = `{"jsonrpc":"2.0","id":,"result":{"signer":"","nonce":9223372036854775807,"attempt":9223372036854775807,"status":"CONSUMED",` +
		`"txHash":"","txHashes":[],"replaced":"","heldUntil":"2026-11-20T18:33:56.123Z","holdMs":9223372036854775807}}`
	widestRepair = `{"jsonrpc":"2.0","id":,"result":{"signer":"","nonce":9223372036854775807,"attempt":9223372036854775807,` +
		`"fencingToken":9223372036854775807,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":9223372036854775807,` +
		`"was":{"status":"CONSUMED","attempt":9223372036854775807,"reason":""},"txHashes":[],` +
		`"offer":{"gasPrice":"","maxFeePerGas":"","maxPriorityFeePerGas":"","maxFeePerBlobGas":""}}}`
	// maxQuantity bounds a fee: 256 bits in hexadecimal digits.
	maxQuantity = 66
	// rowBytes is what is reserved for each row of nonce_list but one: nearly all rows
	// are far below it. Those with several hashes, or the longest texts, can be above,
	// and a page of them ends sooner. widestRowBytes, for the one, is every row's bound.
	rowBytes       = 1000
	widestRowBytes = len(widestRow) + reissuedBytes + hashText + nonce.MaxHashes*hashBytes + 2*nonce.MaxReasonBytes + 2*nonce.MaxKeyBytes + 2*maxPrincipal + maxWord
	widestRow      = `{"nonce":9223372036854775807,"status":"CONSUMED","attempt":9223372036854775807,"txHash":"","txHashes":[],"reason":"",` +
		`"heldUntil":"2026-11-20T18:33:56.123Z","requestId":"","holder":"","chain":"","updatedAt":"2026-11-20T18:33:56.123Z"},`
	// wordBytes is a row of which only the word of the chain is wanted.
	wordBytes  = len(widestWord) + maxWord
	widestWord = `{"nonce":9223372036854775807,"status":"","attempt":9223372036854775807,"chain":""},`
	// maxPrincipal bounds the name of a principal.
	maxPrincipal = 128
	// chainBytes is what a chain says in the answer to nonce_status.
	chainBytes = 512
	// statsBytes and infoBytes hold the statistics and the description of the
	// gateway, nodeBytes each node in it.
	statsBytes = 4096
	infoBytes  = 2048
	nodeBytes  = len(widestNode) + 2*maxErrorText + 2*maxWord
	widestNode = `{"node":"","url":"","mode":"","state":"","incarnation":9223372036854775807,"shards":9223372036854775807,` +
		`"startedAt":"2026-11-20T18:33:56.123Z","seenAt":"2026-11-20T18:33:56.123Z"},`
	// maxWord bounds a word that another node wrote into the registry.
	maxWord = 32

	// maxIDBytes bounds the id of a request, which is echoed.
	maxIDBytes = 512
)

// opBytes is the worst case of the reply to op without its id.
func opBytes(op *nonce.Op) int64 { return kinds[op.Kind].bytes(op) }

func smallBytes(*nonce.Op) int64 { return fixedBytes }

func allocateBytes(op *nonce.Op) int64 { return fixedBytes + int64(op.Count*nonceBytes) }

func markBytes(op *nonce.Op) int64 { return max(fixedBytes, int64(widestMarkBytes+2*len(op.Signer))) }

func repairBytes(op *nonce.Op) int64 {
	return max(fixedBytes, int64(widestRepairBytes+2*len(op.Signer)))
}

func statusBytes(*nonce.Op) int64 { return fixedBytes + chainBytes }

func listBytes(op *nonce.Op) int64 {
	if op.ChainOnly {
		return fixedBytes + int64(op.List.Limit*wordBytes)
	}
	return fixedBytes + int64((op.List.Limit-1)*rowBytes+widestRowBytes)
}

// bytesOf is at least what a row takes in the answer.
func bytesOf(a *wire.Allocation) int64 {
	texts := written(a.Reason) + written(a.RequestID) + written(a.Holder) + written(a.Chain)
	if a.Reissued != nil {
		texts += reissuedBytes
	}
	return int64(len(widestRow) + len(a.TxHash) + hashBytes*len(a.TxHashes) + texts)
}
