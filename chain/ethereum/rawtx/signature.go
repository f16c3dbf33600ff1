package rawtx

import (
	"fmt"
	"math/big"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"noncegate/chain/ethereum/address"
)

// signature is the last three fields of a transaction, as they were written.
type signature struct {
	v    []byte // v or yParity, without leading zeros
	r, s [32]byte
}

func (f *fields) signature() signature {
	return signature{v: f.number(32), r: f.word(), s: f.word()}
}

// sender recovers who signed the transaction, whose fields up to the signature are
// signed, and sets the chain id of a legacy transaction, which is a part of v.
func (sig *signature) sender(t *Tx, signed []byte) (address.Address, error) {
	if sig.r == [32]byte{} && sig.s == [32]byte{} {
		return address.Address{}, refuse(ErrUnsigned, whole, "is not signed: r and s are 0")
	}
	if t.Type != Legacy {
		parity, ok := small(sig.v)
		if !ok || parity > 1 {
			return address.Address{}, refuse(ErrSignature, "yParity", "must be 0 or 1, is %s", decimal(sig.v))
		}
		return recoverSender(signingHash([]byte{t.Type}, signed, nil), byte(parity), &sig.r, &sig.s)
	}
	parity, err := sig.legacyParity(t)
	if err != nil {
		return address.Address{}, err
	}
	var tail []byte // with EIP-155 the chain id is signed, and two zeros
	if t.HasChainID {
		tail = append(appendUint(nil, t.ChainID), shortString, shortString)
	}
	return recoverSender(signingHash(nil, signed, tail), parity, &sig.r, &sig.s)
}

// The values of v in legacy transactions: 27 or 28 without chain id, and with one
// (EIP-155) twice the chain id and 35 or 36.
const (
	plainV     = 27
	protectedV = 35
)

// legacyParity returns the parity that v stands for, and sets the chain id.
func (sig *signature) legacyParity(t *Tx) (byte, error) {
	v, ok := small(sig.v)
	switch {
	case !ok || (v >= protectedV && (v-protectedV)/2 > MaxChainID):
		return 0, refuse(ErrChainID, "v", "stands for a chain id above %d, the greatest there can be (EIP-2294)", uint64(MaxChainID))
	case v == plainV || v == plainV+1:
		return byte(v - plainV), nil
	case v < protectedV:
		return 0, refuse(ErrSignature, "v", "must be 27 or 28, or 35 or 36 and twice the chain id (EIP-155); is %d", v)
	}
	t.ChainID, t.HasChainID = (v-protectedV)/2, true
	if rule := badChainID(t.ChainID); rule != "" {
		return 0, refuse(ErrChainID, "v", "stands for a chain id that %s", rule)
	}
	return byte((v - protectedV) % 2), nil
}

// badChainID says what is wrong with a chain id; "": nothing.
func badChainID(id uint64) string {
	switch {
	case id == 0:
		return "must not be 0: no chain has it"
	case id > MaxChainID:
		return fmt.Sprintf("must be at most %d (EIP-2294)", uint64(MaxChainID))
	}
	return ""
}

// signingHash returns the hash that is signed: of prefix, and of the list of the fields
// and the tail.
func signingHash(prefix, fields, tail []byte) [32]byte {
	return address.Keccak256(prefix, listHeader(len(fields)+len(tail)), fields, tail)
}

// recoverSender returns the account whose key made a signature. parity is 0 or 1.
func recoverSender(hash [32]byte, parity byte, r, s *[32]byte) (address.Address, error) {
	if err := inRange("r", r); err != nil {
		return address.Address{}, err
	}
	if err := inRange("s", s); err != nil {
		return address.Address{}, err
	}
	var n secp256k1.ModNScalar
	n.SetBytes(s)
	if n.IsOverHalfOrder() {
		return address.Address{}, refuse(ErrHighS, "s", "must not be above half of the curve's order (EIP-2): put the order less s in its place, and the other parity")
	}
	var compact [65]byte
	compact[0] = plainV + parity
	copy(compact[1:], r[:])
	copy(compact[33:], s[:])
	key, _, err := ecdsa.RecoverCompact(compact[:], hash[:])
	if err != nil {
		return address.Address{}, refuse(ErrSignature, "r", "and s are a signature that no key can have made")
	}
	point := key.SerializeUncompressed()
	digest := address.Keccak256(point[1:])
	return address.Address(digest[12:]), nil
}

func inRange(name string, b *[32]byte) error {
	var n secp256k1.ModNScalar
	switch overflow := n.SetBytes(b); {
	case overflow != 0:
		return refuse(ErrSignature, name, "must be below the curve's order")
	case n.IsZero():
		return refuse(ErrSignature, name, "must not be 0")
	}
	return nil
}

// small returns an integer without leading zeros, if it fits.
func small(b []byte) (uint64, bool) {
	n := new(big.Int).SetBytes(b)
	return n.Uint64(), n.IsUint64()
}

func decimal(b []byte) string { return new(big.Int).SetBytes(b).String() }
