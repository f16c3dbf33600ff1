package rawtx

import (
	"cmp"
	"fmt"
	"math"
	"math/big"

	"noncegate/chain/ethereum/address"
)

// Error says why a transaction was refused.
type Error struct {
	Field string // as JSON-RPC calls it, such as accessList[2].address; "": the transaction as a whole
	Rule  string // what is wrong with it, as the rest of a sentence
}

// Error returns a sentence that names the field and the rule.
func (e *Error) Error() string { return cmp.Or(e.Field, "transaction") + " " + e.Rule }

func refuse(rule string, args ...any) *Error { return &Error{Rule: fmt.Sprintf(rule, args...)} }

// in says of an error of a part which field has the part. nil stays nil.
func (e *Error) in(field string) *Error {
	switch {
	case e == nil:
	case e.Field == "":
		e.Field = field
	default:
		e.Field = field + "." + e.Field
	}
	return e
}

// fields reads the items of one list, in order, each by the method of its kind. The
// first error stays: every method after it returns zero. The number of items was
// compared with the names by open, so a reader that asks for each once meets no end.
type fields struct {
	body  []byte   // all of the list's items
	rest  []byte   // those not read yet
	names []string // of all items
	next  int      // the number of items read
	err   *Error

	hashes []byte // of the blobs that a transaction names, one after the other
}

// open returns a reader of a list, which must have as many items as there are names, each of them
// well formed. Without the last unsigned of them the list is a transaction that was not signed.
func open(list item, names []string, unsigned int) (*fields, *Error) {
	if !list.list {
		return nil, refuse("must be an RLP list of %d fields, is a string", len(names))
	}
	n := 0
	for rest := list.body; len(rest) > 0; n++ {
		var err *Error
		if _, rest, err = first(rest); err != nil && n < len(names) {
			return nil, err.in(names[n])
		} else if err != nil {
			return nil, err.in(fmt.Sprintf("field %d", n+1))
		}
	}
	switch {
	case n == len(names):
		return &fields{body: list.body, rest: list.body, names: names}, nil
	case unsigned > 0 && n == len(names)-unsigned:
		return nil, refuse("is not signed: it ends after %d fields, before %s, r and s", n, names[n])
	}
	return nil, refuse("has %d fields, must have %d", n, len(names))
}

// read returns the bytes of the items that were read, headers included.
func (f *fields) read() []byte { return f.body[:len(f.body)-len(f.rest)] }

// fail notes what is wrong with the item that was read last.
func (f *fields) fail(rule string, args ...any) {
	if f.err == nil {
		f.err = refuse(rule, args...).in(f.names[f.next-1])
	}
}

// item returns the next item.
func (f *fields) item() item {
	if f.err != nil {
		return item{}
	}
	it, rest, err := first(f.rest)
	f.next++
	f.rest, f.err = rest, err.in(f.names[f.next-1]) // open has found it to be well formed
	return it
}

// bytes reads a string of any length.
func (f *fields) bytes() []byte {
	it := f.item()
	if it.list {
		f.fail("must be an RLP string, is a list")
		return nil
	}
	return it.body
}

// each reads a list and calls do for each of its items, until there is an error. It returns their
// number.
func (f *fields) each(do func(item) *Error) (n int) {
	it := f.item()
	if f.err == nil && !it.list {
		f.fail("must be an RLP list, is a string")
	}
	for rest := it.body; f.err == nil && len(rest) > 0; n++ {
		next, after, err := first(rest)
		if err == nil {
			err = do(next)
		}
		if rest = after; err != nil {
			f.err = err.in(fmt.Sprintf("%s[%d]", f.names[f.next-1], n))
		}
	}
	return n
}

// fixed says what is wrong with a string that must have size bytes; nil: nothing.
func fixed(it item, size int) *Error {
	switch {
	case it.list:
		return refuse("must be %d bytes, is a list", size)
	case len(it.body) != size:
		return refuse("must be %d bytes, has %d", size, len(it.body))
	}
	return nil
}

// number reads an unsigned integer of at most maxBytes. The result has no leading
// zeros; 0 is empty.
func (f *fields) number(maxBytes int) []byte {
	b := f.bytes()
	switch {
	case len(b) > maxBytes:
		f.fail("must be below 2^%d, has %d bytes", 8*maxBytes, len(b))
		return nil
	case len(b) > 0 && b[0] == 0:
		f.fail("must have no leading zeros (0 is the empty string)")
		return nil
	}
	return b
}

func (f *fields) uint64() uint64 { return new(big.Int).SetBytes(f.number(8)).Uint64() }

// word reads an unsigned integer below 2^256 into 32 bytes.
func (f *fields) word() (w [32]byte) {
	n := f.number(len(w))
	copy(w[len(w)-len(n):], n)
	return w
}

func (f *fields) amount() *big.Int { return new(big.Int).SetBytes(f.number(32)) }

// address reads 20 bytes; why ends the sentence about any other number of them.
func (f *fields) address(why string) (a address.Address) {
	b := f.bytes()
	if f.err == nil && len(b) != len(a) {
		f.fail("must be %d bytes, has %d%s", len(a), len(b), why)
	}
	copy(a[:], b)
	return a
}

// target reads the address that a transaction goes to, or nothing: nil.
func (f *fields) target() *address.Address {
	b := f.bytes()
	switch {
	case f.err != nil || len(b) == 0:
		return nil
	case len(b) != len(address.Address{}):
		f.fail("must be %d bytes, or none where a contract is created; has %d", len(address.Address{}), len(b))
		return nil
	}
	a := address.Address(b)
	return &a
}

// chainID reads the chain id of a typed transaction.
func (f *fields) chainID() uint64 {
	id := f.amount()
	if rule := badChainID(id); f.err == nil && rule != "" {
		f.fail("%s", rule)
	}
	return id.Uint64()
}

// badChainID says what is wrong with a chain id; "": nothing.
func badChainID(id *big.Int) string {
	switch {
	case id.Sign() == 0:
		return "must not be 0: no chain has it"
	case !id.IsUint64() || id.Uint64() > MaxChainID:
		return fmt.Sprintf("must be at most %d (EIP-2294)", uint64(MaxChainID))
	}
	return ""
}

// accountNonce reads the nonce of a transaction.
func (f *fields) accountNonce() uint64 {
	n := f.uint64()
	if n == math.MaxUint64 {
		f.fail("must be below 2^64-1 (EIP-2681)")
	}
	return n
}
