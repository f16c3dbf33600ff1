package postgres_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/apikey"
	"noncegate/nonce/postgres"
	"noncegate/test/lab/pgtest"
)

// newGate is the gate of a node, whose store is at url.
func newGate(t *testing.T, url string) (*access.Gate, *postgres.Store) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rights.yaml")
	if err := os.WriteFile(file, []byte("principals: {alice: []}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openShards(t, url, 0)
	g, err := access.New(t.Context(), s, access.Config{Rights: file, Keys: apikey.Config{Refresh: 20 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return g, s
}

// logins makes the address of each login another one: failures count against it.
var logins atomic.Uint32

func login(g *access.Gate, header, query string) (*access.Session, error) {
	r := httptest.NewRequest(http.MethodGet, "/ws?"+query, nil)
	n := logins.Add(1)
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", n>>16&255, n>>8&255, n&255)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return g.Authenticate(r)
}

// issue gets a ticket, or fails with what the handler answered.
func issue(t *testing.T, g *access.Gate, header string) (ticket string, status int) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/ticket", nil)
	r.Header.Set("Authorization", header)
	rec := httptest.NewRecorder()
	g.TicketHandler().ServeHTTP(rec, r)
	_, text, _ := strings.Cut(rec.Body.String(), `{"ticket":"`)
	text, _, _ = strings.Cut(text, `"`)
	return text, rec.Code
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen: " + what)
		}
	}
}

func TestACredentialIsGoodAtEveryNode(t *testing.T) {
	url := server.NewDatabase(t)
	here, s := newGate(t, url)
	there, _ := newGate(t, url)
	text, r := apikey.Generate("alice", 0)
	if _, err := s.CreateKey(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	header := "Bearer " + text
	var sessions []*access.Session
	for _, g := range []*access.Gate{here, there} {
		eventually(t, "the new key is good", func() bool { _, err := login(g, header, ""); return err == nil })
		session, err := login(g, header, "")
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, session)
	}
	ticket, status := issue(t, here, header)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	session, err := login(there, "", "ticket="+ticket)
	if err != nil || session.Principal != "alice" {
		t.Fatalf("a ticket at another node: %+v, %v", session, err)
	}
	sessions = append(sessions, session)
	if _, err := login(here, "", "ticket="+ticket); !errors.Is(err, access.ErrInvalid) {
		t.Errorf("the same ticket again: %v", err)
	}
	if _, err := s.RevokeKey(t.Context(), r.ID); err != nil {
		t.Fatal(err)
	}
	for _, session := range sessions {
		eventually(t, "the session ends", func() bool { return errors.Is(session.Ended(time.Now()), access.ErrRevoked) })
	}
}

func TestWhileTheDatabaseIsAwayOnlyWhoIsKnownIsLetIn(t *testing.T) {
	direct := server.NewDatabase(t)
	proxy, err := pgtest.NewProxy(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	through, err := proxy.URL(direct)
	if err != nil {
		t.Fatal(err)
	}
	text, r := apikey.Generate("alice", 0)
	if _, err := openShards(t, direct, 0).CreateKey(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	g, _ := newGate(t, through)
	session, err := login(g, "Bearer "+text, "")
	if err != nil {
		t.Fatal(err)
	}
	ticket, status := issue(t, g, "Bearer "+text)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	unknown, _ := apikey.Generate("alice", 0)

	proxy.Refuse()
	eventually(t, "an unknown key cannot be checked", func() bool {
		_, err := login(g, "Bearer "+unknown, "")
		return errors.Is(err, access.ErrUnavailable)
	})
	if _, err := login(g, "Bearer "+text, ""); err != nil {
		t.Errorf("a known key: %v", err)
	}
	if _, err := login(g, "", "ticket="+ticket); !errors.Is(err, access.ErrUnavailable) {
		t.Errorf("a ticket: %v", err)
	}
	if text, status := issue(t, g, "Bearer "+text); text != "" || status != http.StatusServiceUnavailable {
		t.Errorf("a new ticket: %d", status)
	}
	if err := session.Ended(time.Now()); err != nil {
		t.Errorf("who is in: %v", err)
	}

	proxy.Forward()
	eventually(t, "an unknown key is refused", func() bool {
		_, err := login(g, "Bearer "+unknown, "")
		return errors.Is(err, access.ErrInvalid)
	})
	if _, err := login(g, "", "ticket="+ticket); err != nil {
		t.Errorf("the ticket, when the database is back: %v", err)
	}
}
