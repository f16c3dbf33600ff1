package rawtx_test

import (
	"bytes"
	"fmt"
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

// count is the number of nodes of the tree, at the one with a number, with the tree's
// encoding with other bytes in its place. The root is 0.
func (n node) count() int {
	c := 1
	for _, k := range n.kids {
		c += k.count()
	}
	return c
}

func (n node) at(i int) node {
	if i == 0 {
		return n
	}
	i--
	for _, k := range n.kids {
		if c := k.count(); i >= c {
			i -= c
			continue
		}
		return k.at(i)
	}
	panic("no such node")
}

func (n node) with(i int, encoded []byte) []byte {
	if i == 0 {
		return encoded
	}
	i--
	var body []byte
	for _, k := range n.kids {
		if c := k.count(); i < 0 || i >= c {
			body = append(body, k.encode()...)
			i -= c
			continue
		}
		body = append(body, k.with(i, encoded)...)
		i = -1
	}
	return header(body, 0xc0)
}

// changes are other encodings instead of a node: other values, and other spellings of
// its own.
func changes(n node) map[string][]byte {
	own := n.encode()
	all := map[string][]byte{
		"left out":          {},
		"doubled":           slices.Concat(own, own),
		"empty string":      {0x80},
		"empty list":        {0xc0},
		"within a list":     header(own, 0xc0),
		"within a string":   header(own, 0x80),
		"cut off":           own[:len(own)-1],
		"of a huge length":  slices.Concat([]byte{0xbf}, bytes.Repeat([]byte{0xff}, 8), own),
		"of a huge length2": slices.Concat([]byte{0xff}, bytes.Repeat([]byte{0xff}, 8), own),
	}
	body := n.str
	base := byte(0x80)
	if n.list {
		base, body = 0xc0, nil
		for _, k := range n.kids {
			body = append(body, k.encode()...)
		}
	}
	if len(body) < 256 {
		all["with a long length"] = slices.Concat([]byte{base + 56, byte(len(body))}, body)
		all["with a length of zeros"] = slices.Concat([]byte{base + 57, 0, byte(len(body))}, body)
	}
	if len(body) == 1 {
		all["with a length"] = append([]byte{0x81}, body...)
	}
	if n.list {
		for i := range n.kids {
			less := node{list: true, kids: slices.Delete(slices.Clone(n.kids), i, i+1)}
			all[fmt.Sprintf("without kid %d", i)] = less.encode()
		}
		more := node{list: true, kids: append(slices.Clone(n.kids), node{})}
		all["with an empty kid more"] = more.encode()
		return all
	}
	for name, str := range map[string][]byte{
		"leading zero": append([]byte{0}, n.str...), "a byte more": append(slices.Clone(n.str), 7),
		"zero byte": {0}, "one": {1}, "27": {27}, "28": {28}, "29": {29}, "34": {34}, "35": {35}, "36": {36}, "37": {37}, "38": {38},
		"0x7f": {0x7f}, "0x80": {0x80}, "0xff": {0xff},
		"8 bytes": bytes.Repeat([]byte{0xff}, 8), "8 bytes less 1": append(bytes.Repeat([]byte{0xff}, 7), 0xfe),
		"8 bytes, 2^63": append([]byte{0x80}, make([]byte, 7)...), "8 bytes, small": append([]byte{1}, make([]byte, 7)...),
		"9 bytes": bytes.Repeat([]byte{0xff}, 9), "20 bytes": bytes.Repeat([]byte{0x11}, 20), "21 bytes": bytes.Repeat([]byte{0x11}, 21),
		"31 bytes": bytes.Repeat([]byte{0x22}, 31), "32 bytes": bytes.Repeat([]byte{0x22}, 32), "32 bytes of ff": bytes.Repeat([]byte{0xff}, 32),
		"33 bytes": bytes.Repeat([]byte{0x22}, 33), "48 bytes": bytes.Repeat([]byte{0x22}, 48), "100 bytes": bytes.Repeat([]byte{0x22}, 100),
	} {
		all["with "+name] = header(str, 0x80)
	}
	return all
}

// changed puts other bytes into a field of a transaction.
func changed(tb testing.TB, raw []byte, field int, value []byte) []byte {
	prefix, tree := parse(tb, raw)
	tree.kids[field] = node{str: value}
	return slices.Concat(prefix, tree.encode())
}
