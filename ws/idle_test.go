package ws

import (
	"bytes"
	"runtime"
	"slices"
	"testing"

	"noncegate/test/lab/wait"
)

// A connection that has nothing to say keeps the stack of the goroutine that waits, whatever it
// sent before and however that was cut.
func TestAnIdleConnectionHasOnlyTheGoroutineThatWaits(t *testing.T) {
	h := startRaw(t)
	all := slices.Concat(probe("a"), frame(fin|opPing, "p"), frame(opText, status0[:10]), frame(fin|opPing, "q"),
		frame(fin|opContinuation, status0[10:]), frame(fin|opPong, ""), probe("b"))
	for cut := range all {
		r := h.connect(t)
		r.upgrade()
		r.write(all[:cut], all[cut:])
		r.want(opText, `"id":"b"`)
		onlyWaits(t, "of what served the frames")
		if cut%10 == 0 { // what an idle peer sends
			r.write(frame(fin|opPong, "beat"), frame(fin|opPing, "again"))
			r.want(opPong, "again")
			onlyWaits(t, "of what took the pings")
		}
		if got := r.outcome(served); got != served {
			t.Errorf("cut at %d, and a request behind it: %s", cut, got)
		}
		must(t, r.Close())
		h.settle(t)
	}
}

func onlyWaits(t *testing.T, what string) {
	t.Helper()
	wait.Until(t, "the end "+what, func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("ws.(*conn).serve(")) && bytes.Contains(stacks, []byte("ws.(*conn).read("))
	})
}
