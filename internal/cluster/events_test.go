package cluster

import (
	"fmt"
	"testing"
	"testing/synctest"

	"noncegate/wire"
)

// want makes clients want the events of signers, or all when none is named.
func (w *world) want(signers ...string) {
	w.InterestChanged(func() (bool, []string) { return len(signers) == 0, signers })
}

func (w *world) wantNothing() { w.InterestChanged(func() (bool, []string) { return false, nil }) }

func tellOf(f *far, subscription, signer string, n int64, more string) {
	f.T.Helper()
	f.Send(`{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":%q,"result":`+
		`{"type":"allocated","signer":%q,"nonce":%d,"attempt":1,"version":%d,"at":"2026-11-20T18:00:00.000Z"%s}}}`,
		subscription, signer, n, n, more)
}

// subscribed is a story whose link to node "a" has the subscription "one" to all.
func subscribedStory(t *testing.T, story func(t *testing.T, w *world, f *far)) {
	t.Helper()
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.want()
		f.Answer(f.Next(wire.MethodSubscribe), "one")
		synctest.Wait()
		story(t, w, f)
	})
}

func TestWhoWantsVeryManySignersSubscribesToAll(t *testing.T) {
	for name, c := range map[string]struct{ signers, bytes int }{"many": {1025, 8}, "long": {1000, 60}} {
		linked(t, Config{}, func(t *testing.T, w *world, f *far) {
			var signers []string
			for i := range c.signers {
				signers = append(signers, fmt.Sprintf("%0*d", c.bytes, i))
			}
			w.want(signers...)
			if r := f.Next(wire.MethodSubscribe); string(r.Params) != `{}` {
				t.Errorf("%s: %d bytes of params", name, len(r.Params))
			}
		})
	}
}

func TestMoreThanCanBeToldApartIsALossAndNoLeak(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		w.want("s")
		f.Answer(f.Next(wire.MethodSubscribe), "two")
		for n := range int64(maxSeen + 10) {
			tellOf(f, "one", "s", n, "")
		}
		tellOf(f, "two", "s", maxSeen+20, "")
		synctest.Wait()
		w.sink.mu.Lock()
		defer w.sink.mu.Unlock()
		if len(w.sink.events) != maxSeen+1 || w.sink.lost != 1 {
			t.Errorf("%d events and %d losses", len(w.sink.events), w.sink.lost)
		}
	})
}
