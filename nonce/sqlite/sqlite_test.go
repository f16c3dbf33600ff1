package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/sqlite"
	"noncegate/nonce/storetest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role, os.Args[len(os.Args)-1]))
	}
	goleak.VerifyTestMain(m)
}

// open opens the file for the rest of the test.
func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), path, sqlite.Config{Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStoreKeepsTheRules(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Database {
		s := open(t, filepath.Join(t.TempDir(), "store.db"))
		return storetest.Database{Open: func(*testing.T) nonce.Store { return s }}
	})
}

var holder = lease.Holder{Node: "n", Incarnation: 1}

// take acquires the signer "s".
func take(t testing.TB, s *sqlite.Store) nonce.Snapshot {
	t.Helper()
	snaps, err := s.Acquire(t.Context(), holder, time.Hour, []nonce.Need{{Signer: "s"}})
	if err != nil {
		t.Fatal(err)
	}
	return snaps[0]
}

func TestOpenFindsWhatWasClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%20é;.db")
	for want := range int64(3) {
		s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		snap := take(t, s)
		if snap.Next != want {
			t.Errorf("got next %d, want %d", snap.Next, want)
		}
		if res, err := s.Commit(t.Context(), holder, time.Hour, []nonce.Change{handOut(&snap, 1)}); err != nil || !res.Applied[0] {
			t.Fatal(res, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestASecondOpenIsRefusedByNameAndAlsoThroughALink(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "store.db"), filepath.Join(dir, "link.db")
	s := open(t, path)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		_, err := sqlite.Open(t.Context(), p, sqlite.Config{})
		wantSentence(t, err, p, "in use by another process")
	}
	wantSentence(t, sqlite.Migrate(t.Context(), path), path, "in use by another process")
	take(t, s) // the first is none the worse
}

func TestAPathThatCannotBeUsedIsNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("this is no database, but long enough to be looked at"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none", "store.db"): "its directory: no such file or directory",
		filepath.Join(file, "store.db"):        "not a directory",
		dir:                                    "is a directory",
		file:                                   "not a database",
	} {
		_, err := sqlite.Open(t.Context(), path, sqlite.Config{})
		wantSentence(t, err, path, want)
	}
}

// wantSentence wants an error of one line that names the file.
func wantSentence(t *testing.T, err error, path, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), filepath.Base(path)) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want a sentence about %q with %q", err, path, part)
	}
}

// alter runs SQL on a closed store, as another version might have.
func alter(t *testing.T, path, query string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(query); err != nil {
		t.Fatal(err)
	}
}

func TestANewerSchemaIsRefusedOnlyWhenItIsMarkedAsBreaking(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := sqlite.Migrate(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	alter(t, path, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1);
		ALTER TABLE signer_nonce_state ADD COLUMN later TEXT; INSERT INTO schema_breaking VALUES (1, 'known to this version')`)
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	take(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	alter(t, path, "INSERT INTO schema_breaking VALUES (99, 'tokens are 128 bits wide')")
	for range 2 { // refused again: the first refusal gave the lock back
		_, err = sqlite.Open(t.Context(), path, sqlite.Config{})
		wantSentence(t, err, path, "schema 99")
		wantSentence(t, err, path, "tokens are 128 bits wide")
	}
}

func TestAReaderSeesOneMoment(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	snap := take(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for ctx.Err() == nil && snap.Next < 500 {
			if _, err := s.Commit(context.Background(), holder, time.Hour, []nonce.Change{handOut(&snap, 5)}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	defer stop()
	need := nonce.Need{Signer: "s"}
	for n := range int64(505) {
		need.Nonces = append(need.Nonces, n)
	}
	for range 20 {
		snaps, err := s.Load(ctx, []nonce.Need{need})
		if err != nil {
			t.Fatal(err)
		}
		if got := snaps[0]; int64(len(got.Rows)) != got.Next || got.Held != got.Next {
			t.Fatalf("next %d, held %d, %d rows", got.Next, got.Held, len(got.Rows))
		}
	}
}

func TestAWriteThatNeverGotItsTurnWasNotSent(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Locked(t.Context(), nonce.Need{Signer: "s"}, func(snap nonce.Snapshot) (nonce.Change, error) {
		waiting := make(chan error)
		go func() {
			_, err := s.Acquire(ctx, holder, time.Hour, []nonce.Need{{Signer: "s"}})
			waiting <- err
		}()
		cancel()
		if err := <-waiting; nonce.OutcomeOf(err) != nonce.NotSent || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		return nonce.Change{Check: true}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAPanicOfAPlanRollsBackAndFreesTheWriter(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = s.Locked(t.Context(), nonce.Need{Signer: "s"}, func(nonce.Snapshot) (nonce.Change, error) { panic("plan") })
	}()
	if sum, err := s.Summary(t.Context(), "s"); err != nil || sum.Exists {
		t.Errorf("got %+v, %v", sum, err)
	}
	take(t, s)
}

func TestReadsGoOnAfterOneWasCancelled(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	take(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // more than there are readers
		if _, err := s.Summary(ctx, "s"); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
	for range 20 {
		if sum, err := s.Summary(t.Context(), "s"); err != nil || !sum.Exists {
			t.Fatalf("got %+v, %v", sum, err)
		}
	}
}

func TestTheViewsReadLikeTheProtocol(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{Now: func() time.Time { return time.UnixMilli(1_800_000_000_123) }})
	if err != nil {
		t.Fatal(err)
	}
	snap := take(t, s)
	c := handOut(&snap, 3)
	var hashes nonce.TxHashes
	for i := range c.Rows {
		c.Rows[i].Holder, c.Rows[i].TxHash, c.Rows[i].Replaced = nonce.PrincipalOf([]string{"", "payouts", "unnamed"}[i]), nonce.TxHash{31: byte(i)}, hashes
		hashes = hashes.Append(nonce.TxHash{31: byte(i + 1)})
	}
	if _, err := s.Commit(t.Context(), holder, time.Hour, []nonce.Change{c}); err != nil {
		t.Fatal(err)
	}
	if err := s.RememberNames(t.Context(), []string{"payouts"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var got string
	err = db.QueryRow(`SELECT concat_ws(' ', l.signer, owner_node, owner_incarnation, l.fencing_token, expires_at, nonce, status, attempt, held_until)
		FROM signer_lease l JOIN signer_allocation a USING (signer) WHERE nonce = 0`).Scan(&got)
	if want := "s n 1 1 2027-01-15T09:00:00.123Z 0 HELD 1 2027-01-15T09:00:00.123Z"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	err = db.QueryRow(`SELECT group_concat(concat_ws(' ', nonce, coalesce(tx_hash, '-'), coalesce(replaced, '-'), coalesce(holder, '-')), char(10)) FROM signer_allocation`).Scan(&got)
	one, two := nonce.TxHash{31: 1}.String(), nonce.TxHash{31: 2}.String()
	if want := "0 - - -\n1 " + one + " " + one + " payouts\n2 " + two + " " + one + " " + two + " " + nonce.PrincipalOf("unnamed").String(); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
