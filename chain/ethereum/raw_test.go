package ethereum

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/big"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"noncegate/chain"
	"noncegate/chain/ethereum/address"
	"noncegate/chain/ethereum/rawtx"
)

// authorityKey signs authorizations; authority is its account.
var (
	authorityKey = secp256k1.PrivKeyFromBytes([]byte("a key of tests that has 32 bytes"))
	authority    = func() string {
		digest := address.Keccak256(authorityKey.PubKey().SerializeUncompressed()[1:])
		return address.Address(digest[12:]).String()
	}()
)

// signedAuthorization is an element of an authorizationList.
func signedAuthorization(chainID, nonce uint64) map[string]any {
	target := address.Address{19: 0xaa}
	hash := address.Keccak256([]byte{0x05}, rlpList([][]byte{number(chainID), target[:], number(nonce)}))
	sig := ecdsa.SignCompact(authorityKey, hash[:], false)
	return map[string]any{
		"chainId": quantity(int64(chainID)), "address": target.String(), "nonce": quantity(int64(nonce)), "yParity": quantity(int64(sig[0] - 27)),
		"r": fmt.Sprintf("0x%x", sig[1:33]), "s": fmt.Sprintf("0x%x", sig[33:]),
	}
}

// rawTransfer is a signed transaction of authority on chain 1 with nonce 5.
var rawTransfer = rawLegacy(1, 5)

// rawLegacy signs a legacy transaction of authority; chain 0: one that is of no chain.
func rawLegacy(chainID uint64, nonce uint64) []byte {
	fields := [][]byte{number(nonce), number(1e9), number(21000), make([]byte, 20), number(1), nil}
	signed := fields
	if chainID != 0 {
		signed = append(fields, number(chainID), nil, nil)
	}
	hash := address.Keccak256(rlpList(signed))
	sig := ecdsa.SignCompact(authorityKey, hash[:], false)
	v := number(chainID*2 + 35 + uint64(sig[0]-27))
	if chainID == 0 {
		v = number(uint64(sig[0]))
	}
	return rlpList(append(fields, v, trimmed(sig[1:33]), trimmed(sig[33:])))
}

// A payment is the same whatever its nonce and fees are; recipient, value and input tell it apart.
func TestWhatATransactionDoesIsToldApart(t *testing.T) {
	sign := func(nonce, price uint64, to byte, value uint64, input []byte) chain.Tx {
		fields := [][]byte{number(nonce), number(price), number(21000), append(make([]byte, 19), to), number(value), input}
		hash := address.Keccak256(rlpList(append(fields, number(1), nil, nil)))
		sig := ecdsa.SignCompact(authorityKey, hash[:], false)
		raw := rlpList(append(fields, number(37+uint64(sig[0]-27)), trimmed(sig[1:33]), trimmed(sig[33:])))
		got, err := newWorld(t, 1).Decode(raw)
		must(t, err)
		return got
	}
	first := sign(5, 1e9, 1, 7, []byte{1, 2}).Payment
	if again := sign(6, 2e9, 1, 7, []byte{1, 2}).Payment; again != first {
		t.Error("another nonce or fee makes it another payment")
	}
	for what, other := range map[string]chain.Tx{
		"recipient": sign(5, 1e9, 2, 7, []byte{1, 2}), "value": sign(5, 1e9, 1, 8, []byte{1, 2}), "input": sign(5, 1e9, 1, 7, []byte{1, 2, 3}),
	} {
		if other.Payment == first {
			t.Errorf("another %s is the same payment", what)
		}
		if other.Cancels {
			t.Errorf("another %s cancels", what)
		}
	}
}

func TestATransferOfNothingToItselfCancels(t *testing.T) {
	self, err := address.Parse(authority)
	must(t, err)
	other := self
	other[0]++
	for _, c := range []struct {
		tx   rawtx.Tx
		want bool
	}{
		{rawtx.Tx{From: self, To: &self, Value: new(big.Int)}, true},
		{rawtx.Tx{From: self, To: &self, Value: big.NewInt(1)}, false},
		{rawtx.Tx{From: self, To: &other, Value: new(big.Int)}, false},
		{rawtx.Tx{From: self, Value: new(big.Int)}, false},
		{rawtx.Tx{From: self, To: &self, Value: new(big.Int), DataLen: 1}, false},
		{rawtx.Tx{From: self, To: &self, Value: new(big.Int), Authorizations: make([]rawtx.Authorization, 1)}, false},
	} {
		if c.tx.Cancels() != c.want {
			t.Errorf("%+v cancels: %v, want %v", c.tx, !c.want, c.want)
		}
	}
}

func hashOf(raw []byte) chain.Hash {
	t, err := rawtx.Decode(raw)
	if err != nil {
		panic(err)
	}
	return t.Hash
}

func number(n uint64) []byte { return trimmed(binary.BigEndian.AppendUint64(nil, n)) }

func trimmed(b []byte) []byte { return bytes.TrimLeft(b, "\x00") }

func rlpList(items [][]byte) []byte {
	var body []byte
	for _, b := range items {
		if len(b) != 1 || b[0] >= 0x80 {
			body = append(body, 0x80+byte(len(b)))
		}
		body = append(body, b...)
	}
	if len(body) < 56 {
		return append([]byte{0xc0 + byte(len(body))}, body...)
	}
	return append([]byte{0xf8, byte(len(body))}, body...)
}
