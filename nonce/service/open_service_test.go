package service_test

import (
	"fmt"
	"noncegate/nonce/noncetest"
	"sync"
	"sync/atomic"
	"testing"
)

// askedOf is an allocate of principal 7, who may have so many open holds.
func askedOf(most int, signer string) *noncetest.Op {
	op := asked(7, signer)
	op.MaxOpen = most
	return op
}

func TestHandOutsOfSeveralWorkersAtOnceDoNotPassThePrincipalsLimit(t *testing.T) {
	n := start(t, newDisk(), "a", workers(4), slots(1000))
	var got atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if n.do(askedOf(5, fmt.Sprint("s", i))) == "0#1" {
				got.Add(1)
			}
		})
	}
	if wg.Wait(); got.Load() != 5 {
		t.Errorf("%d were handed out, want 5", got.Load())
	}
}
