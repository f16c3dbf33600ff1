package ws

import (
	"testing"

	"noncegate/nonce"
)

func TestEveryKindOfOpIsDescribed(t *testing.T) {
	for k := nonce.KindAllocate; k.String() != nonce.Kind(0).String(); k++ {
		if int(k) >= len(kinds) {
			t.Fatalf("%s is not described", k)
		}
		if row := kinds[k]; row.right == 0 || row.bytes == nil || row.result == nil || row.reads != (row.audited == nil) {
			t.Errorf("%s is described by halves: %+v", k, row)
		}
	}
}
