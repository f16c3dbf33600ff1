package wire

import "strconv"

// The codes that only calls of another protocol are answered with, which the gateway
// passes on.
const (
	// CodeRejected: the gateway did not pass it on. It is what Ethereum's clients know as
	// a transaction that was rejected (EIP-1474).
	CodeRejected       = -32003
	CodeAnswerTooLarge = -32020
)

// AppendRaw appends one whole reply whose result is JSON already; none is null.
func AppendRaw(dst, id, result []byte) []byte {
	if len(result) == 0 {
		result = null
	}
	dst = append(appendHead(dst, id), `,"result":`...)
	return append(append(dst, result...), '}')
}

// AppendForeignError appends one whole reply that passes on an error of another
// server. data is JSON; none is left out.
func AppendForeignError(dst, id []byte, code int, message string, data []byte) []byte {
	dst = append(appendHead(dst, id), `,"error":{"code":`...)
	dst = append(strconv.AppendInt(dst, int64(code), 10), `,"message":`...)
	dst = appendQuoted(dst, message)
	if len(data) > 0 {
		dst = append(append(dst, `,"data":`...), data...)
	}
	return append(dst, "}}"...)
}

// AppendNotification appends one whole notification of a subscription whose event is
// another server's and is left as it is: missed, when above 0, stands beside it.
func AppendNotification(dst []byte, method, subscription string, event []byte, missed int64) []byte {
	dst = AppendSubscription(dst, method, subscription, event, 0)
	if missed > 0 {
		dst = append(dst[:len(dst)-len("}}")], `,"missed":`...)
		dst = append(strconv.AppendInt(dst, missed, 10), "}}"...)
	}
	return dst
}
