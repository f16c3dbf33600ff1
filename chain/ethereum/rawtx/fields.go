package rawtx

import (
	"encoding/binary"
	"fmt"
	"math/big"

	"noncegate/chain/ethereum/address"
)

// fields reads the items of one list, in order, each by the method of its kind. The
// first error stays: every method after it returns zero. The number of items was
// compared with the names by open, so a reader that asks for each once meets no end.
type fields struct {
	body  []byte   // all of the list's items
	rest  []byte   // those not read yet
	names []string // of all items
	next  int      // the number of items read
	at    place
	err   error
}

// place is where a list of fields stands: the transaction itself, or an element of one
// of its lists. It is spelled only in errors.
type place struct {
	list  string // "": the transaction
	index int    // noIndex: the list itself
}

const noIndex = -1

func (p place) String() string {
	switch {
	case p.list == "":
		return whole
	case p.index == noIndex:
		return p.list
	}
	return fmt.Sprintf("%s[%d]", p.list, p.index)
}

// of returns the name of a field of what stands there.
func (p place) of(field string) string {
	if p.list == "" {
		return field
	}
	return p.String() + "." + field
}

// open returns a reader of a list, which must have as many items as there are names.
func open(list item, at place, names []string) (*fields, error) {
	n, err := count(list, at, names)
	if err != nil {
		return nil, err
	}
	if n != len(names) {
		return nil, refuse(ErrEncoding, at.String(), "has %d fields, must have %d", n, len(names))
	}
	return &fields{body: list.body, rest: list.body, names: names, at: at}, nil
}

// count returns the number of items of a list, each of which is well formed if there
// is no error.
func count(list item, at place, names []string) (int, error) {
	if !list.list {
		return 0, refuse(ErrEncoding, at.String(), "must be an RLP list of %d fields, is a string", len(names))
	}
	n := 0
	for rest := list.body; len(rest) > 0; n++ {
		var err error
		if _, rest, err = first(rest); err != nil {
			return 0, refuse(ErrEncoding, at.of(nameOf(names, n)), "%v", err)
		}
	}
	return n, nil
}

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("field %d", i+1)
}

// read returns the bytes of the items that were read, headers included.
func (f *fields) read() []byte { return f.body[:len(f.body)-len(f.rest)] }

// name returns the name of the item that was read last.
func (f *fields) name() string { return f.at.of(f.names[f.next-1]) }

func (f *fields) fail(kind error, format string, args ...any) {
	if f.err == nil {
		f.err = refuse(kind, f.name(), format, args...)
	}
}

// item returns the next item, which open has found to be well formed.
func (f *fields) item() item {
	if f.err != nil {
		return item{}
	}
	it, rest, err := first(f.rest)
	f.next++
	if err != nil {
		f.fail(ErrEncoding, "%v", err)
		return item{}
	}
	f.rest = rest
	return it
}

// bytes reads a string of any length.
func (f *fields) bytes() []byte {
	it := f.item()
	if it.list {
		f.fail(ErrEncoding, "must be an RLP string, is a list")
		return nil
	}
	return it.body
}

// list reads a list and returns it unread.
func (f *fields) list() item {
	it := f.item()
	if f.err == nil && !it.list {
		f.fail(ErrEncoding, "must be an RLP list, is a string")
	}
	return it
}

// number reads an unsigned integer of at most maxBytes. The result has no leading
// zeros; 0 is empty.
func (f *fields) number(maxBytes int) []byte {
	b := f.bytes()
	switch {
	case len(b) > maxBytes:
		f.fail(ErrEncoding, "must be below 2^%d, has %d bytes", 8*maxBytes, len(b))
		return nil
	case len(b) > 0 && b[0] == 0:
		f.fail(ErrEncoding, "must have no leading zeros (0 is the empty string)")
		return nil
	}
	return b
}

func (f *fields) uint64() uint64 {
	var b [8]byte
	n := f.number(len(b))
	copy(b[len(b)-len(n):], n)
	return binary.BigEndian.Uint64(b[:])
}

// word reads an unsigned integer below 2^256 into 32 bytes.
func (f *fields) word() (w [32]byte) {
	n := f.number(len(w))
	copy(w[len(w)-len(n):], n)
	return w
}

func (f *fields) amount() *big.Int { return new(big.Int).SetBytes(f.number(32)) }

// address reads 20 bytes.
func (f *fields) address(why string) (a address.Address) {
	b := f.bytes()
	if f.err == nil && len(b) != len(a) {
		f.fail(ErrEncoding, "must be %d bytes, has %d%s", len(a), len(b), why)
	}
	copy(a[:], b)
	return a
}

// target reads the address that a transaction goes to, or nothing: nil.
func (f *fields) target() *address.Address {
	b := f.bytes()
	if f.err != nil || len(b) == 0 {
		return nil
	}
	if len(b) != len(address.Address{}) {
		f.fail(ErrEncoding, "must be %d bytes, or none where a contract is created; has %d", len(address.Address{}), len(b))
		return nil
	}
	a := address.Address(b)
	return &a
}

// chainID reads the chain id of a typed transaction.
func (f *fields) chainID() uint64 {
	n := f.number(32)
	if f.err != nil {
		return 0
	}
	id := uint64(MaxChainID + 1)
	if len(n) <= 8 {
		id = new(big.Int).SetBytes(n).Uint64()
	}
	if rule := badChainID(id); rule != "" {
		f.fail(ErrChainID, "%s", rule)
	}
	return id
}

// accountNonce reads the nonce of a transaction.
func (f *fields) accountNonce() uint64 {
	n := f.uint64()
	if n == maxUint64 {
		f.fail(ErrNonce, "must be below 2^64-1 (EIP-2681)")
	}
	return n
}
