package cluster

import (
	"fmt"
	"strings"
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

// A chain can say the same of a nonce again, without a commit between.
func TestWhatAChainSaysTwiceIsTwoEventsAndNewTypesArePassedOn(t *testing.T) {
	subscribedStory(t, func(t *testing.T, w *world, f *far) {
		w.want("s")
		f.Answer(f.Next(wire.MethodSubscribe), "two")
		say := func(subscription, typ, at, more string) {
			f.Send(`{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":%q,"result":`+
				`{"type":%q,"signer":"s","nonce":4,"attempt":1,"version":9,"at":"2026-11-20T18:00:%s.000Z"%s}}}`, subscription, typ, at, more)
		}
		const gap = `,"gap":{"nonce":4,"since":"2026-11-20T18:00:00.000Z","blocked":2}`
		for _, subscription := range []string{"one", "two"} {
			say(subscription, "gap", "01", gap)
			say(subscription, "gapClosed", "02", "")
			say(subscription, "gap", "03", gap)
			say(subscription, "fromLater", "04", `,"more":[1]`)
		}
		f.Answer(f.Next(wire.MethodUnsubscribe), true)
		say("two", "gap", "05", gap+`,"missed":3`)
		synctest.Wait()
		w.sink.mu.Lock()
		defer w.sink.mu.Unlock()
		if len(w.sink.bodies) != 5 || w.sink.lost != 0 {
			t.Fatalf("%d losses, and %q", w.sink.lost, w.sink.bodies)
		}
		for i, want := range []string{gap, `"gapClosed"`, gap, `"more":[1]`, gap} {
			if !strings.Contains(w.sink.bodies[i], want) {
				t.Errorf("event %d is %s, want it to have %s", i, w.sink.bodies[i], want)
			}
		}
	})
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
