package redislog

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/redisdb"
	"noncegate/nonce"
	"noncegate/test/lab/redistest"
)

func open(t testing.TB, url, place string) *Log {
	t.Helper()
	db, err := redisdb.Open(t.Context(), url, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	l, err := Open(t.Context(), db.Client(), place)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// one is a log of its own of the server that all tests share, which is emptied after the test.
func one(t testing.TB) (*Log, *redis.Client) {
	t.Helper()
	c := server.Client(t)
	return open(t, server.URL(), "db"), c
}

func begun(t testing.TB, l *Log, shard int, token int64) nonce.LogFence {
	t.Helper()
	f, err := l.Begin(t.Context(), shard, token)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func record(f nonce.LogFence, name string) *nonce.LogRecord {
	return &nonce.LogRecord{Shard: f.Shard, Token: f.Token, Seq: f.Head + 1, Changes: []nonce.LogChange{{Name: name, Version: f.Head + 1}}}
}

// add appends a record, and moves the fence on if it was taken.
func add(t testing.TB, l *Log, f *nonce.LogFence) error {
	t.Helper()
	err := l.Append(t.Context(), []nonce.LogAppend{{Fence: *f, Record: record(*f, "s")}})[0]
	if err == nil {
		f.Head++
	}
	return err
}

func added(t testing.TB, l *Log, f *nonce.LogFence) {
	t.Helper()
	if err := add(t, l, f); err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// entered takes a log over.
func entered(t testing.TB, l *Log, f nonce.LogFence, token, shipped int64) (nonce.LogFence, []nonce.LogRecord, error) {
	t.Helper()
	f.Token, f.Try, f.Head = token, 0, shipped
	return l.Enter(t.Context(), f)
}

func TestARecordIsAddedUnderTheFenceThatIsBelieved(t *testing.T) {
	l, _ := one(t)
	f := begun(t, l, 0, 5)
	added(t, l, &f)
	added(t, l, &f)
	for name, wrong := range map[string]func(*nonce.LogFence){
		"the head": func(f *nonce.LogFence) { f.Head-- }, "the try": func(f *nonce.LogFence) { f.Try++ }, "a higher token": func(f *nonce.LogFence) { f.Token++ },
	} {
		other := f
		wrong(&other)
		if err := add(t, l, &other); !errors.Is(err, nonce.ErrLogLost) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	older := f
	older.Token--
	is(t, add(t, l, &older), nonce.ErrLogFenced)
	_, records, err := entered(t, l, f, 6, 0)
	if err != nil || len(records) != 2 {
		t.Errorf("got %+v, %v", records, err)
	}
}

func TestOneCallAddsToSeveralLogsAndOnlyCompares(t *testing.T) {
	l, _ := one(t)
	a, b, c := begun(t, l, 0, 5), begun(t, l, 1, 5), begun(t, l, 2, 5)
	b.Head = 3
	errs := l.Append(t.Context(), []nonce.LogAppend{{Fence: a, Record: record(a, "s")}, {Fence: b, Record: record(b, "s")}, {Fence: c}})
	if errs[0] != nil || errs[2] != nil {
		t.Errorf("got %v", errs)
	}
	is(t, errs[1], nonce.ErrLogLost)
	if f, records, err := entered(t, l, c, 6, 0); err != nil || f.Head != 0 || len(records) != 0 {
		t.Errorf("got %+v, %v, %v", f, records, err)
	}
}

func TestAHigherTryRefusesWhatIsLate(t *testing.T) {
	l, _ := one(t)
	f := begun(t, l, 0, 5)
	added(t, l, &f)
	after, err := l.Raise(t.Context(), f)
	if err != nil || after.Try != f.Try+1 || after.Head != 1 {
		t.Fatalf("got %+v, %v", after, err)
	}
	is(t, add(t, l, &f), nonce.ErrLogLost)
	if again, err := l.Raise(t.Context(), f); err != nil || again.Try != after.Try {
		t.Errorf("the same raise once more, and late: %+v, %v", again, err)
	}
	added(t, l, &after)
	older := after
	older.Token--
	_, err = l.Raise(t.Context(), older)
	is(t, err, nonce.ErrLogFenced)
}

func TestAnotherServerIsNotTheOneThatWasAccepted(t *testing.T) {
	l, _ := one(t)
	f := begun(t, l, 0, 5)
	f.Identity = "another/one"
	is(t, add(t, l, &f), nonce.ErrLogLost)
	_, err := l.Raise(t.Context(), f)
	is(t, err, nonce.ErrLogLost)
	_, _, err = entered(t, l, f, 6, 0)
	is(t, err, nonce.ErrLogLost)
	if is, err := l.Identity(t.Context()); err != nil || is == f.Identity {
		t.Errorf("got %s, %v", is, err)
	}
}

func TestANewOwnerReadsWhatTheOldOneAddedAndRefusesTheRest(t *testing.T) {
	l, _ := one(t)
	f := begun(t, l, 0, 5)
	for range 2*readAtATime + 1 {
		added(t, l, &f)
	}
	after, records, err := entered(t, l, f, 7, 0)
	if err != nil || len(records) != 2*readAtATime+1 || after.Head != f.Head || after.Token != 7 {
		t.Fatalf("got %+v, %d, %v", after, len(records), err)
	}
	is(t, add(t, l, &f), nonce.ErrLogFenced)
	for _, token := range []int64{6, 7} {
		if _, _, err := entered(t, l, f, token, 0); err == nil {
			t.Errorf("token %d is put in again", token)
		}
	}
}

func TestALogThatLacksRecordsIsLost(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, c *redis.Client, keys []string){
		"its keys are gone":    func(t *testing.T, c *redis.Client, _ []string) { c.FlushAll(t.Context()) },
		"its records are gone": func(t *testing.T, c *redis.Client, keys []string) { c.Del(t.Context(), keys[1]) },
		"its fence is gone":    func(t *testing.T, c *redis.Client, keys []string) { c.Del(t.Context(), keys[0]) },
		"its fence is damaged": func(t *testing.T, c *redis.Client, keys []string) { c.Set(t.Context(), keys[0], "5 x", 0) },
		"a record is gone":     func(t *testing.T, c *redis.Client, keys []string) { c.XDel(t.Context(), keys[1], "2-0") },
		"the last one is gone": func(t *testing.T, c *redis.Client, keys []string) { c.XDel(t.Context(), keys[1], "3-0") },
		"more than shipped":    func(t *testing.T, c *redis.Client, keys []string) { c.XTrimMinID(t.Context(), keys[1], "3") },
		"its head is set back": func(t *testing.T, c *redis.Client, keys []string) { c.Set(t.Context(), keys[0], "5 0 0", 0) },
		"a record that is broken": func(t *testing.T, c *redis.Client, keys []string) {
			c.XDel(t.Context(), keys[1], "3-0")
			c.XAdd(t.Context(), &redis.XAddArgs{Stream: keys[1], ID: "4-0", Values: []string{"r", "x"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, c := one(t)
			f := begun(t, l, 0, 5)
			for range 3 {
				added(t, l, &f)
			}
			do(t, c, l.keys(0))
			_, _, err := entered(t, l, f, 6, 1)
			is(t, err, nonce.ErrLogLost)
		})
	}
}

func TestWhatWasShippedIsTrimmedByTheOwnerOnly(t *testing.T) {
	l, c := one(t)
	f := begun(t, l, 0, 5)
	for range 3 {
		added(t, l, &f)
	}
	old := f
	old.Token--
	trim := f
	trim.Head = 2
	for _, step := range []struct {
		of   nonce.LogFence
		left int64
	}{{old, 3}, {trim, 1}} {
		if err := l.Trim(t.Context(), []nonce.LogFence{step.of}); err != nil {
			t.Fatal(err)
		}
		if n := c.XLen(t.Context(), l.keys(0)[1]).Val(); n != step.left {
			t.Errorf("%d are left, want %d", n, step.left)
		}
	}
	if _, records, err := entered(t, l, f, 6, 2); err != nil || len(records) != 1 {
		t.Errorf("got %v, %v", records, err)
	}
}

func TestALogIsBegunUnderAHigherTokenOnly(t *testing.T) {
	l, _ := one(t)
	f := begun(t, l, 0, 5)
	added(t, l, &f)
	for _, token := range []int64{4, 5} {
		_, err := l.Begin(t.Context(), 0, token)
		is(t, err, nonce.ErrLogFenced)
	}
	f = begun(t, l, 0, 6)
	added(t, l, &f)
	if _, records, err := entered(t, l, f, 7, 0); err != nil || len(records) != 1 {
		t.Errorf("got %v, %v", records, err)
	}
}

// TestAServerThatIsFullTakesNoRecord: and all else goes on, so that it can be taken over, and
// what was shipped be taken out.
func TestAServerThatIsFullTakesNoRecord(t *testing.T) {
	full, err := redistest.Start("maxmemory 3mb")
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	l := open(t, full.URL(), "db")
	f := begun(t, l, 0, 5)
	fill := record(f, strings.Repeat("x", 100_000))
	for range 100 {
		if err = l.Append(t.Context(), []nonce.LogAppend{{Fence: f, Record: fill}})[0]; err != nil {
			break
		}
		f.Head++
		fill = record(f, strings.Repeat("x", 100_000))
	}
	if err == nil || nonce.OutcomeOf(err) != nonce.NotSent || !errors.Is(err, nonce.ErrLogFull) {
		t.Fatalf("got %v", err)
	}
	if err := l.Append(t.Context(), []nonce.LogAppend{{Fence: f}})[0]; err != nil {
		t.Errorf("comparing: %v", err)
	}
	l = open(t, full.URL(), "db") // a gateway that starts now
	after, err := l.Raise(t.Context(), f)
	if err != nil || after.Head != f.Head {
		t.Errorf("got %+v, %v", after, err)
	}
	after, records, err := entered(t, l, f, 6, 0)
	if err != nil || len(records) != int(f.Head) {
		t.Fatalf("got %d records, %v; want %d", len(records), err, f.Head)
	}
	begun(t, l, 1, 5) // of another shard
	if err := l.Trim(t.Context(), []nonce.LogFence{after}); err != nil {
		t.Fatal(err)
	}
	added(t, l, &after)
}

func TestAPausedServerLeavesItUnknown(t *testing.T) {
	own, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	l := open(t, own.URL(), "db")
	f := begun(t, l, 0, 5)
	if err := own.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err = l.Append(ctx, []nonce.LogAppend{{Fence: f, Record: record(f, "s")}})[0]
	if err == nil || nonce.OutcomeOf(err) != nonce.Unknown {
		t.Errorf("got %v", err)
	}
	if err := own.Resume(); err != nil {
		t.Fatal(err)
	}
	after, err := l.Raise(t.Context(), f)
	if err != nil || after.Head > 1 {
		t.Fatalf("got %+v, %v", after, err)
	}
	is(t, add(t, l, &f), nonce.ErrLogLost)
	added(t, l, &after)
}

func TestARestartOfTheServerIsSeen(t *testing.T) {
	own, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	l := open(t, own.URL(), "db")
	f := begun(t, l, 0, 5)
	added(t, l, &f)
	if err := own.Restart(); err != nil {
		t.Fatal(err)
	}
	var said error
	for range 50 { // connections of before the restart break first
		if said = add(t, l, &f); nonce.OutcomeOf(said) != nonce.Unknown || errors.Is(said, nonce.ErrLogLost) {
			break
		}
	}
	is(t, said, nonce.ErrLogLost)
}

func TestTheLogsOfAnotherDatabaseAreRefused(t *testing.T) {
	one(t)
	db, err := redisdb.Open(t.Context(), server.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := Open(t.Context(), db.Client(), "another"); err == nil || !strings.Contains(err.Error(), "keeps the logs of another database") {
		t.Errorf("got %v", err)
	}
}
