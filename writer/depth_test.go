package writer

import (
	"testing"

	"noncegate/encodepool"
)

func TestTheDepthFollowsAMessageFromItsPromiseToItsWrite(t *testing.T) {
	cfg, pool := testConfig(), newManualPool(10)
	q := New(newMemorySocket(), pool, cfg)
	const size = 100
	step := func(when string, want Depth) {
		t.Helper()
		if got := q.Depth(); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	step("new", Depth{})
	if got := q.Reserve(size); got != Granted {
		t.Fatal(got)
	}
	step("promised", Depth{Promised: size + encodepool.MaxHeader, Messages: 1})
	q.Push(sized(size), size)
	step("queued", Depth{Bytes: size + encodepool.MaxHeader, Messages: 1})
	q.Wake()
	pool.runAll()
	end(t, q)
	step("ended", Depth{})
}
