package traffic

import "encoding/binary"

// Opcodes of RFC 6455, in a frame that is not fragmented.
const (
	finText  = 0x81
	finClose = 0x88
	finPing  = 0x89
	finPong  = 0x8a
	maskBit  = 0x80
)

// appendFrame appends a client's frame. The mask is all zero, which RFC 6455
// lets the payload stand as it is: masks protect proxies from browsers, and here
// nothing of the payload is chosen by others.
func appendFrame(dst []byte, op byte, payload []byte) []byte {
	dst = append(dst, op)
	switch {
	case len(payload) < 126:
		dst = append(dst, maskBit|byte(len(payload)))
	case len(payload) <= 0xffff:
		dst = binary.BigEndian.AppendUint16(append(dst, maskBit|126), uint16(len(payload)))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, maskBit|127), uint64(len(payload)))
	}
	dst = append(dst, 0, 0, 0, 0)
	return append(dst, payload...)
}

// openText appends the head of a text frame whose length is not known yet, and
// returns where its payload begins; closeText writes the length. The payload
// must be 126 to 65,535 bytes long, which one request of ours is but for padding
// by spaces.
func openText(dst []byte) (grown []byte, payload int) {
	dst = append(dst, finText, maskBit|126, 0, 0, 0, 0, 0, 0)
	return dst, len(dst)
}

const (
	headBytes = 8   // what openText appends
	shortest  = 126 // payload of a frame whose length takes two bytes
)

func closeText(dst []byte, payload int) []byte {
	for len(dst)-payload < shortest {
		dst = append(dst, ' ') // white space after a JSON text is allowed
	}
	binary.BigEndian.PutUint16(dst[payload-6:], uint16(len(dst)-payload))
	return dst
}

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
