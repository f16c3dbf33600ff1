package service_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// waking is a connection that counts how often it is woken, and for how many
// answers.
type waking struct {
	answers int
	wakes   []int
	done    sync.WaitGroup
}

func (w *waking) Gone() bool { return false }
func (w *waking) Done(*nonce.Result) nonce.Waker {
	w.answers++
	return w
}
func (w *waking) Wake() {
	w.wakes = append(w.wakes, w.answers)
	w.done.Add(-w.answers)
	w.answers = 0
}

func TestAConnectionIsWokenOnceForAllItsAnswersOfACommit(t *testing.T) {
	n := start(t, newDisk(), "a")
	began, open := n.disk.holdCommit("plug")
	plug := n.send(allocate("plug"))
	<-began
	w := &waking{}
	w.done.Add(3)
	for _, name := range []string{"x", "y", "x"} {
		slot, _ := n.Reserve(name, 0)
		op := allocate(name)
		n.Submit(&slot, &op.Request, &op.Result, w)
	}
	open()
	plug[0].wait()
	w.done.Wait()
	if want := []int{3}; !slices.Equal(w.wakes, want) {
		t.Errorf("woken for %v answers, want %v", w.wakes, want)
	}
}

func TestAStoreThatRefusesEveryTransactionOfModeBasicIsSaidToRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", basicMode)
		refusal := errors.New("relation does not exist")
		n.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpLocked {
				return &nonce.StoreError{Outcome: nonce.Aborted, Err: refusal}
			}
			return nil
		})
		err := n.Do(t.Context(), allocate(signer))
		if e, ok := errors.AsType[*nonce.UnavailableError](err); !ok || e.Outcome != nonce.Aborted || !errors.Is(err, refusal) {
			t.Errorf("got %v, want that the store refused it", err)
		}
	})
}
