// Package rawframe makes frames of WebSocket clients that no library would send.
package rawframe

import "encoding/binary"

// The opcodes of RFC 6455, and the bit of the last frame of a message.
const (
	Continuation = 0x0
	Text         = 0x1
	Binary       = 0x2
	Close        = 0x8
	Ping         = 0x9
	Pong         = 0xA

	Fin = 0x80
)

// Of is a frame that follows RFC 6455 in length and mask, if not in its first byte.
func Of(first byte, payload string) []byte {
	var length []byte
	switch n := len(payload); {
	case n < 126:
		length = []byte{byte(n)}
	case n < 1<<16:
		length = binary.BigEndian.AppendUint16([]byte{126}, uint16(n))
	default:
		length = binary.BigEndian.AppendUint64([]byte{127}, uint64(n))
	}
	return Framed(first, length, payload)
}

// Framed is a masked frame whose length is written as it is told to be.
func Framed(first byte, length []byte, payload string) []byte {
	mask := []byte{0x37, 0xfa, 0x21, 0x3d}
	b := append([]byte{first}, length...)
	b[1] |= 0x80
	b = append(b, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return b
}

// TextOf is a whole text message.
func TextOf(payload string) []byte { return Of(Fin|Text, payload) }

// Closing is a close frame.
func Closing(code int, reason string) []byte {
	return Of(Fin|Close, string(binary.BigEndian.AppendUint16(nil, uint16(code)))+reason)
}
