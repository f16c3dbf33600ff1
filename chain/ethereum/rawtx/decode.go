package rawtx

import (
	"crypto/sha256"
	"encoding/binary"

	"noncegate/chain/ethereum/address"
)

// names has the fields of each type, in the order of their encoding.
var names = [...][]string{
	Legacy: {"nonce", "gasPrice", "gas", "to", "value", "input", "v", "r", "s"},
	AccessList: {"chainId", "nonce", "gasPrice", "gas", "to", "value", "input", "accessList",
		"yParity", "r", "s"},
	DynamicFee: {"chainId", "nonce", "maxPriorityFeePerGas", "maxFeePerGas", "gas", "to", "value", "input",
		"accessList", "yParity", "r", "s"},
	Blob: {"chainId", "nonce", "maxPriorityFeePerGas", "maxFeePerGas", "gas", "to", "value", "input",
		"accessList", "maxFeePerBlobGas", "blobVersionedHashes", "yParity", "r", "s"},
	SetCode: {"chainId", "nonce", "maxPriorityFeePerGas", "maxFeePerGas", "gas", "to", "value", "input",
		"accessList", "authorizationList", "yParity", "r", "s"},
}

var (
	accessNames        = []string{"address", "storageKeys"}
	authorizationNames = []string{"chainId", "address", "nonce", "yParity", "r", "s"}
)

// signatureFields is how many fields a signature has: v or yParity, r and s.
const signatureFields = 3

// Decode reads a signed transaction: what eth_sendRawTransaction takes, as bytes. A blob
// transaction may come with its sidecar or without. Until RecoverAuthorities, none of its
// authorizations is valid, and raw must not be changed.
//
// The error is an *Error. It costs one recovery of a public key, whatever the transaction has.
func Decode(raw []byte) (*Tx, error) {
	t, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func decode(raw []byte) (*Tx, *Error) {
	if len(raw) == 0 {
		return nil, refuse("is empty")
	}
	kind := raw[0]
	switch {
	case kind >= shortList:
		kind = Legacy
	case kind >= shortString:
		return nil, refuse("begins with 0x%02x, an RLP string: send what is in the string, which begins with the type", kind)
	case kind == Legacy || int(kind) >= len(names):
		return nil, refuse("has type %d: types 1 to 4, and legacy without a type byte, are known", kind)
	}
	list, err := envelope(raw, kind)
	var sidecar []byte
	if err == nil && kind == Blob {
		list, sidecar, err = unwrap(list)
	}
	if err != nil {
		return nil, err
	}
	f, err := open(list, names[kind], signatureFields)
	if err != nil {
		return nil, err
	}
	t := &Tx{Type: kind}
	f.transaction(t)
	signed := f.read()
	sig := signature{v: f.number(32), r: f.word(), s: f.word()}
	if err := f.err; err != nil {
		return nil, err
	}
	if sidecar != nil {
		if t.Sidecar, err = readSidecar(sidecar, f.hashes); err != nil {
			return nil, err.in("sidecar")
		}
	}
	t.Hash = address.Keccak256(typeByte(kind), list.raw) // of a blob transaction without its sidecar
	t.From, err = sig.sender(t, signed)
	return t, err
}

// typeByte is what stands before the list of a transaction's fields.
func typeByte(kind byte) []byte {
	if kind == Legacy {
		return nil
	}
	return []byte{kind}
}

// envelope returns the list that the transaction consists of behind its type byte.
func envelope(raw []byte, kind byte) (item, *Error) {
	most := MaxSize
	if kind == Blob {
		most = MaxBlobSize
	}
	if len(raw) > most {
		return item{}, refuse("has %d bytes; of type %d, %d at most are taken", len(raw), kind, most)
	}
	raw = raw[len(typeByte(kind)):]
	if len(raw) == 0 {
		return item{}, refuse("ends after its type byte")
	}
	list, rest, err := first(raw)
	switch {
	case err != nil:
		return item{}, err
	case !list.list:
		return item{}, refuse("must be an RLP list, is a string")
	case len(rest) > 0:
		return item{}, refuse("is followed by %d bytes that do not belong to it", len(rest))
	}
	return list, nil
}

// transaction reads the fields up to the signature.
func (f *fields) transaction(t *Tx) {
	if t.HasChainID = t.Type != Legacy; t.HasChainID {
		t.ChainID = f.chainID()
	}
	t.Nonce = f.accountNonce()
	if t.Type < DynamicFee {
		t.GasPrice = f.amount()
	} else {
		t.Tip, t.MaxFee = f.amount(), f.amount()
	}
	t.Gas = f.uint64()
	if t.Type == Blob || t.Type == SetCode {
		to := f.address("; a transaction of this type cannot create a contract")
		t.To = &to
	} else {
		t.To = f.target()
	}
	t.Value = f.amount()
	input := f.bytes()
	t.DataLen, t.Payment = len(input), payment(t, input)
	if t.Type != Legacy {
		f.accessList()
	}
	switch t.Type {
	case Blob:
		t.BlobFee = f.amount()
		f.blobHashes()
		t.BlobHashes, t.Payment = len(f.hashes)/sha256.Size, digest(t.Payment[:], f.hashes)
	case SetCode:
		f.authorizations(t)
		for i := range t.Authorizations {
			t.Payment = digest(t.Payment[:], t.Authorizations[i].signed)
		}
	}
}

// accessList checks the form of an access list (EIP-2930), of which nothing is kept.
func (f *fields) accessList() {
	f.each(func(it item) *Error {
		e, err := open(it, accessNames, 0)
		if err != nil {
			return err
		}
		e.address("")
		e.each(func(key item) *Error { return fixed(key, 32) })
		return e.err
	})
}

// authorizations reads the authorization list. A field that is too long makes the whole
// transaction invalid, a wrong value only its authorization.
func (f *fields) authorizations(t *Tx) {
	n := f.each(func(it item) *Error {
		e, err := open(it, authorizationNames, 0)
		if err != nil {
			return err
		}
		a := Authorization{ChainID: e.amount(), Address: e.address(""), Nonce: e.uint64(), signed: e.read()}
		a.sig = signature{v: e.number(1), r: e.word(), s: e.word()}
		t.Authorizations = append(t.Authorizations, a)
		return e.err
	})
	switch {
	case n == 0:
		f.fail("must have at least one authorization (EIP-7702)")
	case n > MaxAuthorizations:
		f.fail("must have %d authorizations at most: more need more gas than a transaction can have (EIP-7825)", MaxAuthorizations)
	}
}

// payment is a digest of what a transaction does, whatever it pays for that.
func payment(t *Tx, input []byte) [16]byte {
	var to []byte
	if t.To != nil {
		to = t.To[:]
	}
	var value [32]byte
	t.Value.FillBytes(value[:])
	return digest(to, value[:], input)
}

// digest is a short hash of parts; their lengths count.
func digest(parts ...[]byte) (d [16]byte) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	copy(d[:], h.Sum(nil))
	return d
}
