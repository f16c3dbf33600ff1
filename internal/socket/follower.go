package socket

import (
	"encoding/binary"
	"math"
)

// follower follows the frames of a peer by their headers, to say what gorilla does
// not: that a close frame has a payload of one byte (RFC 6455, 5.5.1, wants a code of
// two bytes first where there is a payload), and how much has come whole. It is the
// read goroutine's.
type follower struct {
	skip   uint64   // bytes of the present frame behind head that are still to come
	head   [10]byte // of the present frame, without its mask
	have   int      // bytes of head that came
	open   bool     // more frames of the present message are to come
	aside  bool     // the present frame is a control frame, maybe between those of a message
	ended  uint64   // messages and control frames that have come whole
	closed bool     // a close frame came; nothing behind it counts
	half   bool     // its payload has one byte
}

// whole is how many messages and control frames have come whole; false: bytes of another
// one have come behind them.
func (f *follower) whole() (n uint64, ok bool) {
	return f.ended, f.skip == 0 && f.have == 0 && !f.open && !f.closed
}

// see takes the next bytes of the peer, which may begin and end anywhere.
func (f *follower) see(p []byte) {
	for len(p) > 0 && !f.closed {
		if f.skip > 0 {
			n := min(f.skip, uint64(len(p)))
			f.skip -= n
			p = p[n:]
			f.end()
			continue
		}
		f.head[f.have] = p[0]
		f.have++
		p = p[1:]
		if f.have >= 2 && f.have == headBytes(f.head[1]) {
			f.begin()
		}
	}
}

// The forms of the length in the second byte of a frame.
const (
	maskBit  = 0x80
	length16 = 126 // the length is in the two bytes that follow
	length64 = 127 // in eight
)

// headBytes is how long the header of a frame is before its mask.
func headBytes(second byte) int {
	switch second &^ maskBit {
	case length16:
		return 4
	case length64:
		return 10
	}
	return 2
}

// begin takes the header that is complete.
func (f *follower) begin() {
	length := uint64(f.head[1] &^ maskBit)
	switch length {
	case length16:
		length = uint64(binary.BigEndian.Uint16(f.head[2:]))
	case length64:
		length = min(binary.BigEndian.Uint64(f.head[2:]), math.MaxInt64) // beyond it the connection is closed
	}
	f.have = 0
	if f.head[0]&0x0f == opClose {
		f.closed, f.half = true, length == 1
		return
	}
	f.skip, f.aside = length, f.head[0]&opClose != 0
	if !f.aside {
		f.open = f.head[0]&finBit == 0
	}
	if f.head[1]&maskBit != 0 {
		f.skip += 4
	}
	f.end()
}

// end counts the present frame, if all of it has come.
func (f *follower) end() {
	if f.skip == 0 && (f.aside || !f.open) {
		f.ended++
	}
}

const (
	opClose = 0x8  // the opcode of a close frame; all control frames have this bit
	finBit  = 0x80 // beside the opcode of the last frame of a message
)
