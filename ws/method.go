package ws

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// method is all that this package knows of a method of the protocol. Each has a file of its own,
// method_NAME.go.
type method struct {
	name string
	// right is what a client needs on the signer; 0: prepare looks. RightMarkAny does instead of
	// RightMark.
	right access.Right
	// level is the lowest level of the audit that has it, unless a right is missing.
	level audit.Level
	// prepare makes of the params what the request is to do: an op for the service, which a guard
	// may hold up (setGuard), or an act of the connection's own. It changes nothing else, because
	// the request is not admitted yet.
	prepare prepare
	// size is the worst case of the reply without its id; 0: small. more is what comes on top, by
	// the parameter sizedBy; nil: nothing.
	size    int64
	more    func(r *nonce.Request) int64
	sizedBy string
	// reply is the wire form of what an op came to that has not failed; nil: it is none.
	reply func(c *conn, op *op) any
	// audited puts into a line of the audit which nonce an op was about; nil: about none.
	audited func(op *op, failed bool, e *audit.Entry)
}

// methods is the dispatch table. It is never written.
var methods = func() map[string]*method {
	table := make(map[string]*method)
	for _, m := range []*method{
		&allocateMethod, &markUsedMethod, &markSignedMethod, &markRecyclableMethod, &extendMethod, &repairMethod,
		&setFloorMethod, &statusMethod, &listMethod,
		&subscribeMethod, &ethSubscribeMethod, &unsubscribeMethod, &ethUnsubscribeMethod, &infoMethod, &statsMethod,
	} {
		table[m.name] = m
	}
	return table
}()

var methodNames = slices.Sorted(maps.Keys(methods))

// noMethod is the method of requests that name no method of the protocol.
var noMethod = method{level: audit.All}

type prepare func(c *conn, r *request, params []byte) *wire.Error

// by is a prepare that decodes its params first. They are handed on by value, which costs
// no allocation.
func by[P any](do func(*conn, *request, P) *wire.Error) prepare {
	return byDecoder(wire.Params[P](), do)
}

func byDecoder[P any](decode func(params []byte) (P, *wire.Error), do func(*conn, *request, P) *wire.Error) prepare {
	return func(c *conn, r *request, params []byte) *wire.Error {
		p, err := decode(params)
		if err != nil {
			return err
		}
		return do(c, r, p)
	}
}

// The worst case of a reply in bytes, as it is reserved before the work, is of one of three classes,
// with so many more for each element of a list. TestNoReplyExceedsItsReservation holds them against
// real encodings.
const (
	smallReplyBytes  = 1 << 10 // and every error
	mediumReplyBytes = 2 << 10
	largeReplyBytes  = 4 << 10

	nonceBytes = 256     // one more nonce of an allocation
	rowBytes   = 1 << 10 // one more row of a list. A row can be wider: see listResult

	// maxIDBytes bounds the id of a request, which is echoed.
	maxIDBytes = 512
)

// replyBytes is the worst case of the reply to an op without its id.
func (m *method) replyBytes(r *nonce.Request) int64 {
	bytes := cmp.Or(m.size, smallReplyBytes)
	if m.more != nil {
		bytes += m.more(r)
	}
	return bytes
}

// about makes an op of one attempt of a nonce.
func (c *conn) about(op *op, kind nonce.Kind, signer string, n, attempt int64) *wire.Error {
	op.Kind, op.Nonce, op.Request.Attempt = kind, n, attempt
	return c.setSigner(op, signer)
}

func (c *conn) setSigner(op *op, given string) *wire.Error {
	signer, bad := nonce.ParseSigner(given)
	if bad != nil {
		return invalidParams("signer", c.badSigner(bad))
	}
	op.Signer = signer
	return nil
}

// badSigner is what nonce.ParseSigner says; its example is of a chain that there is.
func (c *conn) badSigner(err error) string {
	if bare, ok := errors.AsType[*nonce.BareAddressError](err); ok && c.srv.cfg.ExampleChain != "" {
		return bare.Meant(c.srv.cfg.ExampleChain)
	}
	return err.Error()
}

func (c *conn) setHold(op *op, ms int64) *wire.Error {
	shortest, longest := c.srv.cfg.MinHold.Milliseconds(), c.srv.cfg.MaxHold.Milliseconds()
	if ms != 0 && (ms < shortest || ms > longest) {
		return invalidParams("holdMs", fmt.Sprintf("must be %d to %d", shortest, longest))
	}
	op.Hold = time.Duration(ms) * time.Millisecond
	return nil
}

func setRequestID(op *op, given string) *wire.Error {
	if given == "" {
		return nil
	}
	id, bad := nonce.ParseRequestID(given)
	if bad != nil {
		return invalidParams("requestId", bad.Error())
	}
	op.RequestID = id
	return nil
}

// setHash gives the op the hash of a transaction, if there is one.
func setHash(op *op, given string) *wire.Error {
	if given == "" {
		return nil
	}
	hash, bad := nonce.ParseTxHash(given)
	if bad != nil {
		return invalidParams("txHash", bad.Error())
	}
	op.TxHash = hash
	return nil
}
