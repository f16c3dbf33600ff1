package rawtx_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"noncegate/chain/ethereum/rawtx"
	"noncegate/test/lab/expect"
)

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
	high = "\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
		"\x5d\x57\x6e\x73\x57\xa4\x50\x1d\xdf\xe9\x2f\x46\x68\x1b\x20\xa1"
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
	type refusal struct {
		name     string
		raw      []byte
		sentence string
	}
	all := []refusal{
		{"too large", make([]byte, rawtx.MaxSize+1), "transaction has type 0: types 1 to 4, and legacy without a type byte, are known"},
		{"too large legacy", sized(0, 5, rawtx.MaxSize+1), "transaction has 131073 bytes; of type 0, 131072 at most are taken"},
		{"too large type 2", sized(2, 7, rawtx.MaxSize+1), "transaction has 131073 bytes; of type 2, 131072 at most are taken"},
		{"too large blob", append([]byte{3}, make([]byte, rawtx.MaxBlobSize)...),
			"transaction has 1048577 bytes; of type 3, 1048576 at most are taken"},
		{"too large without sidecar", sized(3, 7, rawtx.MaxSize+1), "transaction has 131073 bytes without a sidecar, 131072 at most are taken"},
		{"too large within a sidecar", wrapped(sized(3, 7, rawtx.MaxSize+1), list{}),
			"transaction has 131073 bytes without a sidecar, 131072 at most are taken"},
		{"more authorizations than gas", with(4, 9, auths(rawtx.MaxAuthorizations+1)),
			"authorizationList must have 671 authorizations at most: more need more gas than a transaction can have (EIP-7825)"},
		{"sidecar version 2", wrapped(typed(3, plain(3)), list{2, blobs(1), pieces(1), pieces(128)}),
			"sidecar.version must be 1 (EIP-7594); version 0 is written without one"},
		{"sidecar version 0, written", wrapped(typed(3, plain(3)), list{0, blobs(1), pieces(1), pieces(1)}),
			"sidecar.version must be 1 (EIP-7594); version 0 is written without one"},
		{"a blob too many", wrapped(typed(3, plain(3)), list{blobs(2), pieces(1), pieces(1)}),
			"sidecar.blobs must be 1 for the blobs that the transaction names, are 2"},
		{"a short blob", wrapped(typed(3, plain(3)), list{list{make([]byte, 131071)}, pieces(1), pieces(1)}),
			"sidecar.blobs[0] must be 131072 bytes, has 131071"},
		{"no commitments", wrapped(typed(3, plain(3)), list{blobs(1), list{}, pieces(1)}),
			"sidecar.commitments must be 1 for the blobs that the transaction names, are 0"},
		{"another commitment", wrapped(typed(3, plain(3)), list{blobs(1), list{strings.Repeat("d", 48)}, pieces(1)}),
			"sidecar.commitments must have the hashes that the transaction names, number 0 has another"},
		{"a proof too many", wrapped(typed(3, plain(3)), list{blobs(1), pieces(1), pieces(2)}),
			"sidecar.proofs must be 1 for the blobs that the transaction names, are 2"},
		{"cell proofs in version 0", wrapped(typed(3, plain(3)), list{blobs(1), pieces(1), pieces(128)}),
			"sidecar.proofs must be 1 for the blobs that the transaction names, are 128"},
		{"one proof in version 1", wrapped(typed(3, plain(3)), list{1, blobs(1), pieces(1), pieces(1)}),
			"sidecar.proofs must be 128 for the blobs that the transaction names, are 1"},
		{"a short proof", wrapped(typed(3, plain(3)), list{blobs(1), pieces(1), list{commitment[1:]}}),
			"sidecar.proofs[0] must be 48 bytes, has 47"},
		{"an unsigned one in a wrapper", wrapped(typed(3, plain(3)[:11]), list{blobs(1), pieces(1), pieces(1)}),
			"transaction is not signed: it ends after 11 fields, before yParity, r and s"},
	}
	data, err := os.ReadFile("testdata/refusals.tsv")
	expect.Must(t, err)
	for line := range strings.Lines(string(data)) {
		if row := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(row) == 3 {
			all = append(all, refusal{row[0], unhex(t, row[2]), row[1]})
		}
	}
	if len(all) < 100 {
		t.Errorf("only %d rows", len(all))
	}
	for _, c := range all {
		tx, err := rawtx.Decode(c.raw)
		if tx != nil || err == nil || err.Error() != c.sentence {
			t.Errorf("%s: got %+v\n%v\nwant %s", c.name, tx, err, c.sentence)
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

// What Decode allocates is bounded by what it was given, whatever lengths are written
// in it, and however many small items there are.
func TestMemoryIsInProportionToTheInput(t *testing.T) {
	const perByte = 64                                          // bytes for each byte given, and a little for errors
	if _, err := rawtx.Decode(named(t, "legacy")); err != nil { // makes the curve's tables
		t.Fatal(err)
	}
	deep := bytes.Repeat([]byte{0xc1}, rawtx.MaxSize-1)
	keys := make(list, 60_000)
	for i := range keys {
		keys[i] = ""
	}
	for name, raw := range map[string][]byte{
		"lengths of 2^64-1": append([]byte{2, 0xff}, bytes.Repeat([]byte{0xff}, 100)...),
		"lists in lists":    append([]byte{2}, deep...),
		"empty accesses":    with(2, 8, list(append(list{}, keys...))),
		"keys":              with(2, 8, list{list{to, keys}}),
		"authorizations":    with(4, 9, auths(rawtx.MaxAuthorizations)),
		"blob hashes":       with(3, 10, list{encoded(bytes.Repeat(rlp(blobHash()), 3000))}),
		"a sidecar":         wrapped(typed(3, plain(3)), list{blobs(1), pieces(1), pieces(1)}),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = rawtx.Decode(raw) // taken or refused, it must not cost more
		runtime.ReadMemStats(&after)
		if got, bound := after.TotalAlloc-before.TotalAlloc, uint64(perByte*len(raw)+10_000); got > bound {
			t.Errorf("%s: %d bytes were allocated for %d", name, got, len(raw))
		}
	}
}
