package rawtx

import (
	"bytes"
	"encoding/binary"
)

// item is one RLP value: a string of bytes, or a list of further items.
type item struct {
	raw  []byte // with its header
	body []byte // without: the string, or the items of the list one after the other
	list bool
}

// The first byte of an item. Below shortString it is a string of one byte, itself.
const (
	shortString = 0x80 // and the length, to 55
	longString  = 0xb7 // and the number of bytes of the length, to 8
	shortList   = 0xc0
	longList    = 0xf7
	maxShort    = 55
)

// first returns the first item of in, which is not empty, and what follows it. Both are parts
// of in. Only the shortest header of an item is taken, so that each value has one encoding.
func first(in []byte) (it item, rest []byte, err *Error) {
	b := in[0]
	switch {
	case b < shortString:
		return item{raw: in[:1], body: in[:1]}, in[1:], nil
	case b <= longString:
		it, rest, err = cut(in, 1, uint64(b-shortString))
		if err == nil && len(it.body) == 1 && it.body[0] < shortString {
			err = refuse("is a single byte below 0x80 and must be written without a length (canonical RLP)")
		}
	case b < shortList:
		it, rest, err = cutLong(in, int(b-longString))
	case b <= longList:
		it, rest, err = cut(in, 1, uint64(b-shortList))
	default:
		it, rest, err = cutLong(in, int(b-longList))
	}
	it.list = b >= shortList
	return it, rest, err
}

// cutLong cuts an item whose length is written in n bytes behind the first, 1 to 8.
func cutLong(in []byte, n int) (item, []byte, *Error) {
	if len(in) < 1+n {
		return item{}, nil, refuse("ends within its own length")
	}
	var size [8]byte
	copy(size[8-n:], in[1:1+n])
	length := binary.BigEndian.Uint64(size[:])
	if in[1] == 0 || length <= maxShort {
		return item{}, nil, refuse("has a length that could be written shorter (canonical RLP)")
	}
	return cut(in, 1+n, length)
}

func cut(in []byte, header int, length uint64) (item, []byte, *Error) {
	if left := len(in) - header; length > uint64(left) {
		return item{}, nil, refuse("is cut off: it says %d bytes and %d follow", length, left)
	}
	end := header + int(length)
	return item{raw: in[:end:end], body: in[header:end:end]}, in[end:], nil
}

// listHeader returns the header of a list whose items have size bytes together.
func listHeader(size int) []byte {
	if size <= maxShort {
		return []byte{shortList + byte(size)}
	}
	length := integer(uint64(size))
	return append([]byte{longList + byte(len(length))}, length...)
}

// appendUint appends the encoding of n.
func appendUint(to []byte, n uint64) []byte {
	b := integer(n)
	if len(b) == 1 && b[0] < shortString {
		return append(to, b...)
	}
	return append(append(to, shortString+byte(len(b))), b...)
}

// integer returns the bytes of n without leading zeros: none for 0.
func integer(n uint64) []byte {
	return bytes.TrimLeft(binary.BigEndian.AppendUint64(nil, n), "\x00")
}
