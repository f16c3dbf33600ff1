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

// Decode reads a signed transaction: what eth_sendRawTransaction takes, as bytes. A blob
// transaction may come with its sidecar or without.
//
// The error is an *Error, which names the field and the rule. Nothing of raw is kept.
//
// It costs one recovery of a public key, and when that has succeeded one more for each
// authorization.
func Decode(raw []byte) (*Tx, error) {
	t, err := DecodeSender(raw)
	if err == nil {
		t.RecoverAuthorities()
	}
	return t, err
}

// DecodeSender is Decode without the authorities: it costs one recovery, whatever the
// transaction has. None of its authorizations is valid before RecoverAuthorities, until when
// raw is kept and must not be changed.
func DecodeSender(raw []byte) (*Tx, error) {
	if len(raw) == 0 {
		return nil, refuse(ErrEmpty, whole, "is empty")
	}
	kind := raw[0]
	switch {
	case kind >= shortList:
		kind = Legacy
	case kind >= shortString:
		return nil, refuse(ErrEncoding, whole, "begins with 0x%02x, an RLP string: send what is in the string, which begins with the type", kind)
	case kind == Legacy || int(kind) >= len(names):
		return nil, refuse(ErrType, whole, "has type %d: types 1 to 4, and legacy without a type byte, are known", kind)
	}
	if kind == Blob {
		return decodeBlob(raw)
	}
	list, err := envelope(raw, kind, MaxSize)
	if err != nil {
		return nil, err
	}
	r, err := readFields(list, kind)
	if err != nil {
		return nil, err
	}
	r.tx.Hash = address.Keccak256(raw)
	return r.finish()
}

// envelope returns the list that the transaction consists of behind its type byte.
func envelope(raw []byte, kind byte, maxBytes int) (item, error) {
	if len(raw) > maxBytes {
		return item{}, refuse(ErrTooLarge, whole, "has %d bytes; of type %d, %d at most are taken", len(raw), kind, maxBytes)
	}
	if kind != Legacy {
		raw = raw[1:]
	}
	if len(raw) == 0 {
		return item{}, refuse(ErrEncoding, whole, "ends after its type byte")
	}
	list, rest, err := first(raw)
	switch {
	case err != nil:
		return item{}, refuse(ErrEncoding, whole, "%v", err)
	case !list.list:
		return item{}, refuse(ErrEncoding, whole, "must be an RLP list, is a string")
	case len(rest) > 0:
		return item{}, refuse(ErrEncoding, whole, "is followed by %d bytes that do not belong to it", len(rest))
	}
	return list, nil
}

// reading is a transaction whose fields were read and whose sender is not known yet.
type reading struct {
	tx     Tx
	sig    signature
	signed []byte // the fields before the signature, encoded
	hashes []byte // type 3: of the blobs, one after the other
	auths  []authSignature
}

// readFields reads the list of a transaction's fields.
func readFields(list item, kind byte) (*reading, error) {
	f, err := openSigned(list, kind)
	if err != nil {
		return nil, err
	}
	r := &reading{tx: Tx{Type: kind}}
	readers[kind](f, r)
	r.signed = f.read()
	r.sig = f.signature()
	return r, f.err
}

// finish recovers who signed the transaction.
func (r *reading) finish() (*Tx, error) {
	t := r.tx // a copy, so that the caller does not keep what r refers to
	from, err := r.sig.sender(&t, r.signed)
	if err != nil {
		return nil, err
	}
	t.From, t.auths = from, r.auths
	return &t, nil
}

// signatureFields is how many fields a signature has: v or yParity, r and s.
const signatureFields = 3

// openSigned is open for a transaction. One without the fields of the signature, as
// libraries write it for signing, is told apart from one that is broken.
func openSigned(list item, kind byte) (*fields, error) {
	f, err := open(list, place{}, names[kind])
	if err == nil {
		return f, nil
	}
	unsigned := len(names[kind]) - signatureFields
	if n, broken := count(list, place{}, names[kind]); broken == nil && n == unsigned {
		return nil, refuse(ErrUnsigned, whole, "is not signed: it ends after %d fields, before %s, r and s",
			n, names[kind][unsigned])
	}
	return nil, err
}

// readers read the fields of each type up to the signature.
var readers = [...]func(*fields, *reading){
	Legacy: func(f *fields, r *reading) {
		r.tx.Nonce = f.accountNonce()
		r.tx.GasPrice = f.amount()
		f.call(&r.tx)
	},
	AccessList: func(f *fields, r *reading) {
		f.chainAndNonce(&r.tx)
		r.tx.GasPrice = f.amount()
		f.call(&r.tx)
		f.accessList()
	},
	DynamicFee: readDynamicFee,
	Blob: func(f *fields, r *reading) {
		readDynamicFee(f, r)
		r.tx.BlobFee = f.amount()
		r.hashes = f.blobHashes()
		r.tx.BlobHashes = len(r.hashes) / sha256.Size
		r.tx.Payment = digest(r.tx.Payment[:], r.hashes)
	},
	SetCode: func(f *fields, r *reading) {
		readDynamicFee(f, r)
		f.authorizations(r)
		for i := range r.auths {
			r.tx.Payment = digest(r.tx.Payment[:], r.auths[i].signed)
		}
	},
}

func readDynamicFee(f *fields, r *reading) {
	f.chainAndNonce(&r.tx)
	r.tx.Tip = f.amount()
	r.tx.MaxFee = f.amount()
	f.call(&r.tx)
	f.accessList()
}

func (f *fields) chainAndNonce(t *Tx) {
	t.ChainID, t.HasChainID = f.chainID(), true
	t.Nonce = f.accountNonce()
}

// call reads gas, to, value and input.
func (f *fields) call(t *Tx) {
	t.Gas = f.uint64()
	if t.Type == Blob || t.Type == SetCode {
		to := f.address("; a transaction of this type cannot create a contract")
		t.To = &to
	} else {
		t.To = f.target()
	}
	t.Value = f.amount()
	input := f.bytes()
	t.DataLen = len(input)
	var to []byte
	if t.To != nil {
		to = t.To[:]
	}
	var value [32]byte
	if f.err == nil {
		t.Value.FillBytes(value[:])
	}
	t.Payment = digest(to, value[:], input)
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
