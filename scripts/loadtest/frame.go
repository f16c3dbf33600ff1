package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Opcodes of RFC 6455, in a frame that is not fragmented.
const (
	finText  = 0x81
	finClose = 0x88
	finPing  = 0x89
	finPong  = 0x8a
	maskBit  = 0x80
)

// firstID is the id of a burst's first request; with six digits every id has the
// same length.
const firstID = 100_000

// signerPrefix begins every signer; the account's 40 hex digits follow.
const (
	signerPrefix = "eip155:1:0x"
	signerDigits = 40
)

// signerTable holds the hex digits of n accounts, from number base on, one after
// the other.
func signerTable(base int64, n int) []byte {
	table := make([]byte, 0, n*signerDigits)
	for i := range n {
		table = fmt.Appendf(table, "%0*x", signerDigits, base+int64(i))
	}
	return table
}

// appendClientFrame appends a client's frame. The mask is all zero, which RFC
// 6455 lets the payload stand as it is: masks protect proxies from browsers,
// and here nothing of the payload is chosen by others.
func appendClientFrame(dst []byte, op byte, payload []byte) []byte {
	dst = append(dst, op)
	if len(payload) < 126 {
		dst = append(dst, maskBit|byte(len(payload)))
	} else {
		dst = append(dst, maskBit|126)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(payload)))
	}
	dst = append(dst, 0, 0, 0, 0)
	return append(dst, payload...)
}

// burst is n requests as they go over the wire. Only the signers change.
type burst struct {
	bytes  []byte
	digits []int // where each request's account digits begin
}

func newBurst(n int) burst {
	var b burst
	blank := bytes.Repeat([]byte{'0'}, signerDigits)
	for i := range n {
		request := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"nonce_allocate","params":{"signer":"%s%s"}}`,
			firstID+i, signerPrefix, blank)
		b.bytes = appendClientFrame(b.bytes, finText, request)
		b.digits = append(b.digits, len(b.bytes)-len(`"}}`)-signerDigits)
	}
	return b
}

// setSigner gives the i-th request an account.
func (b *burst) setSigner(i int, digits []byte) { copy(b.bytes[b.digits[i]:], digits) }

// serverFrame splits the first frame off buf. size is its whole length, 0 when
// buf does not hold all of it.
func serverFrame(buf []byte) (op byte, payload []byte, size int) {
	if len(buf) < 2 {
		return 0, nil, 0
	}
	head, length := 2, int(buf[1])
	switch {
	case length == 126 && len(buf) >= 4:
		head, length = 4, int(binary.BigEndian.Uint16(buf[2:]))
	case length == 127 && len(buf) >= 10:
		head, length = 10, int(binary.BigEndian.Uint64(buf[2:]))
	case length >= 126:
		return 0, nil, 0
	}
	if length < 0 || len(buf)-head < length {
		return 0, nil, 0
	}
	return buf[0], buf[head : head+length], head + length
}

// refusal is the reason of an error reply, empty for a result. A result holds
// nothing of ours that could say "error".
func refusal(reply []byte) string {
	if !bytes.Contains(reply, []byte(`"error"`)) {
		return ""
	}
	_, after, found := bytes.Cut(reply, []byte(`"reason":"`))
	reason, _, closed := bytes.Cut(after, []byte{'"'})
	if !found || !closed {
		return "error without reason"
	}
	return string(reason)
}
