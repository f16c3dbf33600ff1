package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/access"
	"noncegate/internal/access/accesstest"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/nonce/storetest"
)

func openShards(t testing.TB, url string, shards int) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, shards, postgres.Config{MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// advance moves the clock of a database on by so many milliseconds from the real one.
func advance(t *testing.T, url string, by int64) {
	t.Helper()
	run(t, url, fmt.Sprintf(
		`CREATE OR REPLACE FUNCTION store_millis() RETURNS bigint LANGUAGE sql VOLATILE AS $$ SELECT %d + (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$`, by))
}

const (
	// rememberNew keeps the clock and the rows of a new database; makeNew brings them back, and no
	// other rows. It deletes: files that TRUNCATE makes are synced, which takes longer than most tests.
	rememberNew = `CREATE SCHEMA new; CREATE TABLE new.clock AS SELECT pg_get_functiondef('store_millis'::regproc) AS text; DO $$ DECLARE t name; BEGIN
		FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
			EXECUTE format('CREATE TABLE new.%1$I AS TABLE public.%1$I', t);
		END LOOP; END $$`
	makeNew = `DO $$ DECLARE t name; n bigint; BEGIN
		EXECUTE (SELECT text FROM new.clock);
		FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'noncegate_migration' AND pg_relation_size(oid) > 0 LOOP
			EXECUTE format('DELETE FROM %1$I', t);
			GET DIAGNOSTICS n = ROW_COUNT;
			EXECUTE format('INSERT INTO %1$I OVERRIDING SYSTEM VALUE TABLE new.%1$I', t);
		END LOOP;
		PERFORM setval(c.oid, 1, false) FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind = 'S' AND relname <> 'noncegate_migration_id_seq'; END $$`
)

// renewed are the URLs of databases of two shards as they were when they were new, which no test uses.
var renewed = make(chan string, 16)

// newShards is a database of two shards that is new, or as good as new: to make it so again takes a
// hundredth of the time of a migration.
func newShards(t *testing.T) (url string) {
	t.Helper()
	select {
	case url = <-renewed:
	default:
		name, err := server.CreateDatabase(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		url = server.URL(name)
		s, err := postgres.Open(t.Context(), url, 2, postgres.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		run(t, url, rememberNew)
	}
	t.Cleanup(func() {
		run(t, url, makeNew)
		select {
		case renewed <- url:
		default:
		}
	})
	return url
}

// run runs a statement also when the test has ended.
func run(t *testing.T, url, statement string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	if err == nil {
		_, err = conn.Exec(ctx, statement)
		_ = conn.Close(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAStoreInShardsKeepsTheRules(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) storetest.Database {
		t.Parallel() // most of their time they wait for the disk
		url := newShards(t)
		ahead := make(chan int64, 1)
		ahead <- 0
		return storetest.Database{
			Open: func(t *testing.T) nonce.Store { return openShards(t, url, 0) },
			Damage: func(t *testing.T, signer string) {
				execute(t, dial(t, url), `UPDATE signer SET live = '\xff' WHERE signer = $1`, signer)
			},
			Advance: func(d time.Duration) {
				by := <-ahead + d.Milliseconds()
				advance(t, url, by)
				ahead <- by
			},
		}
	}
	storetest.Run(t, open)
	t.Run("logs", func(t *testing.T) { storetest.RunLogs(t, open) })
	t.Run("kept", func(t *testing.T) { storetest.RunKept(t, open) })
}

func TestAStoreInShardsKeepsCredentials(t *testing.T) {
	t.Parallel()
	accesstest.Run(t, func(t *testing.T) access.Store {
		t.Parallel()
		return openShards(t, newShards(t), 0)
	})
}

func TestTheNumberOfShardsIsThatOfTheDatabase(t *testing.T) {
	url := server.NewDatabase(t)
	if got := openShards(t, url, 0).Shards(); got != postgres.DefaultShards {
		t.Errorf("got %d", got)
	}
	if got := openShards(t, url, postgres.DefaultShards).Shards(); got != postgres.DefaultShards {
		t.Errorf("got %d", got)
	}
	_, err := postgres.Open(t.Context(), url, 7, postgres.Config{})
	if err == nil || !strings.Contains(err.Error(), "has 32 shards, and 7 are wanted") {
		t.Errorf("got %v", err)
	}
}

func TestADatabaseOfAnotherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	url := server.NewDatabase(t)
	execute(t, dial(t, url), `CREATE TABLE gateway_node (node_id text)`)
	_, err := postgres.Open(t.Context(), url, 0, postgres.Config{})
	if err == nil || !strings.Contains(err.Error(), "its schema is none of this program's; name another database") {
		t.Errorf("got %v", err)
	}
}

// TestAPinDoesNotKeepOthersWaiting: while it waits for the row it has the lock that transactions of
// mode basic want.
func TestAPinDoesNotKeepOthersWaiting(t *testing.T) {
	url, s, _, _ := owned(t)
	besides(t, url, `SELECT 1 FROM shard WHERE shard_id = 0 FOR SHARE`, func() {
		if err := s.Pin(t.Context(), 0, "b"); nonce.OutcomeOf(err) != nonce.Aborted {
			t.Errorf("%v, want that nothing happened, and not for ever", err)
		}
	})
	if err := s.Pin(t.Context(), 0, "b"); err != nil {
		t.Fatal(err)
	}
	all, err := s.Owners(t.Context())
	if err != nil || all.Shards[0].Pinned != "b" || all.Shards[1].Pinned != "" {
		t.Errorf("got %+v, %v", all.Shards, err)
	}
}

// TestLongATransactionOfModeBasicThatStandsStillIsEnded after a second, which it measures: others wait
// for its shard. Other connections may stand still for ten.
func TestLongATransactionOfModeBasicThatStandsStillIsEnded(t *testing.T) {
	t.Parallel()
	url, s, h, writes := owned(t)
	other := openShards(t, url, 0)
	_, err := s.Locked(t.Context(), nonce.SignerNeed{Signer: writes[0].Name}, func(nonce.Loaded) (nonce.Write, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		_, err := other.Acquire(ctx, h, []int{0})
		for ; nonce.OutcomeOf(err) == nonce.Aborted && ctx.Err() == nil; _, err = other.Acquire(ctx, h, []int{0}) {
		}
		if err != nil {
			t.Errorf("the node that wants the shard: %v", err)
		}
		return nonce.Write{Name: writes[0].Name, Signer: nonce.Signer{Version: 1, Next: 1}}, nil
	})
	if err == nil || nonce.OutcomeOf(err) == nonce.Unknown {
		t.Errorf("got %v, want that nothing happened", err)
	}
	if got, err := s.Locked(t.Context(), nonce.SignerNeed{Signer: writes[0].Name}, func(nonce.Loaded) (nonce.Write, error) {
		return nonce.Write{Name: writes[0].Name, Signer: nonce.Signer{Version: 1, Next: 1}}, nil
	}); err != nil || got.Results[0] != nonce.Applied {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
}

// waitsLong returns when a statement has waited for a lock for longer than lock_timeout is else, by
// the database's clock, or has ended before. It may not have ended otherwise.
func waitsLong(t *testing.T, url, statement string, end <-chan error) (err error, ended bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const waits = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1 AND clock_timestamp() - query_start > interval '300 ms'`
	for n := 0; n == 0; {
		if err := conn.QueryRow(t.Context(), waits, statement).Scan(&n); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-end:
			return err, true
		default:
		}
	}
	return nil, false
}

// TestAnAcquireOfOneShardHasPatienceWithModeBasic: one of several has none, because it would keep
// the others meanwhile, and none has any with who has locked the row.
func TestAnAcquireOfOneShardHasPatienceWithModeBasic(t *testing.T) {
	url, s, h, _ := owned(t)
	acquire := func(shards ...int) error {
		got, err := s.Acquire(t.Context(), h, shards)
		if err == nil && !got[0].Taken {
			err = errors.New("it is not taken")
		}
		return err
	}
	givesUp := func(what string, shards ...int) {
		t.Helper()
		if err := acquire(shards...); nonce.OutcomeOf(err) != nonce.Aborted {
			t.Errorf("%s: %v, want that nothing happened, and not for ever", what, err)
		}
	}
	one := make(chan error, 1)
	besides(t, url, `SELECT pg_advisory_xact_lock_shared(`+postgres.ShardLockClass+`, 1)`, func() {
		givesUp("both", 0, 1)
		for tries := 1; ; tries++ { // on a busy machine it may have ended before it is seen
			go func() { one <- acquire(1) }()
			err, ended := waitsLong(t, url, "SELECT pg_advisory_xact_lock(%", one)
			if !ended {
				break
			}
			if tries == 50 {
				t.Fatalf("it did not wait: %v", err)
			}
		}
	})
	if <-one != nil { // the lock was free only when its patience had ended
		if err := acquire(1); err != nil {
			t.Error(err)
		}
	}
	besides(t, url, `SELECT 1 FROM shard WHERE shard_id = 1 FOR SHARE`, func() {
		givesUp("a row that is locked", 1)
	})
}

// besides runs statements in a transaction of somebody else's, and test while it is open.
func besides(t *testing.T, url, statement string, test func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), statement)
	}
	if err != nil {
		t.Fatal(err)
	}
	test()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// owned is a database of two shards that one node has, with a write of a signer of each.
func owned(t *testing.T) (url string, s *postgres.Store, h lease.Holder, writes []nonce.Write) {
	t.Helper()
	url = newShards(t)
	s, h, writes = ownedAt(t, url)
	return url, s, h, writes
}

func ownedAt(t *testing.T, url string) (s *postgres.Store, h lease.Holder, writes []nonce.Write) {
	t.Helper()
	s = openShards(t, url, 2)
	h, err := s.Register(t.Context(), lease.Presence{Node: "a"})
	if err == nil {
		_, err = s.Renew(t.Context(), h, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	shards, err := s.Acquire(t.Context(), h, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; len(writes) < 2; i++ {
		if name := fmt.Sprint("signer-", i); nonce.ShardOf(name, 2) == len(writes) {
			term := lease.ShardTerm{Shard: len(writes), Token: shards[len(writes)].Token}
			writes = append(writes, nonce.Write{Name: name, Term: term, Signer: nonce.Signer{Version: 1, Next: 1}})
		}
	}
	return s, h, writes
}

func TestACommitWaitsForWhoeverTakesItsShard(t *testing.T) {
	url, s, h, writes := owned(t)
	besides(t, url, `UPDATE shard SET fencing_token = fencing_token + 1, owner_node = 'b' WHERE shard_id = 0`, func() {
		if got, err := s.Commit(t.Context(), h, writes); nonce.OutcomeOf(err) != nonce.Aborted || err == nil {
			t.Errorf("got %+v, %v, want that nothing happened", got, err)
		}
	})
	if got, err := s.Commit(t.Context(), h, writes); err != nil || got.Results[0] != nonce.Applied || got.Results[1] != nonce.Applied {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
}

func TestASignerWhoseRowSomebodyWritesIsLeftOutAndTheOthersStand(t *testing.T) {
	url, s, h, writes := owned(t)
	if _, err := s.Commit(t.Context(), h, writes); err != nil {
		t.Fatal(err)
	}
	for i := range writes {
		writes[i].Signer.Version = 2
	}
	besides(t, url, `SELECT 1 FROM signer WHERE signer = '`+writes[0].Name+`' FOR UPDATE`, func() {
		got, err := s.Commit(t.Context(), h, writes)
		if err != nil || got.Results[0] != nonce.Moved || got.Results[1] != nonce.Applied {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestAStoreInShardsNeedsNoMoreRightsThanThoseOnItsTables(t *testing.T) {
	own := server.NewDatabase(t)
	openShards(t, own, 2)
	role := "r" + strings.ToLower(rand.Text())
	execute(t, dial(t, own), `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`)
	execute(t, dial(t, own), `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO `+role)
	u, err := url.Parse(own)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	s, h, writes := ownedAt(t, u.String())
	for version := int64(1); version < 4; version++ {
		for i := range writes {
			w := &writes[i]
			w.Signer.Version, w.Signer.Next = version, version
			w.History = []nonce.Past{{Nonce: version - 1, Attempt: 1}}
			w.Requests, w.DueAt = []nonce.Remembered{{ID: fmt.Sprint(version)}}, 1
		}
		got, err := s.Commit(t.Context(), h, writes)
		if err != nil || got.Results[0] != nonce.Applied || got.Results[1] != nonce.Applied {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	for what, do := range map[string]func() error{
		"prune":          func() error { _, err := s.Prune(t.Context(), time.Now().Add(time.Hour), 10); return err },
		"prune requests": func() error { _, err := s.PruneRequests(t.Context(), -time.Hour, 10); return err },
		"totals":         func() error { _, err := s.Totals(t.Context()); return err },
		"signers":        func() error { _, err := s.Signers(t.Context(), nonce.SignersQuery{Limit: 10}); return err },
		"names":          func() error { return s.RememberNames(t.Context(), []string{"a"}) },
		"leave":          func() error { return s.Leave(t.Context(), h) },
		"tickets":        func() error { return s.PruneTickets(t.Context()) },
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestASignerThatSomebodyWritesStaysListed: what he writes may have a hold that the entry is to
// show, and is not seen yet.
func TestASignerThatSomebodyWritesStaysListed(t *testing.T) {
	url, s, h, writes := owned(t)
	w := writes[0]
	w.DueAt = 1
	applies(t, s, h, w)
	check := w
	check.Check, check.DueAt = true, nonce.Unlisted
	for what, statement := range map[string]string{
		"writes": `UPDATE signer SET version = version + 1 WHERE signer = '` + w.Name + `'`,
		"locks":  `SELECT 1 FROM signer WHERE signer = '` + w.Name + `' FOR NO KEY UPDATE`,
	} {
		besides(t, url, statement, func() {
			applies(t, s, h, check)
			if n := count(t, url, `SELECT count(*) FROM signer_due`); n != 1 {
				t.Errorf("it is listed %d times while somebody %s it", n, what)
			}
		})
	}
	applies(t, s, h, check)
	if n := count(t, url, `SELECT count(*) FROM signer_due`); n != 0 {
		t.Errorf("it is listed %d times when nobody writes it", n)
	}
}

// TestModeBasicDoesNotKeepAShardFromItsShipments, which change its row in the owner's commit. A
// shard with the reliable engine it keeps.
func TestModeBasicDoesNotKeepAShardFromItsShipments(t *testing.T) {
	url, s, h, writes := owned(t)
	other := dial(t, url)
	for _, performance := range []bool{false, true} {
		if performance {
			if on, err := s.TurnOn(t.Context(), h, writes[0].Term, "id", nonce.Grant{For: time.Second, LongestHold: time.Second}); err != nil || !on {
				t.Fatal(on, err)
			}
		}
		errRefused, free := errors.New("refused"), false
		_, err := s.Locked(t.Context(), nonce.SignerNeed{Signer: writes[0].Name}, func(l nonce.Loaded) (nonce.Write, error) {
			if l.Signers[0].Shard.Performance != performance {
				t.Errorf("the shard is shown as %+v", l.Signers[0].Shard)
			}
			_, err := other.Exec(t.Context(), `SELECT 1 FROM shard WHERE shard_id = 0 FOR NO KEY UPDATE NOWAIT`)
			free = err == nil
			return nonce.Write{}, errRefused
		})
		if !errors.Is(err, errRefused) || free != performance {
			t.Errorf("performance %v: the row is free: %v; %v", performance, free, err)
		}
	}
}

// TestSteadyTrafficOfModeBasicOnASignerDoesNotKeepItsShard: whoever wants to change the shard's row
// has his turn.
func TestSteadyTrafficOfModeBasicOnASignerDoesNotKeepItsShard(t *testing.T) {
	const clients, tries = 16, 5
	url, s, h, writes := owned(t)
	busy := openShards(t, url+"&pool_max_conns=16", 0)
	ctx, stop := context.WithCancel(t.Context())
	var around, ended sync.WaitGroup
	defer ended.Wait()
	defer stop()
	around.Add(clients)
	for range clients {
		ended.Go(func() {
			once := sync.OnceFunc(around.Done)
			defer once()
			for ctx.Err() == nil {
				_, err := busy.Locked(context.WithoutCancel(ctx), nonce.SignerNeed{Signer: writes[0].Name}, func(l nonce.Loaded) (nonce.Write, error) {
					return next(nonce.Write{Name: writes[0].Name, Signer: l.Signers[0].Signer}), nil
				})
				if err != nil && nonce.OutcomeOf(err) != nonce.Aborted {
					t.Error(err)
					return
				}
				once()
			}
		})
	}
	around.Wait()
	var term lease.ShardTerm
	for _, step := range []struct {
		what string
		run  func(context.Context) (bool, error)
	}{
		{"acquire", func(ctx context.Context) (bool, error) {
			got, err := s.Acquire(ctx, h, []int{0})
			if err != nil {
				return false, err
			}
			term = got[0].Term()
			return got[0].Taken, nil
		}},
		{"pin", func(ctx context.Context) (bool, error) { return true, s.Pin(ctx, 0, "b") }},
		{"rehearsed", func(ctx context.Context) (bool, error) {
			return true, s.Rehearsed(ctx, h, []lease.ShardTerm{term}, 1)
		}},
		{"release", func(ctx context.Context) (bool, error) {
			n, err := s.Release(ctx, h, []lease.ShardTerm{term})
			return n == 1, err
		}},
		{"acquire both", func(ctx context.Context) (bool, error) {
			got, err := s.Acquire(ctx, h, []int{0, 1})
			if nonce.OutcomeOf(err) == nonce.Aborted { // then its caller tries each alone
				got, err = s.Acquire(ctx, h, []int{0})
			}
			if err != nil {
				return false, err
			}
			term = got[0].Term()
			return got[0].Taken, nil
		}},
		{"turn on", func(ctx context.Context) (bool, error) {
			return s.TurnOn(ctx, h, term, "id", nonce.Grant{For: time.Second, LongestHold: time.Second})
		}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		done, err := step.run(ctx)
		for n := 1; n < tries && nonce.OutcomeOf(err) == nonce.Aborted; n++ {
			done, err = step.run(ctx)
		}
		cancel()
		if err != nil || !done {
			t.Fatalf("%s: %v, %v", step.what, done, err)
		}
	}
}

// The rows of a shard with the performance engine are behind what was handed out.
func TestNothingIsMovedWhileThePerformanceEngineServesAShard(t *testing.T) {
	t.Parallel()
	url := newShards(t)
	s := openShards(t, url, 0)
	run(t, url, `UPDATE shard SET performance = true WHERE shard_id = 1`)
	if err := s.Export(t.Context(), false, func(time.Time, *nonce.Kept) error { return nil }); !errors.Is(err, nonce.ErrEngineOn) {
		t.Errorf("an export: %v", err)
	}
	one := []nonce.Kept{{Name: "a", Signer: &nonce.KeptSigner{Signer: nonce.Signer{Version: 1, Next: 1}}}}
	if err := s.Import(t.Context(), func() (*nonce.Kept, error) {
		if len(one) == 0 {
			return nil, io.EOF
		}
		defer func() { one = nil }()
		return &one[0], nil
	}); !errors.Is(err, nonce.ErrEngineOn) {
		t.Errorf("an import: %v", err)
	}
	if l, err := s.Load(t.Context(), []nonce.SignerNeed{{Signer: "a"}}); err != nil || l.Signers[0].Signer.Version != 0 {
		t.Errorf("it came in nevertheless: %+v, %v", l, err)
	}
}
