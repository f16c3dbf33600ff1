//go:build unix

package redisevents

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/redistest"
	"noncegate/test/lab/wait"
)

func TestWhatANodeCommitsComesToTheOthersOnceAndInOrderAndNotToItself(t *testing.T) {
	a, b := begin(t, server.URL(), "order", "a"), begin(t, server.URL(), "order", "b")
	a.asks("x", "y")
	b.asks("x", "y")
	const total = 3000
	var both sync.WaitGroup
	both.Go(func() { a.commits("x", 1, total) })
	both.Go(func() { b.commits("y", 1, total) })
	both.Wait()
	if got := b.has("x", total); len(got) != total || !ascending(got) {
		t.Errorf("b got %d events of x", len(got))
	}
	if got := a.has("y", total); len(got) != total || !ascending(got) {
		t.Errorf("a got %d events of y", len(got))
	}
	if len(a.of("x"))+len(b.of("y")) != 0 || a.missedOf("y")+b.missedOf("x") != 0 {
		t.Error("a node was told of its own commits, or missed some")
	}
	if m := a.p.metrics; m.published.Load() != total || m.failed.Load()+m.dropped.Load() != 0 || !a.p.Well() {
		t.Errorf("%d published, %d failed, %d dropped", m.published.Load(), m.failed.Load(), m.dropped.Load())
	}
}

// TestWhatIsLeftOutRightAfterASubscriptionIsTold: of a node whose channel others have
// needed before, which so has no reason to ask whether somebody does.
func TestWhatIsLeftOutRightAfterASubscriptionIsTold(t *testing.T) {
	a, b, late := begin(t, server.URL(), "late", "a"), begin(t, server.URL(), "late", "b"), begin(t, server.URL(), "late", "c")
	b.asks("x")
	a.commits("x", 1, 1)
	b.has("x", 1)
	late.asks("x")
	a.p.Missed("x", 3)
	a.commits("x", 5, 5)
	late.has("x", 5)
	b.has("x", 5)
	// The event before its subscription may count for the late one, too: it was on its way.
	if n := late.missedOf("x"); n < 3 || n > 4 || b.missedOf("x") != 3 {
		t.Errorf("3 were left out, of which the late one was told %d and the other %d", late.missedOf("x"), b.missedOf("x"))
	}
}

func TestOnlyWhatSomebodyNeedsIsSubscribedTo(t *testing.T) {
	client := server.Client(t)
	b := begin(t, server.URL(), "needs", "b")
	opens := func(want int) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%d channels", want), func() bool {
			open, err := client.PubSubShardChannels(t.Context(), "noncegate:{needs:*").Result()
			return err == nil && len(open) == want
		})
	}
	for _, signers := range [][]string{{"x"}, {"x", "y"}, {"y"}, nil} {
		b.asks(signers...)
		opens(len(signers))
	}
	b.l.InterestChanged(func() (bool, []string) { return true, nil })
	opens(channels)
}

// TestNobodyIsLeftOutWhoWasToldThatHeIsThere: a begins with knowing that nobody
// needs the signer, again and again, and commits as soon as b may tell its client
// that the subscription is there.
func TestNobodyIsLeftOutWhoWasToldThatHeIsThere(t *testing.T) {
	a, b := begin(t, server.URL(), "there", "a"), begin(t, server.URL(), "there", "b")
	for i := range 10 {
		s := fmt.Sprintf("signer-%d", i)
		wait.Until(t, "a to know that nobody needs it", func() bool { return !a.p.Wanted(s) })
		b.asks(s)
		a.commits(s, 1, 1)
		b.has(s, 1)
	}
}

func TestWhatWasDroppedIsToldAlsoIfNothingFollows(t *testing.T) {
	a, b := begin(t, server.URL(), "drop", "a"), begin(t, server.URL(), "drop", "b")
	b.asks("x", "y")
	a.commits("x", 1, 1)
	b.has("x", 1)
	a.p.Missed("x", 3)
	wait.Until(t, "the loss to be told", func() bool { return b.missedOf("x") == 3 })
	if b.missedOf("y") != 0 {
		t.Error("subscribers to another signer were told")
	}
	a.commits("x", 5, 5)
	b.has("x", 5)
	if n := b.missedOf("x"); n != 3 {
		t.Errorf("missed %d, want 3", n)
	}
}

// TestAHungRedisDelaysNobodyAndLosesOnlyWhatItSays: the buffer fills meanwhile.
func TestAHungRedisDelaysNobodyAndLosesOnlyWhatItSays(t *testing.T) {
	a, b := begin(t, server.URL(), "hung", "a"), begin(t, server.URL(), "hung", "b")
	b.asks("x")
	a.commits("x", 1, 10)
	b.has("x", 10)
	expect.Must(t, server.Pause())
	const total = 3 * maxQueued
	a.commits("x", 11, total) // it comes back, and drops what finds no room
	wait.Until(t, "a to notice", func() bool { return !a.p.Well() })
	wait.Until(t, "b to notice", func() bool { return !b.l.Well() && b.missedOf("x") > 0 })
	if waiting, capacity := a.p.Waiting(); waiting > capacity || a.p.metrics.dropped.Load() == 0 {
		t.Errorf("%d wait of %d, and %d are dropped", waiting, capacity, a.p.metrics.dropped.Load())
	}
	expect.Must(t, server.Resume())
	wait.Until(t, "both to be well", func() bool { return a.p.Well() && b.l.Well() })
	a.commits("x", total+1, total+1)
	got := b.has("x", total+1)
	if !ascending(got) {
		t.Errorf("out of order: %v", got)
	}
	if missed := b.missedOf("x"); missed < total+1-int64(len(got)) {
		t.Errorf("%d came of %d, and %d are missed", len(got), total+1, missed)
	}
}

func TestAfterARestartOfRedisEventsGoOnAndTheLossIsTold(t *testing.T) {
	a, b := begin(t, server.URL(), "restart", "a"), begin(t, server.URL(), "restart", "b")
	b.asks("x")
	a.commits("x", 1, 5)
	b.has("x", 5)
	expect.Must(t, server.Kill())
	wait.Until(t, "b to tell", func() bool { return b.missedOf("x") > 0 })
	a.commits("x", 6, 8)
	wait.Until(t, "a to notice", func() bool { return a.p.metrics.failed.Load() >= 3 })
	b.l.Await(t.Context()) // a client that subscribes now is not kept waiting
	before := b.missedOf("x")
	expect.Must(t, server.Restart())
	wait.Until(t, "the loss to be told again", func() bool { return b.missedOf("x") >= before+3 })
	a.commits("x", 9, 9)
	if got := fmt.Sprint(b.has("x", 9)); got != "[1 2 3 4 5 9]" {
		t.Errorf("got %s", got)
	}
}

func TestWhoLeavesIsNoLossAndWhoComesIsHeard(t *testing.T) {
	a, b := begin(t, server.URL(), "come", "a"), begin(t, server.URL(), "come", "b")
	b.asks("x")
	a.commits("x", 1, 100)
	a.end() // what waits is sent first
	b.has("x", 100)
	c := begin(t, server.URL(), "come", "c")
	c.commits("x", 101, 102)
	b.has("x", 102)
	if n := b.missedOf("x"); n != 0 {
		t.Errorf("missed %d", n)
	}
	wait.Until(t, "a to be a node that is silent", func() bool { return b.l.Silent([]string{"a", "c"}) == 1 })
}

func TestWhatOthersPublishIsCountedAndIgnored(t *testing.T) {
	client := server.Client(t)
	a, b := begin(t, server.URL(), "foreign", "a"), begin(t, server.URL(), "foreign", "b")
	b.asks("x")
	name := a.p.names[channelOf("x")]
	for i, text := range []string{"hello", "noncegate1 o n 1\n{", "noncegate1 o n x"} {
		expect.Must(t, client.SPublish(t.Context(), name, text).Err())
		wait.Until(t, "it to be counted", func() bool { return b.l.metrics.garbled.Load() == int64(i+1) })
	}
	a.commits("x", 1, 2)
	b.has("x", 2)
	if n := b.missedOf("x"); n != 0 {
		t.Errorf("missed %d", n)
	}
}

// TestEventsComeByAClusterAlsoWhileItMoves: a slot goes to another server, and later
// a server dies and comes back.
func TestEventsComeByAClusterAlsoWhileItMoves(t *testing.T) {
	c, err := redistest.StartCluster(3)
	expect.Must(t, err)
	t.Cleanup(func() { c.Close() })
	a, b := begin(t, c.URL(), "cluster", "a"), begin(t, c.URL(), "cluster", "b")
	signers := make([]string, 40)
	for i := range signers {
		signers[i] = fmt.Sprint("signer-", i)
	}
	b.asks(signers...)
	version := int64(0)
	// round commits one event of each signer, until all have come once more.
	round := func() {
		t.Helper()
		wait.Until(t, "an event of every signer", func() bool {
			version++
			from := version
			for _, s := range signers {
				a.commits(s, version, version)
			}
			arrived := func() bool {
				for _, s := range signers {
					if got := b.of(s); len(got) == 0 || got[len(got)-1] < from {
						return false
					}
				}
				return true
			}
			for began := time.Now(); time.Since(began) < 500*time.Millisecond; <-time.After(5 * time.Millisecond) {
				if arrived() {
					return true
				}
			}
			return false
		})
	}
	round()
	for _, s := range signers {
		if b.missedOf(s) != 0 || len(b.of(s)) != 1 {
			t.Errorf("%s: %v, missed %d", s, b.of(s), b.missedOf(s))
		}
	}

	moved := signers[0]
	slot, err := a.db.Client().ClusterKeySlot(t.Context(), a.p.names[channelOf(moved)]).Result()
	expect.Must(t, err)
	from, err := c.Owner(t.Context(), int(slot))
	expect.Must(t, err)
	expect.Must(t, c.Move(t.Context(), int(slot), from, (from+1)%3))
	round()
	wait.Until(t, "the loss to be told", func() bool { return b.missedOf(moved) > 0 })

	expect.Must(t, c.Servers[2].Kill())
	wait.Until(t, "both to notice", func() bool { return !b.l.Well() && !a.p.Well() })
	expect.Must(t, c.Servers[2].Restart())
	round()
	wait.Until(t, "both to be well", func() bool { return b.l.Well() && a.p.Well() })
	for _, s := range signers {
		if got := b.of(s); !ascending(got) || int64(len(got))+b.missedOf(s) < version {
			t.Errorf("%s: %v of %d, missed %d", s, got, version, b.missedOf(s))
		}
	}
}
