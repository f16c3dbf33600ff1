package rawtx_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/rlp"
)

// node is an item of RLP.
type node struct {
	list bool
	str  []byte
	kids []node
}

// parse returns the type byte, if there is one, and the items.
func parse(tb testing.TB, raw []byte) ([]byte, node) {
	tb.Helper()
	prefix := 0
	if raw[0] < 0xc0 {
		prefix = 1
	}
	n, rest := parseNode(tb, raw[prefix:])
	if len(rest) != 0 || !bytes.Equal(n.encode(), raw[prefix:]) {
		tb.Fatal("the sample was not read as it is")
	}
	return raw[:prefix], n
}

func parseNode(tb testing.TB, in []byte) (node, []byte) {
	tb.Helper()
	kind, content, rest, err := rlp.Split(in)
	if err != nil {
		tb.Fatal(err)
	}
	n := node{list: kind == rlp.List, str: content}
	for n.list && len(content) > 0 {
		var kid node
		kid, content = parseNode(tb, content)
		n.kids = append(n.kids, kid)
	}
	return n, rest
}

func (n node) encode() []byte {
	if !n.list {
		return header(n.str, 0x80)
	}
	var body []byte
	for _, k := range n.kids {
		body = append(body, k.encode()...)
	}
	return header(body, 0xc0)
}

// header puts the shortest header before a string (base 0x80) or a list (0xc0).
func header(body []byte, base byte) []byte {
	switch size := len(body); {
	case base == 0x80 && size == 1 && body[0] < 0x80:
		return body
	case size <= 55:
		return append([]byte{base + byte(size)}, body...)
	default:
		length := bytes.TrimLeft([]byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, "\x00")
		return slices.Concat([]byte{base + 55 + byte(len(length))}, length, body)
	}
}

// changed puts other bytes into a field of a transaction.
func changed(tb testing.TB, raw []byte, field int, value []byte) []byte {
	prefix, tree := parse(tb, raw)
	tree.kids[field] = node{str: value}
	return slices.Concat(prefix, tree.encode())
}
