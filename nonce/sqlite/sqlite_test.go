package sqlite_test

import (
	"context"
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
	s, err := sqlite.Open(context.Background(), path, 0, sqlite.Config{Fatal: func(err error) { t.Error(err) }})
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

// writer hands out nonces of signer "s", whose shard it acquires.
type writer struct {
	store *sqlite.Store
	node  lease.Holder
	term  lease.ShardTerm
	at    nonce.Signer
}

func newWriter(ctx context.Context, s *sqlite.Store) (w *writer, err error) {
	w = &writer{store: s}
	if w.node, err = s.Register(ctx, lease.Presence{Node: "n"}); err != nil {
		return nil, err
	}
	if _, err = s.Renew(ctx, w.node, time.Hour); err != nil {
		return nil, err
	}
	shard := nonce.ShardOf("s", s.Shards())
	rows, err := s.Acquire(ctx, w.node, []int{shard})
	if err != nil {
		return nil, err
	}
	w.term = rows[0].Term()
	loaded, err := s.Load(ctx, []nonce.SignerNeed{{Signer: "s"}})
	if err != nil {
		return nil, err
	}
	w.at = loaded.Signers[0].Signer
	return w, nil
}

// next hands out a nonce, and gives the one before back for good: a signer has a bound.
func (w *writer) next(ctx context.Context) (int64, error) {
	to, n := w.at, w.at.Next
	to.Version++
	to.Next++
	to.Live = []nonce.Entry{{Nonce: n, Status: nonce.Held, Attempt: 1, Until: time.Now().Add(time.Hour).UnixMilli()}}
	write := nonce.Write{Name: "s", Term: w.term, Generation: w.store.Generation(), Signer: to}
	if n > 0 {
		write.History = []nonce.Past{{Nonce: n - 1, Attempt: 1}}
	}
	got, err := w.store.Commit(ctx, w.node, []nonce.Write{write})
	if err != nil {
		return 0, err
	}
	if got.Results[0] != nonce.Applied {
		return 0, errors.New(got.Results[0].String())
	}
	w.at = to
	return n, nil
}

// take hands out the next nonce of signer "s" to a node of its own.
func take(t testing.TB, s *sqlite.Store) int64 {
	t.Helper()
	w, err := newWriter(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	n, err := w.next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOpenFindsWhatWasClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%20é;.db")
	for want := range int64(3) {
		s, err := sqlite.Open(t.Context(), path, 0, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if n := take(t, s); n != want {
			t.Errorf("got nonce %d, want %d", n, want)
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
		_, err := sqlite.Open(t.Context(), p, 0, sqlite.Config{})
		wantSentence(t, err, p, "in use by another process")
	}
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
		_, err := sqlite.Open(t.Context(), path, 0, sqlite.Config{})
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

func TestANewerSchemaIsRefusedOnlyWhenItIsMarkedAsBreaking(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, path, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1);
		ALTER TABLE signer ADD COLUMN later TEXT; INSERT INTO schema_breaking VALUES (1, 'known to this version')`)
	s, err := sqlite.Open(t.Context(), path, 0, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	take(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, path, "INSERT INTO schema_breaking VALUES (99, 'tokens are 128 bits wide')")
	for range 2 { // refused again: the first refusal gave the lock back
		_, err = sqlite.Open(t.Context(), path, 0, sqlite.Config{})
		wantSentence(t, err, path, "schema 99")
		wantSentence(t, err, path, "tokens are 128 bits wide")
	}
}

func TestAReaderSeesOneMoment(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	w, err := newWriter(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil && w.at.Next < 500 {
			if _, err := w.next(context.Background()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writing.Wait()
	defer stop()
	need := nonce.SignerNeed{Signer: "s"}
	for n := range int64(505) {
		need.History = append(need.History, n)
	}
	for range 20 {
		loaded, err := s.Load(ctx, []nonce.SignerNeed{need})
		if err != nil {
			t.Fatal(err)
		}
		got, past := loaded.Signers[0].Signer, 0
		for _, p := range loaded.Signers[0].History {
			if p != nil {
				past++
			}
		}
		if int64(past+len(got.Live)) != got.Next {
			t.Fatalf("next %d, %d live, %d of the history", got.Next, len(got.Live), past)
		}
	}
}

func TestAWriteThatNeverGotItsTurnWasNotSent(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	ctx, cancel := context.WithCancel(t.Context())
	errStop := errors.New("enough")
	_, err := s.Locked(t.Context(), nonce.SignerNeed{Signer: "s"}, func(nonce.Loaded) (nonce.Write, error) {
		waiting := make(chan error)
		go func() {
			_, err := s.Acquire(ctx, lease.Holder{Node: "n"}, []int{0})
			waiting <- err
		}()
		cancel()
		if err := <-waiting; nonce.OutcomeOf(err) != nonce.NotSent || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		return nonce.Write{}, errStop
	})
	if !errors.Is(err, errStop) {
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
		_, _ = s.Locked(t.Context(), nonce.SignerNeed{Signer: "s"}, func(nonce.Loaded) (nonce.Write, error) { panic("plan") })
	}()
	if n := take(t, s); n != 0 {
		t.Errorf("the first nonce is %d", n)
	}
}

func TestReadsGoOnAfterOneWasCancelled(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	take(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	need := []nonce.SignerNeed{{Signer: "s"}}
	for range 20 { // more than there are readers
		if _, err := s.Load(ctx, need); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
	for range 20 {
		if got, err := s.Load(t.Context(), need); err != nil || got.Signers[0].Signer.Next != 1 {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
}
