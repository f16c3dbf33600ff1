package rawtx_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"noncegate/chain/ethereum/rawtx"
)

var kinds = []error{rawtx.ErrEmpty, rawtx.ErrTooLarge, rawtx.ErrType, rawtx.ErrEncoding, rawtx.ErrUnsigned,
	rawtx.ErrHighS, rawtx.ErrSignature, rawtx.ErrChainID, rawtx.ErrNonce, rawtx.ErrContent}

// checkRefusal compares an error with its kind and sentence. kind nil: no error is right.
func checkRefusal(t *testing.T, name string, err, kind error, sentence string) {
	t.Helper()
	if kind == nil {
		if err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		return
	}
	if !errors.Is(err, kind) || err.Error() != sentence {
		t.Errorf("%s\ngot  %v (%v)\nwant %s (%v)", name, err, errors.Unwrap(err), sentence, kind)
	}
}

// rlp encodes uint64 and int as integers, []byte and string as strings, list as a list
// and encoded as it is.
type (
	list    []any
	encoded []byte
)

func rlp(v any) []byte {
	switch v := v.(type) {
	case int:
		return rlp(uint64(v))
	case uint64:
		return rlp(bytes.TrimLeft(binary.BigEndian.AppendUint64(nil, v), "\x00"))
	case string:
		return rlp([]byte(v))
	case encoded:
		return v
	case []byte:
		if len(v) == 1 && v[0] < 0x80 {
			return v
		}
		return slices.Concat(head(0x80, len(v)), v)
	case list:
		var body []byte
		for _, k := range v {
			body = append(body, rlp(k)...)
		}
		return slices.Concat(head(0xc0, len(body)), body)
	}
	panic(fmt.Sprintf("no encoding of %T", v))
}

func head(base byte, size int) []byte {
	if size < 56 {
		return []byte{base + byte(size)}
	}
	length := bytes.TrimLeft(binary.BigEndian.AppendUint32(nil, uint32(size)), "\x00")
	return append([]byte{base + 55 + byte(len(length))}, length...)
}

// typed encodes a transaction of a type; 0 is legacy.
func typed(kind byte, fields list) []byte {
	if kind == 0 {
		return rlp(fields)
	}
	return append([]byte{kind}, rlp(fields)...)
}

var (
	to    = strings.Repeat("t", 20)
	half  = bytes.Repeat([]byte{0x72}, 32) // an s in range, and an r of the curve
	large = bytes.Repeat([]byte{0xff}, 32)
	// high is just above half of the order.
	high       = "\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x5d\x57\x6e\x73\x57\xa4\x50\x1d\xdf\xe9\x2f\x46\x68\x1b\x20\xa1"
	commitment = strings.Repeat("c", 48)
)

// blobHash is the versioned hash of commitment.
func blobHash() []byte {
	h := sha256.Sum256([]byte(commitment))
	h[0] = 1
	return h[:]
}

// The fields of well-formed transactions of each type, whose signature is of no key.
func plain(kind byte) list {
	switch kind {
	case 0:
		return list{1, 2, 3, to, 4, "input", 27, half, half}
	case 1:
		return list{5, 1, 2, 3, to, 4, "input", list{}, 1, half, half}
	case 2:
		return list{5, 1, 2, 2, 3, to, 4, "input", list{}, 1, half, half}
	case 3:
		return list{5, 1, 2, 2, 3, to, 4, "input", list{}, 9, list{blobHash()}, 1, half, half}
	default:
		return list{5, 1, 2, 2, 3, to, 4, "input", list{}, list{list{0, to, 1, 0, half, half}}, 1, half, half}
	}
}

// with is plain with field i set to v.
func with(kind byte, i int, v any) []byte {
	fields := plain(kind)
	fields[i] = v
	return typed(kind, fields)
}

// sized is plain with as much input, in field i, as makes it so many bytes long.
func sized(kind byte, i, size int) []byte {
	return with(kind, i, make([]byte, 2*size-1000-len(with(kind, i, make([]byte, size-1000)))))
}

func TestEveryRefusalNamesTheFieldAndTheRule(t *testing.T) {
	for _, c := range []struct {
		name     string
		raw      []byte
		kind     error
		sentence string
	}{
		{"nothing", nil, rawtx.ErrEmpty, "transaction is empty"},
		{"type 0 in an envelope", []byte{0, 0xc0}, rawtx.ErrType, "transaction has type 0: types 1 to 4, and legacy without a type byte, are known"},
		{"type 5", with(5, 0, 1), rawtx.ErrType, "transaction has type 5: types 1 to 4, and legacy without a type byte, are known"},
		{"a deposit of an OP chain", []byte{0x7e, 0xc0}, rawtx.ErrType, "transaction has type 126: types 1 to 4, and legacy without a type byte, are known"},
		{"an envelope within a string", rlp(with(2, 0, 1)), rawtx.ErrEncoding, "transaction begins with 0xb8, an RLP string: send what is in the string, which begins with the type"},
		{"the type alone", []byte{2}, rawtx.ErrEncoding, "transaction ends after its type byte"},
		{"blob type alone", []byte{3}, rawtx.ErrEncoding, "transaction ends after its type byte"},
		{"no list", []byte{2, 0x80}, rawtx.ErrEncoding, "transaction must be an RLP list, is a string"},
		{"an empty list", []byte{2, 0xc0}, rawtx.ErrEncoding, "transaction has 0 fields, must have 12"},
		{"an empty list of blob type", []byte{3, 0xc0}, rawtx.ErrEncoding, "transaction has no fields"},
		{"bytes behind", append(with(1, 0, 5), 0), rawtx.ErrEncoding, "transaction is followed by 1 bytes that do not belong to it"},
		{"bytes behind legacy", append(with(0, 0, 5), 1, 2), rawtx.ErrEncoding, "transaction is followed by 2 bytes that do not belong to it"},
		{"cut off", with(2, 0, 5)[:50], rawtx.ErrEncoding, "transaction is cut off: it says 101 bytes and 47 follow"},
		{"of 2^64-1 bytes", append([]byte{2, 0xff}, bytes.Repeat([]byte{0xff}, 8)...), rawtx.ErrEncoding, "transaction is cut off: it says 18446744073709551615 bytes and 0 follow"},
		{"cut off in the length", []byte{2, 0xf9, 1}, rawtx.ErrEncoding, "transaction ends within its own length"},
		{"a long length", []byte{2, 0xf8, 1, 0}, rawtx.ErrEncoding, "transaction has a length that could be written shorter (canonical RLP)"},
		{"a length with zeros", []byte{2, 0xf9, 0, 200}, rawtx.ErrEncoding, "transaction has a length that could be written shorter (canonical RLP)"},
		{"too large", make([]byte, rawtx.MaxSize+1), rawtx.ErrType, "transaction has type 0: types 1 to 4, and legacy without a type byte, are known"},
		{"too large legacy", sized(0, 5, rawtx.MaxSize+1), rawtx.ErrTooLarge, "transaction has 131073 bytes; of type 0, 131072 at most are taken"},
		{"too large type 2", sized(2, 7, rawtx.MaxSize+1), rawtx.ErrTooLarge, "transaction has 131073 bytes; of type 2, 131072 at most are taken"},
		{"too large blob", append([]byte{3}, make([]byte, rawtx.MaxBlobSize)...), rawtx.ErrTooLarge, "transaction has 1048577 bytes; of type 3, 1048576 at most are taken"},
		{"too large without sidecar", sized(3, 7, rawtx.MaxSize+1), rawtx.ErrTooLarge, "transaction has 131073 bytes without a sidecar, 131072 at most are taken"},
		{"too large within a sidecar", wrapped(sized(3, 7, rawtx.MaxSize+1), list{}), rawtx.ErrTooLarge, "transaction has 131073 bytes without a sidecar, 131072 at most are taken"},

		{"for signing, type 2", typed(2, plain(2)[:9]), rawtx.ErrUnsigned, "transaction is not signed: it ends after 9 fields, before yParity, r and s"},
		{"for signing, legacy", typed(0, plain(0)[:6]), rawtx.ErrUnsigned, "transaction is not signed: it ends after 6 fields, before v, r and s"},
		{"for signing, EIP-155", typed(0, append(plain(0)[:6], 1, 0, 0)), rawtx.ErrUnsigned, "transaction is not signed: r and s are 0"},
		{"zeros for a signature", typed(2, append(plain(2)[:9], 0, 0, 0)), rawtx.ErrUnsigned, "transaction is not signed: r and s are 0"},
		{"a field too few", typed(2, plain(2)[:11]), rawtx.ErrEncoding, "transaction has 11 fields, must have 12"},
		{"a field too many", typed(4, append(plain(4), 1)), rawtx.ErrEncoding, "transaction has 14 fields, must have 13"},
		{"fields of another type", typed(1, plain(2)), rawtx.ErrEncoding, "transaction has 12 fields, must have 11"},

		{"a nonce with zeros", with(0, 0, "\x00\x01"), rawtx.ErrEncoding, "nonce must have no leading zeros (0 is the empty string)"},
		{"0 as a byte", with(2, 1, encoded{0}), rawtx.ErrEncoding, "nonce must have no leading zeros (0 is the empty string)"},
		{"a nonce with a header", with(2, 1, encoded{0x81, 5}), rawtx.ErrEncoding, "nonce is a single byte below 0x80 and must be written without a length (canonical RLP)"},
		{"a nonce of 9 bytes", with(2, 1, strings.Repeat("n", 9)), rawtx.ErrEncoding, "nonce must be below 2^64, has 9 bytes"},
		{"a list for a nonce", with(2, 1, list{}), rawtx.ErrEncoding, "nonce must be an RLP string, is a list"},
		{"the nonce of EIP-2681", with(0, 0, uint64(math.MaxUint64)), rawtx.ErrNonce, "nonce must be below 2^64-1 (EIP-2681)"},
		{"the nonce of EIP-2681, typed", with(4, 1, uint64(math.MaxUint64)), rawtx.ErrNonce, "nonce must be below 2^64-1 (EIP-2681)"},
		{"a gas price of 33 bytes", with(0, 1, strings.Repeat("p", 33)), rawtx.ErrEncoding, "gasPrice must be below 2^256, has 33 bytes"},
		{"gas of 9 bytes", with(1, 3, strings.Repeat("g", 9)), rawtx.ErrEncoding, "gas must be below 2^64, has 9 bytes"},
		{"to of 19 bytes", with(0, 3, to[1:]), rawtx.ErrEncoding, "to must be 20 bytes, or none where a contract is created; has 19"},
		{"to of a blob transaction", with(3, 5, ""), rawtx.ErrEncoding, "to must be 20 bytes, has 0; a transaction of this type cannot create a contract"},
		{"to of a set-code transaction", with(4, 5, ""), rawtx.ErrEncoding, "to must be 20 bytes, has 0; a transaction of this type cannot create a contract"},
		{"a list for to", with(0, 3, list{}), rawtx.ErrEncoding, "to must be an RLP string, is a list"},
		{"a list for input", with(2, 7, list{}), rawtx.ErrEncoding, "input must be an RLP string, is a list"},
		{"a field cut off", typed(2, append(plain(2)[:11], encoded{0xa0, 1})), rawtx.ErrEncoding, "s is cut off: it says 32 bytes and 1 follow"},
		{"a field too many, cut off", typed(2, append(plain(2), encoded{0xa0, 1})), rawtx.ErrEncoding, "field 13 is cut off: it says 32 bytes and 1 follow"},
		{"chain id 0", with(2, 0, 0), rawtx.ErrChainID, "chainId must not be 0: no chain has it"},
		{"a list for the chain id", with(2, 0, list{}), rawtx.ErrEncoding, "chainId must be an RLP string, is a list"},
		{"a large chain id", with(2, 0, uint64(rawtx.MaxChainID+1)), rawtx.ErrChainID, "chainId must be at most 9223372036854775771 (EIP-2294)"},
		{"a larger chain id", with(4, 0, large), rawtx.ErrChainID, "chainId must be at most 9223372036854775771 (EIP-2294)"},

		{"a string for the access list", with(1, 7, ""), rawtx.ErrEncoding, "accessList must be an RLP list, is a string"},
		{"a string in the access list", with(2, 8, list{""}), rawtx.ErrEncoding, "accessList[0] must be an RLP list of 2 fields, is a string"},
		{"one field in the access list", with(2, 8, list{list{to, list{}}, list{to}}), rawtx.ErrEncoding, "accessList[1] has 1 fields, must have 2"},
		{"an address of 19 bytes", with(2, 8, list{list{to[1:], list{}}}), rawtx.ErrEncoding, "accessList[0].address must be 20 bytes, has 19"},
		{"a string of keys", with(2, 8, list{list{to, ""}}), rawtx.ErrEncoding, "accessList[0].storageKeys must be an RLP list, is a string"},
		{"a key of 31 bytes", with(2, 8, list{list{to, list{large, large[1:]}}}), rawtx.ErrEncoding, "accessList[0].storageKeys[1] must be 32 bytes, has 31"},
		{"a list for a key", with(2, 8, list{list{to, list{list{}}}}), rawtx.ErrEncoding, "accessList[0].storageKeys[0] must be 32 bytes, is a list"},
		{"a key cut off", with(2, 8, list{list{to, list{encoded{0xa0}}}}), rawtx.ErrEncoding, "accessList[0].storageKeys[0] is cut off: it says 32 bytes and 0 follow"},
		{"an element cut off", with(2, 8, list{encoded{0xc5}}), rawtx.ErrEncoding, "accessList[0] is cut off: it says 5 bytes and 0 follow"},

		{"no authorizations", with(4, 9, list{}), rawtx.ErrContent, "authorizationList must have at least one authorization (EIP-7702)"},
		{"more authorizations than gas", with(4, 9, auths(rawtx.MaxAuthorizations+1)), rawtx.ErrTooLarge, "authorizationList must have 671 authorizations at most: more need more gas than a transaction can have (EIP-7825)"},
		{"an authorization of 5 fields", with(4, 9, list{list{0, to, 1, 0, half}}), rawtx.ErrEncoding, "authorizationList[0] has 5 fields, must have 6"},
		{"a parity of 2 bytes", with(4, 9, list{list{0, to, 1, 256, half, half}}), rawtx.ErrEncoding, "authorizationList[0].yParity must be below 2^8, has 2 bytes"},
		{"an r of 33 bytes", with(4, 9, list{list{0, to, 1, 1, "r" + string(half), half}}), rawtx.ErrEncoding, "authorizationList[0].r must be below 2^256, has 33 bytes"},
		{"no address", with(4, 9, list{list{0, "", 1, 1, half, half}}), rawtx.ErrEncoding, "authorizationList[0].address must be 20 bytes, has 0"},
		{"a nonce of 9 bytes there", with(4, 9, list{list{0, to, strings.Repeat("n", 9), 1, half, half}}), rawtx.ErrEncoding, "authorizationList[0].nonce must be below 2^64, has 9 bytes"},

		{"no blobs", with(3, 10, list{}), rawtx.ErrContent, "blobVersionedHashes must name at least one blob (EIP-4844)"},
		{"another version of a hash", with(3, 10, list{blobHash(), large}), rawtx.ErrContent, "blobVersionedHashes must begin with the version 0x01 each (EIP-4844), number 1 does not"},
		{"a hash of 31 bytes", with(3, 10, list{large[1:]}), rawtx.ErrEncoding, "blobVersionedHashes[0] must be 32 bytes, has 31"},
		{"a string of hashes", with(3, 10, ""), rawtx.ErrEncoding, "blobVersionedHashes must be an RLP list, is a string"},
		{"no sidecar in the wrapper", wrapped(typed(3, plain(3)), list{}), rawtx.ErrEncoding, "sidecar has 0 fields, must have 3"},
		{"half a sidecar", wrapped(typed(3, plain(3)), list{list{}, list{}}), rawtx.ErrEncoding, "sidecar has 2 fields, must have 3"},
		{"half a versioned sidecar", wrapped(typed(3, plain(3)), list{1, list{}, list{}}), rawtx.ErrEncoding, "sidecar has 3 fields, must have 4"},
		{"sidecar version 2", wrapped(typed(3, plain(3)), list{2, blobs(1), pieces(1), pieces(128)}), rawtx.ErrContent, "sidecar.version must be 1 (EIP-7594); version 0 is written without one"},
		{"sidecar version 0, written", wrapped(typed(3, plain(3)), list{0, blobs(1), pieces(1), pieces(1)}), rawtx.ErrContent, "sidecar.version must be 1 (EIP-7594); version 0 is written without one"},
		{"a blob too many", wrapped(typed(3, plain(3)), list{blobs(2), pieces(1), pieces(1)}), rawtx.ErrContent, "sidecar.blobs must be 1 for the blobs that the transaction names, are 2"},
		{"a short blob", wrapped(typed(3, plain(3)), list{list{make([]byte, 131071)}, pieces(1), pieces(1)}), rawtx.ErrEncoding, "sidecar.blobs[0] must be 131072 bytes, has 131071"},
		{"a string of blobs", wrapped(typed(3, plain(3)), list{1, "", pieces(1), pieces(1)}), rawtx.ErrEncoding, "sidecar.blobs must be an RLP list, is a string"},
		{"no commitments", wrapped(typed(3, plain(3)), list{blobs(1), list{}, pieces(1)}), rawtx.ErrContent, "sidecar.commitments must be 1 for the blobs that the transaction names, are 0"},
		{"another commitment", wrapped(typed(3, plain(3)), list{blobs(1), list{strings.Repeat("d", 48)}, pieces(1)}), rawtx.ErrContent, "sidecar.commitments must have the hashes that the transaction names, number 0 has another"},
		{"a proof too many", wrapped(typed(3, plain(3)), list{blobs(1), pieces(1), pieces(2)}), rawtx.ErrContent, "sidecar.proofs must be 1 for the blobs that the transaction names, are 2"},
		{"cell proofs in version 0", wrapped(typed(3, plain(3)), list{blobs(1), pieces(1), pieces(128)}), rawtx.ErrContent, "sidecar.proofs must be 1 for the blobs that the transaction names, are 128"},
		{"one proof in version 1", wrapped(typed(3, plain(3)), list{1, blobs(1), pieces(1), pieces(1)}), rawtx.ErrContent, "sidecar.proofs must be 128 for the blobs that the transaction names, are 1"},
		{"a short proof", wrapped(typed(3, plain(3)), list{blobs(1), pieces(1), list{commitment[1:]}}), rawtx.ErrEncoding, "sidecar.proofs[0] must be 48 bytes, has 47"},
		{"an unsigned one in a wrapper", wrapped(typed(3, plain(3)[:11]), list{blobs(1), pieces(1), pieces(1)}), rawtx.ErrUnsigned, "transaction is not signed: it ends after 11 fields, before yParity, r and s"},
		{"a wrapper cut off", []byte{3, 0xc1, 0xc5}, rawtx.ErrEncoding, "transaction begins with an item that is cut off: it says 5 bytes and 0 follow"},

		{"v 26", with(0, 6, 26), rawtx.ErrSignature, "v must be 27 or 28, or 35 or 36 and twice the chain id (EIP-155); is 26"},
		{"v 1", with(0, 6, 1), rawtx.ErrSignature, "v must be 27 or 28, or 35 or 36 and twice the chain id (EIP-155); is 1"},
		{"v 34", with(0, 6, 34), rawtx.ErrSignature, "v must be 27 or 28, or 35 or 36 and twice the chain id (EIP-155); is 34"},
		{"v 36", with(0, 6, 36), rawtx.ErrChainID, "v stands for a chain id that must not be 0: no chain has it"},
		{"v of a large chain id", with(0, 6, uint64(math.MaxUint64)), rawtx.ErrChainID, "v stands for a chain id above 9223372036854775771, the greatest there can be (EIP-2294)"},
		{"v of a larger chain id", with(0, 6, large), rawtx.ErrChainID, "v stands for a chain id above 9223372036854775771, the greatest there can be (EIP-2294)"},
		{"v of 33 bytes", with(0, 6, "v"+string(large)), rawtx.ErrEncoding, "v must be below 2^256, has 33 bytes"},
		{"parity 2", with(2, 9, 2), rawtx.ErrSignature, "yParity must be 0 or 1, is 2"},
		{"parity 27", with(1, 8, 27), rawtx.ErrSignature, "yParity must be 0 or 1, is 27"},
		{"a parity of 32 bytes", with(2, 9, large), rawtx.ErrSignature, "yParity must be 0 or 1, is 115792089237316195423570985008687907853269984665640564039457584007913129639935"},
		{"r 0", with(2, 10, 0), rawtx.ErrSignature, "r must not be 0"},
		{"s 0", with(2, 11, 0), rawtx.ErrSignature, "s must not be 0"},
		{"a large r", with(2, 10, large), rawtx.ErrSignature, "r must be below the curve's order"},
		{"a large s", with(0, 8, large), rawtx.ErrSignature, "s must be below the curve's order"},
		{"r with zeros", with(2, 10, append([]byte{0}, half[1:]...)), rawtx.ErrEncoding, "r must have no leading zeros (0 is the empty string)"},
		{"an s that is one too high", with(2, 11, high), rawtx.ErrHighS, "s must not be above half of the curve's order (EIP-2): put the order less s in its place, and the other parity"},
		{"an r that no point has", with(2, 10, 5), rawtx.ErrSignature, "r and s are a signature that no key can have made"},
	} {
		tx, err := rawtx.Decode(c.raw)
		checkRefusal(t, c.name, err, c.kind, c.sentence)
		if tx != nil {
			t.Errorf("%s: got %+v with an error", c.name, tx)
		}
	}
}

// wrapped puts a sidecar behind a blob transaction.
func wrapped(tx []byte, side list) []byte {
	return append([]byte{3}, rlp(append(list{encoded(tx[1:])}, side...))...)
}

func blobs(n int) list { return list(slices.Repeat([]any{make([]byte, 131072)}, n)) }

func auths(n int) list { return list(slices.Repeat([]any{list{0, to, 1, 0, 1, 1}}, n)) }

func pieces(n int) list { return list(slices.Repeat([]any{commitment}, n)) }

// The transactions that the refusals above are made of, and values just within each
// bound, must be taken: a table of refusals alone would pass if all were refused.
func TestWhatIsJustWithinTheBoundsIsTaken(t *testing.T) {
	low := high[:31] + "\xa0" // half of the order
	for name, raw := range map[string][]byte{
		"legacy": typed(0, plain(0)), "type 1": typed(1, plain(1)), "type 2": typed(2, plain(2)),
		"type 3": typed(3, plain(3)), "type 4": typed(4, plain(4)),
		"the greatest nonce":           with(2, 1, uint64(math.MaxUint64-1)),
		"the greatest chain id":        with(2, 0, uint64(rawtx.MaxChainID)),
		"the greatest v":               with(0, 6, uint64(math.MaxUint64-37)),
		"v 37":                         with(0, 6, 37),
		"v 28":                         with(0, 6, 28),
		"the greatest s":               with(2, 11, low),
		"the greatest value":           with(0, 4, large),
		"the largest":                  sized(0, 5, rawtx.MaxSize),
		"the largest without blobs":    sized(3, 7, rawtx.MaxSize),
		"sidecar version 0":            wrapped(typed(3, plain(3)), list{blobs(1), pieces(1), pieces(1)}),
		"sidecar version 1":            wrapped(typed(3, plain(3)), list{1, blobs(1), pieces(1), pieces(128)}),
		"a blob beside a large input":  wrapped(sized(3, 7, rawtx.MaxSize), list{blobs(1), pieces(1), pieces(1)}),
		"a contract that is created":   with(2, 5, ""),
		"access list":                  with(2, 8, list{list{to, list{large, half}}, list{to, list{}}}),
		"the most authorizations":      with(4, 9, auths(rawtx.MaxAuthorizations)),
		"a chain id of authorizations": with(4, 9, list{list{large, to, uint64(math.MaxUint64), 255, large, 0}}),
	} {
		if _, err := rawtx.Decode(raw); err != nil {
			t.Errorf("%s (%d bytes): %v", name, len(raw), err)
		}
	}
}
