package nonce

import (
	"cmp"
	"slices"
	"time"
)

// heldRow is a remembered HELD row. No pointers: there may be a million.
type heldRow struct {
	nonce, attempt, deadlineMicros int64
	holder                         Principal
}

// holds are some of a signer's HELD rows, in order of nonce. New nonces come at
// the end, so that to remember one is to append.
type holds []heldRow

func (h holds) search(n int64) (int, bool) {
	if len(h) == 0 || h[len(h)-1].nonce < n {
		return len(h), false
	}
	return slices.BinarySearchFunc(h, n, func(r heldRow, n int64) int { return cmp.Compare(r.nonce, n) })
}

// row is the HELD row of a nonce, if it is remembered.
func (h holds) row(n int64) (Row, bool) {
	i, ok := h.search(n)
	if !ok {
		return Row{}, false
	}
	return Row{Nonce: n, Status: Held, Attempt: h[i].attempt, HeldUntil: time.UnixMicro(h[i].deadlineMicros), Holder: h[i].holder}, true
}

// put remembers a row, in the place of an older one.
func (h *holds) put(r heldRow) {
	i, ok := h.search(r.nonce)
	if ok {
		(*h)[i] = r
		return
	}
	*h = slices.Insert(*h, i, r)
}

// drop forgets a nonce.
func (h *holds) drop(n int64) {
	if i, ok := h.search(n); ok {
		*h = slices.Delete(*h, i, i+1)
	}
}

// first is the earliest deadline, 0 without holds.
func (h holds) first() (micros int64) {
	for i := range h {
		if micros == 0 || h[i].deadlineMicros < micros {
			micros = h[i].deadlineMicros
		}
	}
	return micros
}
