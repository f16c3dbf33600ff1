package service_test

import (
	"testing"
	"time"

	"noncegate/nonce/memstore"
)

// storeAway is a store that is out of reach.
func storeAway(memstore.Call) error { return away }

// TestAShipmentByHandDoesNotProlongTheGrant, which it does not write either.
func TestAShipmentByHandDoesNotProlongTheGrant(t *testing.T) {
	inLogs(t, func(l *logged) {
		n, _ := l.start("a")
		l.on(n)
		left := func() time.Duration { return n.Engine().Here[0].Grant }
		l.await(time.Minute, "some of the grant is over", func() bool { return left() < logGrant*8/10 })
		before := left()
		n.Ship()
		if after := left(); after > before {
			t.Errorf("%v of the grant was left, and then %v", before, after)
		}
	})
}
