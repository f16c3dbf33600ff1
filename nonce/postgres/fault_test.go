package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"noncegate/internal/access/ticket"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/postgres"
	"noncegate/test/lab/pgtest"
)

// version reads the version of a signer, past the store.
func version(t *testing.T, url, name string) (v int64) {
	t.Helper()
	err := dial(t, url).QueryRow(t.Context(), `SELECT coalesce((SELECT version FROM signer WHERE signer = $1), 0)`, name).Scan(&v)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// next is the write after another.
func next(w nonce.Write) nonce.Write {
	w.Signer.Version++
	w.Signer.Next++
	w.Signer.Live = []nonce.Entry{{Nonce: w.Signer.Next - 1, Attempt: 1, Status: nonce.Held, Until: 1}}
	return w
}

func applies(t *testing.T, s nonce.Store, h lease.Holder, writes ...nonce.Write) {
	t.Helper()
	got, err := s.Commit(t.Context(), h, writes)
	if err != nil || slices.ContainsFunc(got.Results, func(r nonce.WriteResult) bool { return r != nonce.Applied }) {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestABatchOnShardsIsOneRoundTripWhateverTheNumberOfSigners(t *testing.T) {
	proxy, url := through(t, newShards(t))
	s, h, first := ownedAt(t, url+"&pool_max_conns=1")
	writes, needs := make([]nonce.Write, 300), make([]nonce.SignerNeed, 300)
	for i := range writes {
		name := fmt.Sprint("signer-", i)
		writes[i] = nonce.Write{Name: name, Term: first[nonce.ShardOf(name, 2)].Term}
		needs[i] = nonce.SignerNeed{Signer: name, History: []int64{0}, Requests: []string{"a"}}
	}
	step := func(what string, trips int64, run func() error) {
		t.Helper()
		for _, prepared := range []bool{false, true} {
			before := proxy.RoundTrips()
			if err := run(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := proxy.RoundTrips() - before; prepared && got != trips {
				t.Errorf("%s: %d round trips, want %d", what, got, trips)
			}
		}
	}
	for i := range writes { // a row for half of them
		if i%2 == 0 {
			writes[i] = next(writes[i])
			applies(t, s, h, writes[i])
		}
	}
	round := 0
	step("writes of all kinds", 1, func() error {
		round++
		batch := slices.Clone(writes)
		for i := range batch {
			w := &batch[i]
			switch {
			case i%2 == 1 && i >= 100*round:
				w.Check = true
			default:
				*w = next(*w)
				w.History, w.Requests, w.DueAt = []nonce.Past{{Nonce: int64(round), Attempt: 1}}, []nonce.Remembered{{ID: fmt.Sprint(round)}}, 1
				writes[i] = next(writes[i])
			}
		}
		got, err := s.Commit(t.Context(), h, batch)
		if i := slices.IndexFunc(got.Results, func(r nonce.WriteResult) bool { return r != nonce.Applied }); i >= 0 {
			t.Fatalf("write %d of round %d: %v", i, round, got.Results[i])
		}
		return err
	})
	step("load", 1, func() error { _, err := s.Load(t.Context(), needs); return err })
	step("renew", 1, func() error { _, err := s.Renew(t.Context(), h, time.Hour); return err })
	step("acquire", 1, func() error { _, err := s.Acquire(t.Context(), h, []int{0, 1}); return err })
	step("release", 1, func() error { _, err := s.Release(t.Context(), h, []lease.ShardTerm{{}}); return err })
	step("owners", 1, func() error { _, err := s.Owners(t.Context()); return err })
	step("due", 1, func() error { _, err := s.Due(t.Context(), []int{0, 1}, 10); return err })
	step("lock, write, commit", 3, func() error {
		_, err := s.Locked(t.Context(), needs[0], func(l nonce.Loaded) (nonce.Write, error) {
			return next(nonce.Write{Name: needs[0].Signer, Signer: l.Signers[0].Signer}), nil
		})
		return err
	})
}

func TestAReplyOnShardsThatIsLostLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, tt := range map[string]struct {
		cut     string // what the client sends last
		run     func(s nonce.Store, h lease.Holder, w nonce.Write) error
		outcome nonce.Outcome
		changes string // version, token and counter when it did happen
	}{
		"commit": {"noncegate_commit", func(s nonce.Store, h lease.Holder, w nonce.Write) error {
			_, err := s.Commit(ctx, h, []nonce.Write{next(w)})
			return err
		}, nonce.Unknown, "(3,1,2)"},
		"acquire": {"stmtcache", func(s nonce.Store, h lease.Holder, _ nonce.Write) error {
			_, err := s.Acquire(ctx, h, []int{0})
			return err
		}, nonce.Unknown, "(2,2,2)"},
		"release": {"stmtcache", func(s nonce.Store, h lease.Holder, w nonce.Write) error {
			_, err := s.Release(ctx, h, []lease.ShardTerm{w.Term})
			return err
		}, nonce.Unknown, "(2,2,2)"},
		"renew": {"stmtcache", func(s nonce.Store, h lease.Holder, _ nonce.Write) error {
			_, err := s.Renew(ctx, h, time.Hour)
			return err
		}, nonce.Unknown, "(2,1,3)"},
		"load": {"stmtcache", func(s nonce.Store, _ lease.Holder, w nonce.Write) error {
			_, err := s.Load(ctx, []nonce.SignerNeed{{Signer: w.Name}})
			return err
		}, nonce.NotSent, "(2,1,2)"},
		"the end of a locked transaction": {"COMMIT", func(s nonce.Store, _ lease.Holder, w nonce.Write) error {
			_, err := s.Locked(ctx, nonce.SignerNeed{Signer: w.Name}, func(nonce.Loaded) (nonce.Write, error) { return next(w), nil })
			return err
		}, nonce.Unknown, "(3,1,2)"},
		"the beginning of a locked transaction": {"stmtcache", func(s nonce.Store, _ lease.Holder, w nonce.Write) error {
			_, err := s.Locked(ctx, nonce.SignerNeed{Signer: w.Name}, func(nonce.Loaded) (nonce.Write, error) { return next(w), nil })
			return err
		}, nonce.NotSent, "(2,1,2)"},
	} {
		t.Run(name, func(t *testing.T) {
			direct := newShards(t)
			proxy, url := through(t, direct)
			s, h, writes := ownedAt(t, url+"&pool_max_conns=1")
			w := writes[0]
			// These prepare the statements.
			applies(t, s, h, w)
			w.Signer.Live = []nonce.Entry{}
			w = next(w)
			applies(t, s, h, w)
			if _, err := s.Release(t.Context(), h, []lease.ShardTerm{{Shard: 1, Token: 7}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Renew(t.Context(), h, time.Hour); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Load(t.Context(), []nonce.SignerNeed{{Signer: w.Name}}); err != nil {
				t.Fatal(err)
			}
			plan := func(nonce.Loaded) (nonce.Write, error) { return w, errors.New("no") }
			if _, err := s.Locked(t.Context(), nonce.SignerNeed{Signer: w.Name}, plan); err == nil {
				t.Fatal("the plan's error was lost")
			}
			answered := proxy.CutReplies(tt.cut)
			err := tt.run(s, h, w)
			if err == nil || nonce.OutcomeOf(err) != tt.outcome {
				t.Errorf("got %v, want outcome %v", err, tt.outcome)
			}
			if tt.outcome == nonce.Unknown {
				<-answered
			}
			conn := dial(t, direct)
			// A new token waits for what is still under way, as the service does.
			execute(t, conn, `SELECT 1 FROM shard FOR UPDATE`)
			var got string
			if err := conn.QueryRow(t.Context(), `SELECT (version, d.fencing_token, counter)::text FROM signer JOIN shard d USING (shard_id), gateway_node`).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != tt.changes {
				t.Errorf("version, token and counter are %s, want %s", got, tt.changes)
			}
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// TestACommitEndsWithItsContext: a connection watches a context that comes again once, and the end of one that came before ends nothing.
func TestACommitEndsWithItsContext(t *testing.T) {
	url := server.NewDatabase(t)
	s, h, writes := ownedAt(t, url+"&pool_max_conns=1")
	w := writes[0]
	earlier, endEarlier := context.WithCancel(t.Context())
	defer endEarlier()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	commit := func(ctx context.Context) error {
		got, err := s.Commit(ctx, h, []nonce.Write{w})
		if err == nil && got.Results[0] != nonce.Applied {
			err = fmt.Errorf("got %v", got.Results)
		}
		w = next(w)
		return err
	}
	for _, ctx := range []context.Context{earlier, ctx} {
		if err := commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	conn := dial(t, url)
	execute(t, conn, `CREATE TABLE passes ()`)
	execute(t, conn, `CREATE FUNCTION barrier() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN WHILE NOT EXISTS (SELECT FROM passes) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NEW; END $$`)
	execute(t, conn, `CREATE TRIGGER barrier BEFORE UPDATE ON signer FOR EACH ROW EXECUTE FUNCTION barrier()`)
	began := func() chan error {
		done := make(chan error, 1)
		go func() { done <- commit(ctx) }()
		await(t, "a commit at the barrier", func() (waits bool) {
			const asleep = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`
			return conn.QueryRow(t.Context(), asleep).Scan(&waits) == nil && waits
		})
		return done
	}

	done := began()
	endEarlier()
	execute(t, conn, `INSERT INTO passes DEFAULT VALUES`)
	if err := <-done; err != nil {
		t.Fatalf("the context of another commit has ended: %v", err)
	}

	execute(t, conn, `DELETE FROM passes`)
	done = began()
	end()
	if err := <-done; !errors.Is(err, context.Canceled) || nonce.OutcomeOf(err) != nonce.Unknown {
		t.Errorf("its own has: got %v, want it unknown and canceled", err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("the next call: %v", err)
	}
	if err := commit(ctx); nonce.OutcomeOf(err) != nonce.NotSent {
		t.Errorf("got %v for a context that has ended, want that nothing was sent", err)
	}
}

// TestAnAnswerThatCameBeforeTheEndOfTheContextStands: the commit has succeeded, and the connection serves on.
func TestAnAnswerThatCameBeforeTheEndOfTheContextStands(t *testing.T) {
	conn := dial(t, server.NewDatabase(t)).PgConn()
	ctx, end := context.WithCancel(t.Context())
	driver, cut := postgres.BeginWatched(conn, ctx)
	if _, err := conn.Exec(driver, "SELECT 1").ReadAll(); err != nil {
		t.Fatal(err)
	}
	end()
	await(t, "the end to be noticed", cut)
	if err := postgres.EndWatched(conn, nil); err != nil {
		t.Errorf("got %v for what was answered", err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT 1").ReadAll(); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestAHeartbeatDoesNotWaitForAConnectionOfRequests(t *testing.T) {
	s, h, writes := ownedAt(t, newShards(t)+"&pool_max_conns=1")
	_, err := s.Locked(t.Context(), nonce.SignerNeed{Signer: writes[0].Name}, func(nonce.Loaded) (nonce.Write, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := s.Renew(ctx, h, time.Hour) // the only connection of the pool is this transaction's
		return writes[0], err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestACommitOnShardsThatWaitedForSomebodyElsesIsRefused: the statement's snapshot is from
// before the wait, and still nothing of it may take effect.
func TestACommitOnShardsThatWaitedForSomebodyElsesIsRefused(t *testing.T) {
	for name, statement := range map[string]string{
		"a take-over":               `UPDATE shard SET fencing_token = fencing_token + 1, owner_node = 'b', owner_incarnation = 1 WHERE shard_id = $1 AND $2 <> ''`,
		"a later term of its own":   `UPDATE shard SET fencing_token = fencing_token + 1 WHERE shard_id = $1 AND $2 <> ''`,
		"a start of the same node":  `UPDATE shard SET fencing_token = fencing_token + 1, owner_incarnation = 2 WHERE shard_id = $1 AND $2 <> ''`,
		"a release":                 `UPDATE shard SET fencing_token = fencing_token + 1, owner_node = '', owner_incarnation = 0 WHERE shard_id = $1 AND $2 <> ''`,
		"another owner, same token": `UPDATE shard SET owner_node = 'b' WHERE shard_id = $1 AND $2 <> ''`,
		"a write of mode basic":     `UPDATE signer SET version = version + 1, next_nonce = next_nonce + 1 WHERE shard_id = $1 AND signer = $2`,
		"a first write":             `INSERT INTO signer (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at) VALUES ($2 || '', $1, 1, 0, 1, 0, '', 0)`,
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				url, s, h, writes := owned(t)
				w := writes[0]
				w.History, w.Requests, w.DueAt = []nonce.Past{{Nonce: 0, Attempt: 1}}, []nonce.Remembered{{ID: "late"}}, 1
				if name != "a first write" {
					applies(t, s, h, writes[0])
					w.Signer.Version, w.Signer.Next = 2, 3
				}
				var got nonce.Committed
				met := overtaken(t, url, statement, []any{0, w.Name}, func() (err error) {
					got, err = s.Commit(t.Context(), h, []nonce.Write{w, writes[1]})
					return err
				})
				if !met {
					continue
				}
				if got.Results[0] == nonce.Applied || got.Results[1] != nonce.Applied {
					t.Errorf("got %v", got.Results)
				}
				if left := count(t, url, `SELECT (SELECT count(*) FROM signer_history) + (SELECT count(*) FROM signer_request) + (SELECT count(*) FROM signer_due)`); left != 0 {
					t.Errorf("it left %d rows", left)
				}
				if v := version(t, url, w.Name); v != w.Signer.Version-1 && name != "a write of mode basic" && name != "a first write" {
					t.Errorf("the signer is at version %d", v)
				}
				return
			}
			t.Fatal("the commit never waited")
		})
	}
}

func TestATakeOverOfAShardWaitsForTheOldOwnersCommitAndThenSeesIt(t *testing.T) {
	for range 20 {
		url, s, h, writes := owned(t)
		applies(t, s, h, writes...)
		met := overtaken(t, url, `WITH l AS MATERIALIZED (SELECT 1 FROM shard WHERE shard_id = 0 FOR SHARE) UPDATE signer SET version = version + 1 FROM l WHERE signer = $1`, []any{writes[0].Name}, func() error {
			got, err := s.Acquire(t.Context(), h, []int{0})
			if err != nil {
				return err
			}
			loaded, err := s.Load(t.Context(), []nonce.SignerNeed{{Signer: writes[0].Name}})
			if err == nil && (!got[0].Taken || loaded.Signers[0].Signer.Version != 2) {
				t.Errorf("got %+v and %+v", got, loaded)
			}
			return err
		})
		if met {
			return
		}
	}
	t.Fatal("the acquire never waited")
}

// TestLongARowThatStaysLockedHoldsUpNotEveryCommit measures: a commit that waits for the row gives the same answer, later.
func TestLongARowThatStaysLockedHoldsUpNotEveryCommit(t *testing.T) {
	url, s, h, writes := owned(t)
	applies(t, s, h, writes...)
	const rounds = 20
	besides(t, url, `SELECT 1 FROM signer WHERE signer = '`+writes[0].Name+`' FOR UPDATE`, func() {
		began := time.Now()
		for range rounds {
			writes[1] = next(writes[1])
			got, err := s.Commit(t.Context(), h, []nonce.Write{next(writes[0]), writes[1]})
			if err != nil || got.Results[0] != nonce.Moved || got.Results[1] != nonce.Applied {
				t.Fatalf("got %+v, %v", got, err)
			}
		}
		if took := time.Since(began); took > rounds*100*time.Millisecond { // lock_timeout
			t.Errorf("%d commits took %v: each waited", rounds, took)
		}
	})
	applies(t, s, h, next(writes[0]))
}

func TestAnotherServerOfShardsBehindTheSameAddressChangesTheGeneration(t *testing.T) {
	t.Parallel()
	raw := server.NewDatabase(t)
	other, there := twin(t, raw)
	openShards(t, there, 2)
	proxy, url := through(t, raw)
	s, h, writes := ownedAt(t, url)
	applies(t, s, h, writes...)
	was := s.Generation()
	proxy.Drop()
	await(t, "the same server again", func() bool { return s.Ping(t.Context()) == nil })
	if s.Generation() != was {
		t.Error("a new connection to the same server changed the generation")
	}
	proxy.Retarget(other.Addr())
	proxy.Drop()
	// The heartbeat may be the first to meet it.
	await(t, "a heartbeat of the other server", func() bool {
		_, err := s.Renew(t.Context(), h, time.Hour)
		return errors.Is(err, lease.ErrWentBack)
	})
	if s.Generation() == was {
		t.Fatal("another server went unnoticed")
	}
	if _, err := s.Commit(t.Context(), h, []nonce.Write{next(writes[0])}); err == nil || nonce.OutcomeOf(err) != nonce.NotSent {
		t.Errorf("a belief of the first server: got %v, want not sent", err)
	}
	w := next(writes[0])
	w.Generation = s.Generation()
	if got, err := s.Commit(t.Context(), h, []nonce.Write{w}); err != nil || got.Results[0] != nonce.NotOwner {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestAWaitForTheReplicaThatWasCancelledIsUnknown: the change is on this server's disk, and perhaps
// nowhere else. What comes next over the same connection is told by itself.
func TestAWaitForTheReplicaThatWasCancelledIsUnknown(t *testing.T) {
	alone, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = alone.Close() })
	url := alone.NewDatabase(t)
	s, h, writes := ownedAt(t, url+"&pool_max_conns=1")
	operator := dial(t, url)
	replica := func(name string) {
		execute(t, operator, `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`)
		execute(t, operator, `SELECT pg_reload_conf()`)
	}
	w := writes[0]
	for _, what := range []string{"a commit", "an acquire", "a ticket"} {
		replica("away") // the server hears of it a moment later
		var met atomic.Bool
		ended := make(chan error, 1)
		go func() {
			var err error
			for n := 0; err == nil && !met.Load(); n++ {
				switch what {
				case "an acquire":
					_, err = s.Acquire(t.Context(), h, []int{0})
				case "a ticket": // of which nobody asks whether it is safe
					_, err = s.PutTicket(t.Context(), ticket.Hash{byte(n), byte(n >> 8)}, ticket.Grant{Principal: "p", Credential: "c"}, time.Minute, 1000)
				default:
					_, err = s.Commit(t.Context(), h, []nonce.Write{w})
					w = next(w)
				}
			}
			ended <- err
		}()
		await(t, "the wait for the replica", func() (cancelled bool) {
			err := operator.QueryRow(t.Context(), `SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&cancelled)
			return err == nil && cancelled
		})
		met.Store(true)
		replica("")
		err := <-ended
		if what == "a ticket" && err != nil || what != "a ticket" && nonce.OutcomeOf(err) != nonce.Unknown {
			t.Errorf("%s: got %v", what, err)
		}
		if _, err := s.Commit(t.Context(), h, nil); err != nil {
			t.Errorf("after %s: got %v", what, err)
		}
	}
}

// A server that was demoted without a restart keeps the connections that it has, and answers reads from them.
func TestAServerThatRefusesWritesIsLeftByAllConnections(t *testing.T) {
	alone, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = alone.Close() })
	url := alone.NewDatabase(t)
	operator := dial(t, url)
	reload := func(change string) {
		execute(t, operator, `ALTER SYSTEM `+change)
		execute(t, operator, `SELECT pg_reload_conf()`)
	}
	var log bytes.Buffer
	s, err := postgres.Open(t.Context(), url, 2, postgres.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	h, err := s.Register(t.Context(), lease.Presence{Node: "a"})
	if err != nil {
		t.Fatal(err)
	}
	tickets := 0
	putTicket := func() error {
		tickets++
		_, err := s.PutTicket(t.Context(), ticket.Hash{byte(tickets), byte(tickets >> 8)}, ticket.Grant{Principal: "p", Credential: "c"}, time.Hour, 1e6)
		return err
	}
	heartbeat := func() error { _, err := s.Renew(t.Context(), h, time.Hour); return err }
	served := func(write func() error) func() bool { return func() bool { return write() == nil } }
	for i, meets := range []func() error{heartbeat, putTicket} {
		await(t, "heartbeats", served(heartbeat))
		await(t, "writes", served(putTicket))
		var kept []int32
		_, err := s.Locked(t.Context(), nonce.SignerNeed{Signer: "s"}, func(l nonce.Loaded) (nonce.Write, error) { // one is in use, and one idle
			err := s.Ping(t.Context())
			if err == nil {
				err = operator.QueryRow(t.Context(), `SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = 'noncegate'`).Scan(&kept)
			}
			reload(`SET default_transaction_read_only = on`)
			await(t, "a write to be refused", func() bool {
				refused, ok := errors.AsType[*pgconn.PgError](meets())
				return ok && refused.Code == "25006"
			})
			return next(nonce.Write{Name: "s", Signer: l.Signers[0].Signer}), err
		})
		if err != nil || len(kept) < 3 {
			t.Fatalf("connections %v: %v", kept, err)
		}
		await(t, "the connections to be closed", func() (gone bool) {
			err := operator.QueryRow(t.Context(), `SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ANY($1)`, kept).Scan(&gone)
			return err == nil && gone
		})
		if err := putTicket(); err == nil || nonce.OutcomeOf(err) != nonce.NotSent {
			t.Errorf("a write after that: got %v, want not sent", err)
		}
		if n := strings.Count(log.String(), "refuses writes"); n != i+1 {
			t.Errorf("after %d times the log says %d times so:\n%s", i+1, n, log.String())
		}
		execute(t, operator, `SET default_transaction_read_only = off`)
		reload(`RESET default_transaction_read_only`)
	}
}
