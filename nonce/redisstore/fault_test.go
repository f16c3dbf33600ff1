//go:build unix

package redisstore_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/pgtest"
	"noncegate/internal/redistest"
	"noncegate/nonce"
)

// own is a server of this test's own, which it may ruin, and a client.
func own(t *testing.T, settings ...string) (*redistest.Server, *redis.Client) {
	t.Helper()
	s, err := redistest.Start(settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { do(t, s.Close) })
	return s, connect(t, s.URL())
}

func connect(t *testing.T, address string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { client.Close() })
	return client
}

func do(t *testing.T, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Fatal(err)
	}
}

// allLost checks that a signer is lost for whoever asks.
func allLost(t *testing.T, b *bench) {
	t.Helper()
	if s := b.read(nonce.Need{}); s.Verdict != nonce.FastLost || s.Exists {
		t.Errorf("it reads %+v", s)
	}
	if s := b.takeOver(b.belief.Token+1, nonce.Need{}); s.Verdict != nonce.FastLost || s.Exists {
		t.Errorf("the take-over reads %+v", s)
	}
	b.is(b.try(b.allocate(1, time.Minute)), nonce.FastLost)
	check := b.change()
	check.Check = true
	b.is(b.try(check), nonce.FastLost)
}

func TestAnEmptiedServerIsALoss(t *testing.T) {
	b := seeded(t, server.Client(t))
	b.commit(b.allocate(1, time.Minute))
	do(t, b.client.FlushAll(testContext(t)).Err)
	allLost(t, b)
}

func TestARestartIsALossWhateverWasKept(t *testing.T) {
	s, client := own(t, "appendfsync always")
	b := seeded(t, client)
	b.commit(b.allocate(1, time.Minute))
	do(t, s.Restart)
	allLost(t, b)
	do(t, s.Kill)
	do(t, s.Restart)
	allLost(t, b)
}

func TestAServerThatWasSetBackIsALossEvenIfItIsAccepted(t *testing.T) {
	s, client := own(t, "appendfsync always")
	b := seeded(t, client)
	b.commit(b.allocate(1, time.Minute))
	do(t, s.Stop)
	files, kept := filepath.Join(s.Dir(), "appendonlydir"), filepath.Join(s.Dir(), "kept")
	run(t, "cp", "-a", files, kept)
	do(t, s.Restart)
	b.accept()
	b.commit(b.allocate(1, time.Minute))
	b.commit(b.allocate(1, time.Minute))
	do(t, s.Stop)
	run(t, "rm", "-r", files)
	run(t, "mv", kept, files)
	do(t, s.Restart)
	allLost(t, b)
	b.accept()
	allLost(t, b)
}

// accept believes the server that answers now.
func (b *bench) accept() {
	b.t.Helper()
	servers, err := b.store.Identities(testContext(b.t))
	if err != nil {
		b.t.Fatal(err)
	}
	b.belief.Identity = servers[0].Identity
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

func TestAPromotedServerIsALoss(t *testing.T) {
	_, client := own(t)
	b := seeded(t, client)
	ctx := testContext(t)
	do(t, client.ReplicaOf(ctx, "127.0.0.1", "1").Err)
	// It may not write, and is still the one believed.
	b.is(b.try(b.allocate(1, time.Minute)), nonce.FastNotSent)
	if s := b.read(nonce.Need{}); s.Verdict != nonce.FastDone {
		t.Errorf("a read of it: %d, %v", s.Verdict, s.Err)
	}
	do(t, client.ReplicaOf(ctx, "NO", "ONE").Err)
	allLost(t, b)
}

func TestWithoutMemoryNothingIsWrittenAndEventsStillLeave(t *testing.T) {
	_, client := own(t)
	b := seeded(t, client)
	b.commit(b.allocate(2, time.Minute))
	b.commit(b.mark(0, nonce.Consumed))
	ctx := testContext(t)
	do(t, client.ConfigSet(ctx, "maxmemory", "1").Err)
	before := dump(t, client)
	b.is(b.try(b.allocate(1, time.Minute)), nonce.FastNotSent)
	b.piece(pieces(b)[0], nonce.FastNotSent)
	same(t, dump(t, client), before)
	if s := b.read(nonce.Need{}); s.Verdict != nonce.FastDone {
		t.Errorf("a read: %d, %v", s.Verdict, s.Err)
	}
	b.flush()
	if n := len(b.events()); n != 0 {
		t.Errorf("%d events are left", n)
	}
	do(t, client.ConfigSet(ctx, "maxmemory", "0").Err)
	b.commit(b.allocate(1, time.Minute))
}

func TestAForgottenScriptIsLoadedAgain(t *testing.T) {
	b := seeded(t, server.Client(t))
	do(t, b.client.ScriptFlush(testContext(t)).Err)
	c := b.allocate(1, time.Minute)
	next := c
	next.Version++
	next.Next++
	next.Held++
	next.Rows = []nonce.RowChange{{Nonce: 1, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: time.Minute}}
	stale := next // and what is refused stays refused
	for i, r := range b.store.Mirror(testContext(t), b.now, []nonce.FastChange{c, next, stale}) {
		want := nonce.FastDone
		if i == 2 {
			want = nonce.FastLost
		}
		b.is(r, want)
	}
	if s := b.takeOver(6, nonce.Need{}); s.Version != 12 || s.Held != 2 {
		t.Errorf("it reads %+v", s)
	}
}

func TestASilentServerLeavesItOpenAndATakeOverSettlesIt(t *testing.T) {
	s, client := own(t)
	b := seeded(t, client) // its connection is open
	do(t, s.Pause)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	c := b.allocate(1, time.Minute)
	b.is(b.store.Commit(ctx, b.now, []nonce.FastChange{c})[0], nonce.FastUnknown)
	do(t, s.Resume)
	snap := b.takeOver(6, nonce.Need{Nonces: []int64{0}})
	if snap.Verdict != nonce.FastDone || snap.Version != 10+int64(len(snap.Rows)) {
		t.Fatalf("it reads %+v", snap)
	}
	b.is(b.try(c), nonce.FastFenced)
	b.belief.Token, b.belief.Version, b.next, b.held = 6, snap.Version, snap.Next, snap.Held
	b.commit(b.allocate(1, time.Minute))
}

func TestWhatNeverLeftThisProcessWasNotSent(t *testing.T) {
	s, client := own(t)
	b := seeded(t, client)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.is(b.store.Commit(ctx, b.now, []nonce.FastChange{b.allocate(1, time.Minute)})[0], nonce.FastNotSent)
	do(t, s.Kill)
	b.is(b.try(b.allocate(1, time.Minute)), nonce.FastNotSent)
	if snap := b.takeOver(6, nonce.Need{}); snap.Verdict != nonce.FastNotSent {
		t.Errorf("a take-over: %d, %v", snap.Verdict, snap.Err)
	}
	if _, res := b.store.Seed(testContext(t), pieces(b)[0]); res.Verdict != nonce.FastNotSent {
		t.Errorf("a copy: %d, %v", res.Verdict, res.Err)
	}
	if _, _, err := b.store.Events(testContext(t), 0, 1, 0, nil); err == nil {
		t.Error("events of a dead server")
	}
	do(t, s.Restart)
	do(t, s.Pause) // it takes the connection and never says hello
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	b.is(b.store.Commit(short, b.now, []nonce.FastChange{b.allocate(1, time.Minute)})[0], nonce.FastNotSent)
}

func TestACommitThatArrivesAfterATakeOverIsRefused(t *testing.T) {
	s, direct := own(t)
	proxy, err := pgtest.NewProxy(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	address, err := proxy.URL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	b := seeded(t, connect(t, address))
	b.commit(b.allocate(1, time.Minute)) // the script is known
	behind, straight := b.store, open(t, direct)
	b.store = straight
	if snap := b.takeOver(4, nonce.Need{}); snap.Verdict != nonce.FastFenced { // and so is that of a take-over
		t.Fatalf("a token before reads %+v", snap)
	}
	b.store = behind
	ctx, before := testContext(t), scripts(t, direct)
	proxy.DelayRequest("evalsha", 300*time.Millisecond)
	c := b.allocate(1, time.Minute)
	b.is(b.try(c), nonce.FastUnknown) // the connection is cut when all was written
	b.store = straight
	if snap := b.takeOver(6, nonce.Need{}); snap.Verdict != nonce.FastDone || snap.Version != 11 {
		t.Fatalf("it reads %+v", snap)
	}
	for scripts(t, direct) < before+2 { // until it arrives, beside the take-over
		if ctx.Err() != nil {
			t.Fatal("the late commit never came")
		}
	}
	b.belief.Token = 6
	if snap := b.read(nonce.Need{}); snap.Verdict != nonce.FastDone || snap.Version != 11 || snap.Held != 1 {
		t.Errorf("after the late commit it reads %+v", snap)
	}
}

// scripts is how many scripts the server has run.
func scripts(t *testing.T, client *redis.Client) int {
	t.Helper()
	text, err := client.Info(testContext(t), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "cmdstat_evalsha:calls=")
	digits, _, _ := strings.Cut(rest, ",")
	count, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatalf("commandstats has no count of scripts: %v", err)
	}
	return count
}

func TestAProbeNamesTheServerThatMayNotWrite(t *testing.T) {
	_, client := own(t)
	store := open(t, client)
	ctx := testContext(t)
	servers, err := store.Probe(ctx)
	if err != nil || len(servers) != 1 || len(servers[0].Shards) != store.Shards() || servers[0].Took <= 0 || servers[0].Identity.RunID == "" {
		t.Fatalf("servers %+v, %v", servers, err)
	}
	if left := dump(t, client); len(left) != 0 {
		t.Errorf("keys %v are left", left)
	}
	do(t, client.Do(ctx, "acl", "setuser", "default", "-zadd").Err)
	if servers, err = store.Probe(ctx); err == nil {
		t.Errorf("without ZADD: %+v", servers)
	}
}

func TestWhatReliedOnAForgottenScriptIsTriedAgain(t *testing.T) {
	b := seeded(t, server.Client(t))
	do(t, b.client.ScriptFlush(testContext(t)).Err)
	check := b.change()
	check.Check = true
	b.is(b.try(check), nonce.FastDone) // that script is known again, the other is not
	c := b.allocate(1, time.Minute)
	check.Version++
	for _, r := range b.store.Mirror(testContext(t), b.now, []nonce.FastChange{c, check}) {
		b.is(r, nonce.FastDone)
	}
}
