package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestMemoryIsReturnedOnceWhenTheGatewayGoesQuiet(t *testing.T) {
	var u usage
	var freed int
	m := memory{read: func() usage { return u }, free: func() { freed++ }}
	for _, step := range []struct {
		when        string
		alloc, free uint64
		want        int
	}{
		{"at the start there is nothing to return", 10 << 20, 4 << 20, 0},
		{"under load", 400 << 20, 90 << 20, 0},
		{"still under load", 800 << 20, 90 << 20, 0},
		{"quiet", 800<<20 + 1000, 90 << 20, 1},
		{"quiet, and returned already", 800<<20 + 2000, 90 << 20, 1},
		{"a little work, not worth a collection", 806 << 20, 90 << 20, 1},
		{"quiet after it", 806<<20 + 1000, 90 << 20, 1},
		{"work again", 900 << 20, 40 << 20, 1},
		{"quiet, but nothing to return", 900<<20 + 1000, 15 << 20, 1},
		{"quiet", 900<<20 + 2000, 40 << 20, 2},
	} {
		u = usage{allocated: step.alloc, spare: step.free}
		if m.look(); freed != step.want {
			t.Errorf("%s: returned %d times, want %d", step.when, freed, step.want)
		}
	}
}

func TestUsageCountsGarbageAndWhatWasReturned(t *testing.T) {
	const size = 64 << 20
	before := readUsage()
	b := make([]byte, size)
	for i := range b {
		b[i] = 1
	}
	runtime.KeepAlive(b)
	if got := readUsage().allocated - before.allocated; got < size {
		t.Errorf("%d bytes allocated, want at least %d", got, size)
	}
	runtime.GC() // the slice is free memory now, and the system does not have it back
	spare := readUsage().spare
	debug.FreeOSMemory()
	if after := readUsage().spare; spare < size || after > spare-size/2 {
		t.Errorf("%d bytes to spare before the return and %d after it", spare, after)
	}
}
