package rawtx_test

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"noncegate/chain/ethereum/rawtx"
	"noncegate/test/lab/expect"
)

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

func TestManyGoroutinesDecodeTheSameBytes(t *testing.T) {
	raw := named(t, "set code")
	want, err := rawtx.Decode(raw)
	expect.Must(t, err)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if got, err := rawtx.Decode(raw); err != nil || got.From != want.From || got.Hash != want.Hash {
					t.Errorf("got %+v, %v", got, err)
				}
			}
		})
	}
	all.Wait()
}
