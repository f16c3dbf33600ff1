package encodepool

import (
	"encoding/binary"
	"unicode/utf8"
)

// Opcode is the kind of a frame in RFC 6455, section 5.2.
type Opcode byte

// The opcodes a server of this protocol sends.
const (
	OpText  Opcode = 0x1
	OpClose Opcode = 0x8
	OpPing  Opcode = 0x9
	OpPong  Opcode = 0xA
)

// maxControlPayload is the most bytes a control frame may carry; a close frame's
// reason has two less, for the code.
const maxControlPayload = 125

// MaxHeader is the most bytes a frame has besides its payload.
const MaxHeader = 10

const (
	finBit     = 0x80
	headerRoom = 4 // the header of a payload of 126 to 65535 bytes, the usual ones
)

// BeginText leaves room in dst for the header of a text frame. The payload is
// appended behind it, then EndText is called with the length dst had.
func BeginText(dst []byte) []byte { return append(dst, make([]byte, headerRoom)...) }

// EndText writes the header of the frame that begins at start and holds what was
// appended since BeginText. A payload whose header has another size than was
// left room for is moved: a few bytes if it is small, and one copy if it is
// beyond 64 KiB.
func EndText(dst []byte, start int) []byte {
	n := len(dst) - start - headerRoom
	switch {
	case n < 126:
		copy(dst[start+2:], dst[start+headerRoom:])
		dst = dst[:start+2+n]
		dst[start+1] = byte(n)
	case n <= 0xFFFF:
		dst[start+1] = 126
		binary.BigEndian.PutUint16(dst[start+2:], uint16(n))
	default:
		dst = append(dst, make([]byte, 6)...)
		copy(dst[start+10:], dst[start+headerRoom:start+headerRoom+n])
		dst[start+1] = 127
		binary.BigEndian.PutUint64(dst[start+2:], uint64(n))
	}
	dst[start] = finBit | byte(OpText)
	return dst
}

// AppendControl appends a ping or pong. A payload beyond maxControlPayload is cut.
func AppendControl(dst []byte, op Opcode, payload []byte) []byte {
	payload = payload[:min(len(payload), maxControlPayload)]
	dst = append(dst, finBit|byte(op), byte(len(payload)))
	return append(dst, payload...)
}

// AppendClose appends a close frame. A reason that is too long is cut between
// two characters.
func AppendClose(dst []byte, code int, reason string) []byte {
	payload := binary.BigEndian.AppendUint16(make([]byte, 0, maxControlPayload), uint16(code))
	return AppendControl(dst, OpClose, append(payload, cutReason(reason)...))
}

// cutReason shortens a reason to what a close frame holds. Clients fail the
// connection on half a character.
func cutReason(s string) string {
	n := maxControlPayload - 2
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
