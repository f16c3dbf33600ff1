package postgres_test

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"noncegate/internal/pgtest"
	"noncegate/nonce"
	"noncegate/nonce/postgres"
)

// twin starts another server with an empty database of the same name and the same
// password as raw names.
func twin(t *testing.T, raw string) (s *pgtest.Server, there string) {
	t.Helper()
	s, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	admin := dial(t, s.URL("postgres"))
	execute(t, admin, "CREATE DATABASE "+pgx.Identifier{u.Path[1:]}.Sanitize())
	execute(t, admin, "ALTER ROLE postgres PASSWORD '"+password+"'")
	u.Host = s.Addr()
	return s, u.String()
}

// standIn is a twin that is migrated.
func standIn(t *testing.T, raw string) *pgtest.Server {
	t.Helper()
	s, there := twin(t, raw)
	st, err := postgres.Open(t.Context(), there, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAnotherServerBehindTheSameAddressChangesTheEpoch(t *testing.T) {
	raw := migrated(t)
	other := standIn(t, raw)
	relay := newRelay(t, server.Addr())
	s := openStore(t, relay.url(t, raw))
	snap := acquire(t, s, alice, long, nonce.Need{Signer: signer})
	was := s.Epoch()
	relay.cut()
	await(t, "the same server again", func() bool { return s.Ping(t.Context()) == nil })
	if s.Epoch() != was {
		t.Error("a new connection to the same server changed the epoch")
	}

	// Two connections, of which one is not cut and is still to the first server.
	kept := make(chan nonce.Store)
	_, err := s.Locked(t.Context(), nonce.Need{Signer: signer}, func(at nonce.Snapshot) (nonce.Change, error) {
		relay.move(other.Addr())
		go func() {
			_ = s.Ping(t.Context()) // needs a second connection
			close(kept)
		}()
		<-kept
		return nonce.Change{ID: at.ID, Signer: at.Signer, Check: true}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Epoch() == was {
		t.Error("another server went unnoticed")
	}
	for range 20 {
		got := all(t, s, signer, "")
		if got.Exists {
			t.Fatal("a connection to the first server is still in use")
		}
	}
	stale := handOut(snap, 1)
	stale.Epoch = was
	if _, err := s.Commit(t.Context(), alice, long, []nonce.Change{stale}); err == nil || nonce.OutcomeOf(err) != nonce.NotSent {
		t.Errorf("a commit planned against the first server: got %v, want not sent", err)
	}
	compared := handOut(snap, 1)
	compared.Epoch = s.Epoch()
	if commit(t, s, alice, compared) {
		t.Error("a signer that is not there was committed to")
	}
}
