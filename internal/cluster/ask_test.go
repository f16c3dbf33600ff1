package cluster

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/nonce"
	"noncegate/wire"
)

// TestWhatAnOwnerSaysOfAChainIsAskedForInHalfOfTheSlots: reads never keep what writes from its place, and
// none waits for longer than an op that is forwarded.
func TestWhatAnOwnerSaysOfAChainIsAskedForInHalfOfTheSlots(t *testing.T) {
	linked(t, Config{Queue: 4}, func(t *testing.T, w *world, f *far) {
		ends := make(chan error, 3)
		var said *nonce.ChainSaid
		ask := func() {
			got, err := w.StatusAt("a", "", "s", 0)
			if err == nil {
				said = got
			}
			ends <- err
		}
		go ask()
		first := <-f.Requests
		go ask()
		second := <-f.Requests
		go ask()
		if err := <-ends; !errors.Is(err, nonce.ErrForwardBusy) {
			t.Errorf("the third of four: %v", err)
		}
		w.forward("a", allocation("s"))
		<-f.Requests
		if p := wspeer.Decode[wire.StatusParams](t, second); p.Signer != "s" || second.Method != wire.MethodStatus {
			t.Errorf("the node is asked %+v", second)
		}
		f.Answer(first, wire.StatusResult{Signer: "s", Chain: &wire.ChainStatus{Mined: 3, Gap: &wire.Gap{Nonce: 3}}})
		if err := <-ends; err != nil || said == nil || said.State.Mined != 3 || said.State.Trouble.Nonce != 3 {
			t.Errorf("answered %+v, %v", said, err)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if err := <-ends; !errors.Is(err, errTooLate) {
			t.Errorf("the one that is not answered: %v", err)
		}
	})
}

func TestAnAnswerOfAnotherSignerOrOfNoSenseEndsTheLink(t *testing.T) {
	for name, answer := range map[string]wire.StatusResult{
		"signer": {Signer: "other"},
		"status": {Signer: "s", Chain: &wire.ChainStatus{Stuck: &wire.Gap{Status: "LOST"}}},
		"hash":   {Signer: "s", Chain: &wire.ChainStatus{Dropped: &wire.Gap{TxHash: "0x12"}}},
		"two":    {Signer: "s", Chain: &wire.ChainStatus{Stuck: &wire.Gap{}, Gap: &wire.Gap{}}},
		"nonce":  {Signer: "s", Chain: &wire.ChainStatus{Gap: &wire.Gap{Nonce: -1}}},
	} {
		linked(t, Config{}, func(t *testing.T, w *world, f *far) {
			end := make(chan error, 1)
			go func() {
				_, err := w.StatusAt("a", "", "s", 0)
				end <- err
			}()
			f.Answer(<-f.Requests, answer)
			if err := <-end; !errors.Is(err, errNonsense) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
