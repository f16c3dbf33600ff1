package traffic

import (
	"fmt"
	"strconv"
	"time"

	"noncegate/scripts/loadtest/verify"
	"noncegate/wire"
)

// firstID is the lowest id of a request; with six digits all have the same
// length.
const firstID = 100_000

// maxRequestBytes bounds one request on the wire, a markUsed with the longest
// numbers.
const maxRequestBytes = 384

// request is one that was sent, until it is answered. Its place in the list of
// its connection is its id.
type request struct {
	open           bool // not answered yet
	method         Method
	account        int64
	nonce, attempt int64          // of a mark
	sample         *verify.Sample // of an allocation with request id, or of the hold that a mark ends
	repeat         bool           // it asks again for sample
	ended          bool           // what sample.HasEnded said of a repeat
}

// hold is a nonce that the connection was handed out and has not marked.
type hold struct {
	account, nonce, attempt int64
	until                   time.Duration // by the clock of the run; later it may be somebody else's
	sample                  *verify.Sample
}

// The texts of a request, around what changes.
const (
	textID       = `{"jsonrpc":"2.0","id":`
	textMethod   = `,"method":"`
	textSigner   = `","params":{"signer":"`
	signerDigits = 16 // the last ones, which say the number of the account
)

var signerPrefix = func() string {
	zero := verify.Signer(0)
	return zero[:len(zero)-signerDigits]
}()

// wireNames are the methods as the protocol calls them.
var wireNames = [methodCount]string{wire.MethodAllocate, wire.MethodMarkUsed, wire.MethodMarkRecyclable, wire.MethodStatus}

// heads are the texts between the id and the digits of the signer.
var heads = func() (heads [methodCount]string) {
	for m, name := range wireNames {
		heads[m] = textMethod + name + textSigner + signerPrefix
	}
	return heads
}()

// appendRequest appends the frame of r. connection makes the hashes of different
// connections differ.
func appendRequest(dst []byte, id int, r *request, connection int64) []byte {
	dst, payload := openText(dst)
	dst = append(dst, textID...)
	dst = strconv.AppendInt(dst, int64(id), 10)
	dst = append(dst, heads[r.method]...)
	dst = appendHex(dst, r.account)
	dst = append(dst, '"')
	switch r.method {
	case Allocate:
		if r.sample != nil {
			dst = append(dst, `,"requestId":"`...)
			dst = append(dst, r.sample.ID...)
			dst = append(dst, '"')
		}
	case MarkUsed, MarkRecyclable:
		dst = append(dst, `,"nonce":`...)
		dst = strconv.AppendInt(dst, r.nonce, 10)
		dst = append(dst, `,"attempt":`...)
		dst = strconv.AppendInt(dst, r.attempt, 10)
	}
	if r.method == MarkUsed {
		dst = append(dst, `,"txHash":"0x`...)
		for _, part := range [...]int64{r.account, r.nonce, r.attempt, connection} {
			dst = appendHex(dst, part)
		}
		dst = append(dst, '"')
	}
	return closeText(append(dst, "}}"...), payload)
}

// allocation is the text of an allocation that is asked for by itself.
func allocation(signer string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"signer":%q}}`, firstID, wire.MethodAllocate, signer)
}

// accountAt is where the digits of the account begin in the frame of an allocate.
var accountAt = headBytes + len(textID) + len("100000") + len(heads[Allocate])

// appendHex appends the 16 hexadecimal digits of n.
func appendHex(dst []byte, n int64) []byte {
	dst = append(dst, "0000000000000000"...)
	putHex(dst[len(dst)-signerDigits:], n)
	return dst
}

// putHex writes the 16 hexadecimal digits of n.
func putHex(dst []byte, n int64) {
	_ = dst[signerDigits-1]
	for i := signerDigits - 1; i >= 0; i-- {
		dst[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
}
