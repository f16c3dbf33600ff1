package ws

import (
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// kind is what this package has to know of a kind of op, beside how its params are read
// (method.go).
type kind struct {
	// right is what a client needs on the signer. RightMarkAny does instead of RightMark.
	right access.Right
	// level is the lowest level of the audit that has it, unless a right is missing.
	level audit.Level
	// reads: it changes nothing, and so causes no events.
	reads bool
	// needsChain reports whether an op needs the first word of its signer's chain; nil: never.
	needsChain func(op *nonce.Op) bool
	// audited puts into a line of the audit which nonce an op was about; nil: about none.
	audited func(op *nonce.Op, failed bool, e *audit.Entry)
	// bytes is the worst case of the reply without its id; see size.go.
	bytes func(op *nonce.Op) int64
	// size is the parameter on which that depends; "": there is none but the id.
	size string
	// result is the wire form of what an op came to that has not failed; see result.go.
	result func(c *conn, op *nonce.Op) any
}

// kinds has a row for each nonce.Kind, and for 0, with which a request is none. It is
// never written.
var kinds = [...]kind{
	0: {level: audit.All, reads: true},
	nonce.KindAllocate: {
		right: access.RightAllocate, level: audit.Changes, audited: auditAllocated,
		needsChain: func(op *nonce.Op) bool { return !op.OnlyKnown },
		bytes:      allocateBytes, size: "count",
		result: func(_ *conn, op *nonce.Op) any { return allocateResult(op) },
	},
	nonce.KindMarkUsed: {
		right: access.RightMark, level: audit.Changes, audited: auditNonce,
		bytes: markBytes, result: func(_ *conn, op *nonce.Op) any { return markResult(op) },
	},
	nonce.KindMarkRecyclable: {
		right: access.RightMark, level: audit.Changes, audited: auditNonce,
		bytes: markBytes, result: func(_ *conn, op *nonce.Op) any { return markResult(op) },
	},
	nonce.KindMarkSigned: {
		right: access.RightMark, level: audit.Changes, audited: auditNonce, needsChain: always,
		bytes: markBytes, result: func(_ *conn, op *nonce.Op) any { return markResult(op) },
	},
	nonce.KindExtend: {
		right: access.RightMark, level: audit.Changes, audited: auditNonce,
		bytes: smallBytes, result: func(_ *conn, op *nonce.Op) any { return extendResult(op) },
	},
	nonce.KindRepair: {
		right: access.RightRepair, level: audit.Refusals, audited: auditRepaired, needsChain: always,
		bytes: repairBytes, result: func(c *conn, op *nonce.Op) any { return c.repairResult(op) },
	},
	nonce.KindSetFloor: {
		right: access.RightAdmin, level: audit.Refusals, audited: auditFloor,
		bytes: smallBytes, result: func(_ *conn, op *nonce.Op) any { return floorResult(op) },
	},
	nonce.KindStatus: {
		right: access.RightRead, level: audit.All, reads: true,
		bytes: statusBytes, result: func(c *conn, op *nonce.Op) any { return c.statusResult(op) },
	},
	nonce.KindList: {
		right: access.RightRead, level: audit.All, reads: true,
		bytes: listBytes, size: "limit", result: func(c *conn, op *nonce.Op) any { return c.listResult(op) },
	},
}

// kind is the row of the request's op.
func (r *request) kind() *kind { return &kinds[r.op.Kind] }

func always(*nonce.Op) bool { return true }

func auditAllocated(op *nonce.Op, failed bool, e *audit.Entry) {
	if !failed && len(op.Nonces) > 0 {
		e.Nonce, e.HasNonce, e.Count = op.Nonces[0], true, len(op.Nonces)
	}
}

func auditRepaired(op *nonce.Op, failed bool, e *audit.Entry) {
	if !failed && len(op.Nonces) > 0 {
		e.Nonce, e.HasNonce = op.Nonces[0], true
		return
	}
	e.Nonce, e.HasNonce = max(0, op.Nonce), op.Nonce >= 0
}

func auditNonce(op *nonce.Op, _ bool, e *audit.Entry) { e.Nonce, e.HasNonce = op.Nonce, true }

func auditFloor(op *nonce.Op, _ bool, e *audit.Entry) { e.Nonce, e.HasNonce = op.Request.Floor, true }

// tooLarge refuses what could never be admitted.
func tooLarge(op *nonce.Op) *wire.Error {
	field := "id"
	if size := kinds[op.Kind].size; size != "" {
		field = size
	}
	return invalidParams(field, "the reply could be larger than what may wait for a connection; ask for less")
}
