package service_test

import (
	"context"
	"errors"
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

func TestAStopWhoseTimeIsOverKnowsThatAllIsQuiet(t *testing.T) {
	n := start(t, newDisk(), "a")
	n.Stop()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select would choose either
		if err := n.Service.Stop(over); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAMoveThatWasNotSentSaysSo: the nodes could not be read, or the service has stopped.
func TestAMoveThatWasNotSentSaysSo(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	d.onBefore(func(c memstore.Call) error {
		if c.Op == memstore.OpOwners {
			return errCut
		}
		return nil
	})
	if _, err := n.Move(t.Context(), 0, "a"); nonce.OutcomeOf(err) != nonce.NotSent {
		t.Errorf("without the nodes: %v", err)
	}
	d.onBefore(nil)
	n.Stop()
	if _, err := n.Move(t.Context(), 0, "a"); nonce.OutcomeOf(err) != nonce.NotSent || !errors.Is(err, nonce.ErrDraining) {
		t.Errorf("after Stop: %v", err)
	}
}
